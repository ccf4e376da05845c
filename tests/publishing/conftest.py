"""Bundles of one body for tests of publishing: what a server is started with, and other versions of its languages."""

from pathlib import Path

import pytest

from lingraft.export import add
from lingraft.export import bundle as export
from tests.tiny import Tiny, write_embeddings, write_task
from tests.workshop import Workshop


@pytest.fixture(scope="session")
def tiny(workshop: Workshop, tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return Tiny.make(workshop.recipe, workshop.tokenizers, tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def started(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """English and German."""
    out = tmp_path_factory.mktemp("export") / "started"
    export(tiny.primary, tiny.task, [tiny.embeddings["de"]], out)
    return out


@pytest.fixture(scope="session")
def german(started: Path, tiny: Tiny, workshop: Workshop, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with other embeddings of German."""
    folder = tmp_path_factory.mktemp("german")
    add(started, write_embeddings(workshop.tokenizers["de"], tiny.primary, folder / "de", seed=11), folder / "bundle")
    return folder / "bundle"


@pytest.fixture(scope="session")
def turkish(started: Path, tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With Turkish beside the two."""
    out = tmp_path_factory.mktemp("turkish") / "bundle"
    add(started, tiny.embeddings["tr"], out)
    return out


@pytest.fixture(scope="session")
def foreign(tiny: Tiny, workshop: Workshop, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same task and languages on another body."""
    folder = tmp_path_factory.mktemp("foreign")
    task = write_task(workshop.recipe, tiny.primary, folder / "task", seed=77)
    export(tiny.primary, task, [tiny.embeddings["de"]], folder / "bundle")
    return folder / "bundle"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of publications."""
    (tmp_path / "published").mkdir()
    return tmp_path / "published"
