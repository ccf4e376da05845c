"""What the environment tells MLflow: its settings, and the address of a store, which must be there to be read.

MLflow would create a store at a mistyped address. It is not imported here, which takes seconds: such an address is
refused at once.
"""

import os
import sqlite3
import urllib.error
import urllib.request
from importlib.metadata import entry_points
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote, urlsplit

from lingraft.artifacts.addresses import sqlite_file, without_password
from lingraft.errors import NoStoreError, TrackingError

TRACKING = "MLFLOW_TRACKING_URI"
REGISTRY = "MLFLOW_REGISTRY_URI"
"""Environment variable of MLflow: where the registry is, if not where runs are tracked."""
SETTINGS = {"MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
"""No bars for files between our lines, and no report on its use to MLflow's makers from a thread of its own."""
_DEFAULT = "sqlite:///mlflow.db"
"""What MLflow takes where the environment names nothing."""
_DATABASE_SERVERS = {"postgresql", "mysql", "mssql"}
_SCHEMES = {"http", "https", "file", "databricks", "databricks-uc", "uc", "sqlite", *_DATABASE_SERVERS}
_TABLE = "registered_models"
_SERVER_WAIT_S = 5.0
_TIMED_DRIVERS = {"psycopg", "psycopg2", "pymysql", "mysqldb"}
"""Drivers of databases that take the argument `connect_timeout`."""


def set_up() -> None:
    """Give MLflow our settings, unless the environment has others; before it is imported."""
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)


def tracking_address() -> str:
    """Where runs are tracked: what the environment says, or what MLflow takes if it says nothing."""
    return os.environ.get(TRACKING) or _DEFAULT


def registry_address() -> str:
    """Where the registry is."""
    return os.environ.get(REGISTRY) or tracking_address()


def require_store() -> None:
    """Refuse an address at which MLflow would create a store, or that it does not understand.

    Servers of MLflow's are not asked. A database that cannot be reached is not refused: `require_answer` does that.

    Raises:
        NoStoreError: the message names the address, and says how to set it.
    """
    for variable in (TRACKING, REGISTRY):
        if address := os.environ.get(variable):
            _require_existing(variable, address)
    if not os.environ.get(TRACKING) and not Path(sqlite_file(_DEFAULT)).is_file():
        raise NoStoreError(
            f"{TRACKING} is not set, and there is no mlflow.db in {Path.cwd()}, which would be MLflow's default. "
            + _remedy(TRACKING)
        )


def require_reachable() -> None:
    """Refuse the registry's address if nobody answers there: of a server any answer will do.

    MLflow would try again for minutes.

    Raises:
        TrackingError: nobody answers.
    """
    address = registry_address()
    variable = REGISTRY if os.environ.get(REGISTRY) else TRACKING
    if reason := _why_unreachable(address):
        raise TrackingError(
            f"nobody answers at {variable}={without_password(address)}: {reason}. See that the server is up, and that "
            f"user and password are right. {_remedy(variable)}"
        )


def _why_unreachable(address: str) -> str | None:
    """Why a server or database does not answer; None if it does, or is a file."""
    if _scheme_of(address) in _DATABASE_SERVERS:
        return _probe_database(address).unreachable
    if _scheme_of(address) not in {"http", "https"}:
        return None
    try:
        urllib.request.urlopen(f"{address.rstrip('/')}/health", timeout=_SERVER_WAIT_S).close()
    except urllib.error.HTTPError:
        pass
    except (OSError, ValueError) as error:
        reason = str(getattr(error, "reason", error))
        return None if "CERTIFICATE" in reason else reason  # MLflow has settings of its own for certificates
    return None


