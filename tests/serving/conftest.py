"""One bundle for all tests of export and serving."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lingraft.export import bundle as export
from tests.tiny import Tiny

if TYPE_CHECKING:
    from tests.workshop import Workshop


@pytest.fixture(scope="session")
def tiny(workshop: "Workshop", tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return Tiny.make(workshop.recipe, workshop.tokenizers, tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def bundle(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """English, German and Turkish under one body."""
    out = tmp_path_factory.mktemp("export") / "bundle"
    export(tiny.primary, tiny.task, list(tiny.embeddings.values()), out)
    return out
