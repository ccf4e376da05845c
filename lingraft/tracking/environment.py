"""MLflow's environment variables: default settings, and a check that the store at the given address exists.

MLflow would create a store at a mistyped address. This module does not import MLflow, which takes seconds, so it
refuses such an address at once.
"""

import os
import shlex
import sqlite3
import urllib.error
import urllib.request
from contextlib import closing
from importlib.metadata import entry_points
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote, urlsplit

from lingraft.artifacts.addresses import sqlite_address, sqlite_file, without_password
from lingraft.errors import NoStoreError, TrackingError

TRACKING = "MLFLOW_TRACKING_URI"
REGISTRY = "MLFLOW_REGISTRY_URI"
"""Environment variable of MLflow: address of the registry, if it differs from that of the runs."""
SETTINGS = {"MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
"""Settings without progress bars between our lines, and without the thread that reports usage to MLflow's makers."""
LOCAL_STORE = "mlflow.db"
"""SQLite file of a local run's store, in the folder of its results."""
_DEFAULT = "sqlite:///mlflow.db"
"""MLflow's own default address."""
_DATABASE_SERVERS = {"postgresql", "mysql", "mssql"}
_DATABRICKS = {"databricks", "databricks-uc", "uc"}
_SCHEMES = {"http", "https", "file", "sqlite", *_DATABRICKS, *_DATABASE_SERVERS}
_TABLE = "registered_models"
_SERVER_WAIT_S = 5.0
_TIMED_DRIVERS = {"psycopg", "psycopg2", "pymysql", "mysqldb"}
"""Drivers of databases that take the argument `connect_timeout`."""


def set_up() -> None:
    """Set our defaults for MLflow, unless the environment has others; call it before MLflow is imported."""
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)


def tracking_address() -> str:
    """Return the address of the runs' store: that of the environment, else MLflow's default."""
    return os.environ.get(TRACKING) or _DEFAULT


def registry_address() -> str:
    """Return the address of the registry."""
    return os.environ.get(REGISTRY) or tracking_address()


def require_store() -> None:
    """Refuse an address at which MLflow would create a store, or that MLflow does not understand.

    No request goes to an MLflow server. A database that cannot be reached passes: `require_reachable` refuses it.

    Raises:
        NoStoreError: the message names the address, and says how to set it.
    """
    for variable in (TRACKING, REGISTRY):
        address = os.environ.get(variable)
        if address and (problem := _store_problem(address)):
            raise NoStoreError(f"{variable} is {without_password(address)}, but {problem}. {_remedy(variable)}")
    if not os.environ.get(TRACKING) and not Path(sqlite_file(_DEFAULT)).is_file():
        raise NoStoreError(
            f"{TRACKING} is not set, and there is no mlflow.db in {Path.cwd()}, which would be MLflow's default. "
            + _remedy(TRACKING)
        )


def require_reachable() -> None:
    """Refuse the registry's address if nothing answers there; any HTTP answer of a server counts.

    MLflow would retry for minutes.

    Raises:
        TrackingError: nobody answers.
    """
    address = registry_address()
    variable = REGISTRY if os.environ.get(REGISTRY) else TRACKING
    reason = None
    if _scheme_of(address) in _DATABASE_SERVERS:
        reason = _probe_database(address).unreachable
    elif _scheme_of(address) in {"http", "https"}:
        reason = _why_server_unreachable(address)
    if reason:
        raise TrackingError(
            f"nobody answers at {variable}={without_password(address)}: {reason}. See that the server is up, and that "
            f"user and password are right. {_remedy(variable)}"
        )


def _why_server_unreachable(address: str) -> str | None:
    try:
        urllib.request.urlopen(f"{address.rstrip('/')}/health", timeout=_SERVER_WAIT_S).close()
    except urllib.error.HTTPError:
        pass
    except (OSError, ValueError) as error:
        reason = str(getattr(error, "reason", error))
        return None if "CERTIFICATE" in reason else reason  # MLflow has settings of its own for certificates
    return None


def _store_problem(address: str) -> str | None:
    """Return why there is no MLflow store at an address; None if there may be one."""
    scheme = _scheme_of(address)
    if address in _DATABRICKS:
        return None
    if scheme == "sqlite":
        return _sqlite_problem(sqlite_file(address))
    if scheme in {"", "file"}:
        return _folder_problem(Path(unquote(urlsplit(address).path)).absolute())
    if scheme in _DATABASE_SERVERS:
        return _probe_database(address).problem
    if scheme not in _SCHEMES | {each.name for each in entry_points(group="mlflow.tracking_store")}:
        return f"MLflow has no scheme {scheme!r}, but {', '.join(sorted(_SCHEMES))}"
    return None


def _scheme_of(address: str) -> str:
    """Return the scheme of an address without a database's driver; empty for a path."""
    return urlsplit(address).scheme.partition("+")[0] if ":" in address else ""


class _DatabaseProbe(NamedTuple):
    """Result of an attempt to read a database server; both None if it holds MLflow's tables."""

    problem: str | None = None
    """Reason why the database is not an MLflow store."""
    unreachable: str | None = None
    """Reason why the database does not answer."""


_STORES: set[str] = set()
"""Addresses of databases that hold MLflow's tables; they are not looked at again."""


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
        return _DatabaseProbe(f"its driver is not installed ({error}). Install it, or name another in the scheme")
    except (ArgumentError, ValueError):
        return _DatabaseProbe("that is no address of a database, such as postgresql+psycopg://USER@HOST:PORT/DATABASE")
    except SQLAlchemyError as error:
        return _DatabaseProbe(unreachable=" ".join(str(error.__cause__ or error).split()))
    if not found:
        return _DatabaseProbe("the database there has no tables of MLflow's")
    _STORES.add(address)
    return _DatabaseProbe()


def _folder_problem(folder: Path) -> str | None:
    if not folder.is_dir():
        return f"there is no folder {folder}"
    if not any(folder.glob("*/meta.yaml")):
        return f"{folder} holds no store of MLflow's"
    if os.environ.get("MLFLOW_ALLOW_FILE_STORE", "").lower() != "true":
        return "MLflow does not read folders any more; `mlflow migrate-filestore` makes a database of them"
    return None


def _sqlite_problem(name: str) -> str | None:
    if not name:
        return "that names no file: three slashes come before a relative path, four before an absolute one"
    file = Path(name).absolute()
    if not file.is_file():
        return f"there is no file {file}"
    try:
        with closing(sqlite3.connect(f"file:{quote(str(file))}?mode=ro", uri=True)) as database:
            found = database.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (_TABLE,)).fetchone()
    except sqlite3.OperationalError:  # it is locked, or may not be read, which MLflow explains
        return None
    except sqlite3.DatabaseError:
        return f"{file} is no SQLite database"
    return None if found else f"{file} is not a database of MLflow's"


def _remedy(variable: str) -> str:
    """Return advice on setting the address; the example is a store in a subfolder if there is one."""
    near = next((sqlite_address(file) for file in sorted(Path().glob("*/mlflow.db"))), None)
    example = shlex.quote(near or "http://localhost:5000")
    kinds = "a server (http://HOST:PORT), a SQLite file (sqlite:///FOLDER/mlflow.db) or a database"
    return f"Nothing was created. Set {variable} to the address of {kinds}, for example: export {variable}={example}"