def _require_existing(variable: str, address: str) -> None:
    scheme, problem = _scheme_of(address), None
    if address in {"databricks", "databricks-uc", "uc"}:
        return
    if scheme == "sqlite":
        problem = _sqlite_problem(sqlite_file(address))
    elif scheme in {"", "file"}:
        folder = Path(unquote(urlsplit(address).path))
        problem = _file_store_problem(folder)
    elif scheme in _DATABASE_SERVERS:
        problem = _probe_database(address).problem
    elif scheme not in _SCHEMES | {each.name for each in entry_points(group="mlflow.tracking_store")}:
        problem = f"MLflow has no scheme {scheme!r}, but {', '.join(sorted(_SCHEMES))}"
    if problem:
        raise NoStoreError(f"{variable} is {without_password(address)}, but {problem}. {_remedy(variable)}")


def _scheme_of(address: str) -> str:
    """Scheme of an address, without the driver of a database; empty for a path."""
    return urlsplit(address).scheme.partition("+")[0] if ":" in address else ""


class _DatabaseProbe(NamedTuple):
    """How an attempt to read a database server ended; all None if it holds MLflow's tables."""

    problem: str | None = None
    """Why it is not a store of MLflow's."""
    unreachable: str | None = None
    """Why it could not be asked."""


_STORES: set[str] = set()
"""Addresses of databases in which tables of MLflow's were found: they stay."""


def _probe_database(address: str) -> _DatabaseProbe:
    from sqlalchemy import NullPool, create_engine, inspect, make_url
    from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

    if address in _STORES:
        return _DatabaseProbe()
    try:
        url = make_url(address)
        waits = {"connect_timeout": int(_SERVER_WAIT_S)} if url.get_dialect().driver in _TIMED_DRIVERS else {}
        found = inspect(create_engine(url, poolclass=NullPool, connect_args=waits)).has_table(_TABLE)
    except (NoSuchModuleError, ImportError) as error:
        return _DatabaseProbe(
            problem=f"its driver is not installed ({error}). Install it, or name another in the scheme"
        )
    except (ArgumentError, ValueError):
        return _DatabaseProbe(
            problem="that is no address of a database, such as postgresql+psycopg://USER@HOST:PORT/DATABASE"
        )
    except SQLAlchemyError as error:
        return _DatabaseProbe(unreachable=" ".join(str(error.__cause__ or error).split()))
    if found:
        _STORES.add(address)
    return _DatabaseProbe(None if found else "the database there has no tables of MLflow's")


def _file_store_problem(folder: Path) -> str | None:
    """What keeps a folder from being read as an MLflow store; None if nothing does."""
    if not folder.is_dir():
        return f"there is no folder {folder.absolute()}"
    if not any(folder.glob("*/meta.yaml")):
        return f"{folder.absolute()} holds no store of MLflow's"
    if os.environ.get("MLFLOW_ALLOW_FILE_STORE", "").lower() != "true":
        return "MLflow does not read folders any more; `mlflow migrate-filestore` makes a database of them"
    return None


def _sqlite_problem(name: str) -> str | None:
    """What keeps a SQLite file from being an MLflow store; None if nothing does."""
    if not name:
        return "that names no file: three slashes come before a relative path, four before an absolute one"
    file = Path(name).absolute()
    if not file.is_file():
        return f"there is no file {file}"
    try:
        database = sqlite3.connect(f"file:{quote(str(file))}?mode=ro", uri=True)
        try:
            found = database.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (_TABLE,)).fetchone()
        finally:
            database.close()
    except sqlite3.OperationalError:  # it is locked, or may not be read, which MLflow explains
        return None
    except sqlite3.DatabaseError:
        return f"{file} is no SQLite database"
    return None if found else f"{file} is not a database of MLflow's"


def _remedy(variable: str) -> str:
    """How to set the address, with one that is there where one is near."""
    near = next((f"sqlite:///{file}" for file in sorted(Path().glob("*/mlflow.db"))), None)
    example = near or "http://localhost:5000"
    kinds = "a server (http://HOST:PORT), a SQLite file (sqlite:///FOLDER/mlflow.db) or a database"
    return f"Nothing was created. Set {variable} to the address of {kinds}, for example: export {variable}={example}"
