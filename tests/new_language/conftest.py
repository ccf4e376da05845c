"""Turkish, added once a run for all tests that only look."""

import pickle
import shutil
from pathlib import Path

import pytest

from lingraft import add_language
from lingraft.new_language.summary import AddedLanguage
from tests.fixtures import once
from tests.new_language.given import RECIPE
from tests.workshop import Workshop


@pytest.fixture(scope="session")
def text(workshop: Workshop) -> Path:
    source = Path(str(workshop.recipe.text.path)) / "tr.jsonl"  # type: ignore[union-attr]
    return once.folder("pages", lambda folder: shutil.copy(source, folder / "pages.jsonl")) / "pages.jsonl"


@pytest.fixture(scope="session")
def added(workshop: Workshop, text: Path) -> AddedLanguage:
    def make(folder: Path) -> None:
        tasks = [*workshop.tasks.values()]
        made = add_language(workshop.primary, text, "tr", folder / "tr", tasks=tasks, recipe=RECIPE)
        (folder / "added.pickle").write_bytes(pickle.dumps(made))

    found = once.folder("added", make, RECIPE.read_bytes())
    return pickle.loads((found / "added.pickle").read_bytes())
