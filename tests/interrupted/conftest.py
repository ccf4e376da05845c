from pathlib import Path

import pytest

from tests.fixtures import once
from tests.interrupted.project import Project, recipe
from tests.workshop import Workshop


@pytest.fixture(scope="session")
def project(workshop: Workshop) -> Project:
    def make(folder: Path) -> None:
        recipe(folder)

    return Project(workshop, once.folder("interrupted", make))
