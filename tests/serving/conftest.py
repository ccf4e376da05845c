"""One bundle of each kind for all tests of export and serving."""

from pathlib import Path

import pytest

from lingraft.export import bundle as export
from tests.serving.kinds import export_all
from tests.tiny import Pieces, Tiny


@pytest.fixture(scope="session")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> Pieces:
    return Pieces.make(tmp_path_factory.mktemp("pieces"))


@pytest.fixture(scope="session")
def tiny(pieces: Pieces, tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return Tiny.make(pieces.recipe, pieces.tokenizers, tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def bundle(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """English, German and Turkish under one body."""
    out = tmp_path_factory.mktemp("export") / "bundle"
    export(tiny.primary, tiny.task, list(tiny.embeddings.values()), out)
    return out


@pytest.fixture(scope="session")
def bundles(bundle: Path, pieces: Pieces, tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The same languages under bodies of all kinds of tasks, and under the primary's own."""
    return [bundle, *export_all(pieces.recipe, tiny, tmp_path_factory.mktemp("kinds"))]
