"""`make picture`: a bundle's examples, asked and answered, as a PNG."""

from pathlib import Path

import matplotlib.image
import pytest

from tests.serving.playground.picture import WIDTH, take

pytestmark = pytest.mark.integration


def test_a_bundle_has_its_picture_taken(bundle: Path, tmp_path: Path) -> None:
    take(bundle, tmp_path / "playground.png")
    picture = matplotlib.image.imread(tmp_path / "playground.png")
    assert picture.shape[1] == WIDTH
    assert picture.std() > 0
