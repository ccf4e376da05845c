"""Commands that read a registry: what is not there is refused, and nothing is created."""

import re
import socket
import sqlite3
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import NullPool, create_engine, inspect
from typer.testing import CliRunner

from lingraft import tracking
from lingraft.artifacts.addresses import without_password
from lingraft.cli import app
from lingraft.config.recipe import Recipe
from lingraft.errors import LingraftError, NoStoreError, TrackingError
from lingraft.tracking.environment import require_store
from tests.postgresql import started
from tests.tracking_stores import quiet, sqlite_store

RECIPE = Recipe.load(Path(__file__).parents[1] / "tiny.toml")
READING = (
    ["registry", "show"],
    ["registry", "pull", "tiny-primary", "--out", "made"],
    ["registry", "promote", "tiny-primary", "1"],
)


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_a_command_without_an_address_creates_nothing_and_says_how_to_set_it(empty: Path) -> None:
    for command in READING:
        with pytest.raises(
            NoStoreError, match=r"MLFLOW_TRACKING_URI is not set.*export MLFLOW_TRACKING_URI="
        ) as caught:
            CliRunner().invoke(app, command, catch_exceptions=False)
        assert str(empty) in str(caught.value)
        assert [*empty.iterdir()] == []


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("sqlite:///none/mlflow.db", ["sqlite:///none/mlflow.db", "there is no file", "none/mlflow.db"]),
        ("sqlite://mlflow.db", ["names no file", "three slashes"]),
        ("sqlite:///optuna.db", ["optuna.db is not a database of MLflow's"]),
        ("sqlite:///text.db", ["text.db is no SQLite database"]),
        ("none/mlruns", ["MLflow does not read folders any more"]),
        ("localhost:5000", ["no scheme 'localhost'"]),
        ("htp://me:secret@localhost", ["no scheme 'htp'", "http, https", "htp://me:***@localhost"]),
        ("postgresql+absent://me:secret@localhost/mlflow", ["postgresql+absent://me:***@localhost", "driver"]),
        ("postgresql+psycopg://me:secret@localhost:many/mlflow", ["no address of a database"]),
    ],
)
def test_a_mistyped_address_is_named_and_nothing_is_created(
    address: str, words: list[str], empty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sqlite3.connect("optuna.db").execute("CREATE TABLE studies (name TEXT)").connection.close()
    Path("text.db").write_text("no database at all, but of some length" * 30)
    before = {path: path.stat().st_mtime_ns for path in empty.iterdir()}
    for variable in ("MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI"):
        monkeypatch.setenv(variable, address)
        with pytest.raises(NoStoreError) as caught:
            CliRunner().invoke(app, ["registry", "show"], catch_exceptions=False)
        monkeypatch.delenv(variable)
        assert [word for word in (variable, *words, f"export {variable}=") if word not in str(caught.value)] == []
        assert "secret" not in str(caught.value)
    assert {path: path.stat().st_mtime_ns for path in empty.iterdir()} == before


def test_a_database_that_is_near_is_proposed(empty: Path) -> None:
    with pytest.raises(NoStoreError):
        tracking.tags_of("tiny-primary")
    assert [*empty.iterdir()] == []
    (empty / ".demo").mkdir()
    (empty / ".demo" / "mlflow.db").write_bytes(b"")
    with pytest.raises(NoStoreError, match=r"export MLFLOW_TRACKING_URI=sqlite:///\.demo/mlflow\.db$"):
        require_store()


@quiet
def test_what_is_there_is_read_and_named_and_nothing_is_created_beside(empty: Path) -> None:
    (empty / "store").mkdir()
    with sqlite_store(empty / "store") as address:
        done = CliRunner().invoke(app, ["registry", "show", "--project", "tiny"])
    assert f"registry: {address}\n" in done.stderr
    assert "nothing is registered here yet" in str(done.exception)
    assert [path.name for path in empty.iterdir()] == ["store"]
    assert [path.name for path in (empty / "store").iterdir()] == ["mlflow.db"]


@pytest.mark.parametrize("scheme", ["http://", "postgresql+psycopg://me:secret@"])
@pytest.mark.parametrize("command", [READING[0], READING[2]], ids=" ".join)
def test_a_server_that_nobody_has_started_is_refused_without_waiting(
    command: list[str], scheme: str, empty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as taken:  # bound, so that nobody else listens there meanwhile
        taken.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{taken.getsockname()[1]}/mlflow"
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"{scheme}{place}")
        monkeypatch.setattr("time.sleep", lambda _: pytest.fail("it waits"))
        shown = re.escape(scheme.replace("secret", "***") + place)
        with pytest.raises(TrackingError, match=rf"nobody answers at MLFLOW_TRACKING_URI={shown}: .*refused.* export"):
            CliRunner().invoke(app, command, catch_exceptions=False)
    assert [*empty.iterdir()] == []


@quiet
@pytest.mark.integration
def test_reading_a_database_server_creates_no_tables(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with started() as server:
        address = server.address("mlflow")
        monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
        engine = create_engine(address, poolclass=NullPool)
        for read in (partial(CliRunner().invoke, app, ["registry", "show"], catch_exceptions=False), require_store):
            with pytest.raises(NoStoreError, match=r"the database there has no tables of MLflow's"):
                read()
            assert inspect(engine).get_table_names() == []
        tracking.open_run(RECIPE, "language")
        with pytest.raises(LingraftError, match="nothing is registered here yet"):
            CliRunner().invoke(app, ["registry", "show"], catch_exceptions=False)


def test_passwords_are_not_shown() -> None:
    assert without_password("postgresql://me:se@cret@host/db") == "postgresql://me:***@host/db"
    assert (
        without_password("postgresql://host/db?user=me&password=secret&x=1")
        == "postgresql://host/db?user=me&password=***&x=1"
    )
    assert without_password("http://host:5000/path@2") == "http://host:5000/path@2"
