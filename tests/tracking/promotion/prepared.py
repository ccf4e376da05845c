"""Stores that hold a project already: each is made once a run, and a test goes on in a copy of its own."""

import contextlib
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path

import pytest
from mlflow.tracking._tracking_service import utils

from tests.fixtures import once
from tests.tracking.promotion.project import RECIPE, Project
from tests.tracking_stores import sqlite_store

_DATABASE, _WORK, _RUN = "mlflow.db", "work", "run"
_PLACES = {
    "experiments": "artifact_location",
    "runs": "artifact_uri",
    "logged_models": "artifact_location",
    "model_versions": "storage_location",
}
"""Columns, by table, that name a folder of the store."""


@contextlib.contextmanager
def copied(original: Path, folder: Path, made_at: Path | None = None) -> Iterator[None]:
    """Copy a folder with a store in it; the environment names the copy.

    Args:
        original: the folder.
        folder: of the copy, which is new.
        made_at: where the original was when things were registered in it, if elsewhere.
    """
    shutil.copytree(original, folder)
    utils._artifact_repos_cache.clear()  # MLflow remembers folders by ids, which all copies share
    places = (str(made_at or original), str(folder))
    with contextlib.closing(sqlite3.connect(folder / _DATABASE)) as connection, connection:
        for table, column in _PLACES.items():
            connection.execute(f"UPDATE {table} SET {column} = replace({column}, ?, ?)", places)
    with sqlite_store(folder):
        yield


def begins_with(prepared: "Prepared") -> pytest.MarkDecorator:
    return pytest.mark.parametrize("project", [prepared], indirect=True)


class Prepared(StrEnum):
    PRIMARY = "primary"
    """A primary, which is champion."""
    CHALLENGER = "challenger"
    """Version 1 of German besides, which finds 20% of the masked tokens."""
    CHAMPION = "champion"
    """Version 1 is champion."""
    SECOND = "second"
    """Version 2, which finds 40%, is champion after it."""
    FILLED = "filled"
    """A task of the primary besides, and a bundle of all three with an endpoint."""


def _primary(project: Project) -> None:
    number, _ = project.register_primary()
    assert project.promote(project.primary, number).moved


def _challenger(project: Project) -> None:
    project.register_embeddings(project.mark, 1.0, masked=0.2)


def _champion(project: Project) -> None:
    assert project.promote(project.embeddings, 1).moved


def _second(project: Project) -> None:
    assert project.promote(project.embeddings, project.register_embeddings(project.mark, 2.0, masked=0.4)).moved


_STEPS: dict[Prepared, Callable[[Project], None]] = {
    Prepared.PRIMARY: _primary,
    Prepared.CHALLENGER: _challenger,
    Prepared.CHAMPION: _champion,
    Prepared.SECOND: _second,
    Prepared.FILLED: Project.register_rest,
}


@contextlib.contextmanager
def opened(prepared: Prepared, folder: Path) -> Iterator[Project]:
    """A copy of a prepared project, in a new folder; the environment names its store."""
    original = once.folder("registry", _make) / prepared
    with copied(original, folder, made_at=original.with_name("made")):
        yield Project(RECIPE, folder / _WORK, (folder / _RUN).read_text())


def _make(place: Path) -> None:
    made = place / "made"
    made.mkdir()
    with sqlite_store(made):
        project = Project.begin(RECIPE.name, made / _WORK)
        (made / _RUN).write_text(project.run)
        for prepared, register in _STEPS.items():
            register(project)
            shutil.copytree(made, place / prepared)
