"""Stores that hold a project already: each is made once a run, and a test goes on in a copy of its own."""

import contextlib
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from enum import StrEnum
from functools import partial
from pathlib import Path

import pytest
from mlflow.tracking._tracking_service import utils

from lingraft.artifacts.names import embeddings_name
from tests.fixtures import once
from tests.tracking.promotion.project import RECIPE, Project
from tests.tracking_stores import sqlite_store

_DATABASE, _STORE, _WORK, _RUN = "mlflow.db", "store", "work", "run"
_PLACES = {
    "experiments": "artifact_location",
    "runs": "artifact_uri",
    "logged_models": "artifact_location",
    "model_versions": "storage_location",
}
"""Columns, by table, that name a folder of the store."""


@contextlib.contextmanager
def copied(original: Path, folder: Path) -> Iterator[None]:
    """Copy a folder with a store in it to a new one; the environment names the copy."""
    shutil.copytree(original, folder)
    utils._artifact_repos_cache.clear()  # MLflow remembers folders by ids, which all copies share
    places = (str(original), str(folder))
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
    """A task of the primary besides, and a bundle of all three."""
    LEARNED = "learned"
    """The primary with one champion each of German, Greek and Turkish: `embeddings-11.0`, `12.0` and `13.0`."""


def _primary(project: Project) -> None:
    number, _ = project.register_primary()
    assert project.promote(project.primary, number).passed


def _challenger(project: Project) -> None:
    project.register_embeddings(project.mark, 1.0, masked=0.2)


def _champion(project: Project) -> None:
    assert project.promote(project.embeddings, 1).passed


def _second(project: Project) -> None:
    assert project.promote(project.embeddings, project.register_embeddings(project.mark, 2.0, masked=0.4)).passed


def _learned(project: Project) -> None:
    for value, language in enumerate(("de", "el", "tr"), start=11):
        number = project.register_embeddings(project.mark, float(value), masked=0.3, language=language)
        assert project.promote(embeddings_name(project.recipe, language), number).passed


_STEPS: dict[Prepared, tuple[Prepared, Callable[[Project], None]]] = {
    Prepared.CHALLENGER: (Prepared.PRIMARY, _challenger),
    Prepared.CHAMPION: (Prepared.CHALLENGER, _champion),
    Prepared.SECOND: (Prepared.CHAMPION, _second),
    Prepared.FILLED: (Prepared.SECOND, Project.register_rest),
    Prepared.LEARNED: (Prepared.PRIMARY, _learned),
}
"""What each goes on from, and what comes next."""


@contextlib.contextmanager
def opened(prepared: Prepared, folder: Path) -> Iterator[Project]:
    """A copy of a prepared project, in a new folder; the environment names its store."""
    with copied(once.folder(f"registry-{prepared}", partial(_make, prepared)) / _STORE, folder):
        yield Project(RECIPE, folder / _WORK, (folder / _RUN).read_text())


def _make(prepared: Prepared, place: Path) -> None:
    store = place / _STORE
    if prepared is Prepared.PRIMARY:
        store.mkdir()
        with sqlite_store(store):
            project = Project.begin(RECIPE.name, store / _WORK)
            (store / _RUN).write_text(project.run)
            _primary(project)
        return
    before, register = _STEPS[prepared]
    with opened(before, store) as project:
        register(project)
