"""Turkish, added once for all tests that only look."""

import shutil
from pathlib import Path

import pytest

from lingraft import add_language
from lingraft.lane.added import AddedLanguage
from tests.lane.given import RECIPE
from tests.workshop import Workshop


@pytest.fixture(scope="module")
def text(workshop: Workshop, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Labelled Turkish text under a name that does not say so."""
    file = tmp_path_factory.mktemp("given") / "pages.jsonl"
    shutil.copy(Path(str(workshop.recipe.text.path)) / "tr.jsonl", file)  # type: ignore[union-attr]
    return file


@pytest.fixture(scope="module")
def added(workshop: Workshop, text: Path, tmp_path_factory: pytest.TempPathFactory) -> AddedLanguage:
    """Turkish, added by the recipe that the workshop was made by."""
    out = tmp_path_factory.mktemp("lane") / "tr"
    return add_language(workshop.primary, text, "tr", out, tasks=[*workshop.tasks.values()], recipe=RECIPE)
