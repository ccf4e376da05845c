from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doctor.clinic import Clinic


@pytest.fixture
def clinic(tmp_path: Path) -> Iterator[Clinic]:
    with Clinic.opened(tmp_path) as opened:
        yield opened
