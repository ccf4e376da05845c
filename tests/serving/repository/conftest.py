"""Bundles of one body for tests of the repository: what a server is started with, and other versions of its languages.

They are made once a run, for all workers.
"""

from pathlib import Path

import pytest

from lingraft.export import add_to_bundle
from lingraft.export import export_bundle as export
from tests.fixtures import once
from tests.tiny import TINY, Pieces, Tiny, write_embeddings, write_task


@pytest.fixture(scope="session")
def started(tiny: Tiny) -> Path:
    def make(place: Path) -> None:
        export(tiny.primary, tiny.task, [tiny.embeddings["de"]], place / "started")

    return once.folder("started", make, TINY.read_bytes()) / "started"


@pytest.fixture(scope="session")
def german(started: Path, tiny: Tiny, pieces: Pieces) -> Path:
    def make(place: Path) -> None:
        add_to_bundle(
            started, write_embeddings(pieces.tokenizers["de"], tiny.primary, place / "de", seed=11), place / "bundle"
        )

    return once.folder("german", make, TINY.read_bytes()) / "bundle"


@pytest.fixture(scope="session")
def turkish(started: Path, tiny: Tiny) -> Path:
    def make(place: Path) -> None:
        add_to_bundle(started, tiny.embeddings["tr"], place / "bundle")

    return once.folder("turkish", make, TINY.read_bytes()) / "bundle"


@pytest.fixture(scope="session")
def foreign(tiny: Tiny, pieces: Pieces) -> Path:
    def make(place: Path) -> None:
        task = write_task(pieces.recipe, tiny.primary, place / "task", seed=77)
        export(tiny.primary, task, [tiny.embeddings["de"]], place / "bundle")

    return once.folder("foreign", make, TINY.read_bytes()) / "bundle"
