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
from urllib.parse import quote, urlsplit

from lingraft.artifacts.addresses import sqlite_address, sqlite_file, without_password
from lingraft.errors import NoStoreError, TrackingError

TRACKING = "MLFLOW_TRACKING_URI"
REGISTRY = "MLFLOW_REGISTRY_URI"
"""Environment variable of MLflow: address of the registry, if it differs from that of the runs."""
SETTINGS = {
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
}
"""No progress bars between our lines, no reports of usage to MLflow's makers, and two minutes of retries, not four."""
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


def registry_address() -> str:
    """Return the address of the registry: by default that of the runs' store, or MLflow's own default."""
    return os.environ.get(REGISTRY) or os.environ.get(TRACKING) or _DEFAULT


def require_store() -> None:
    """Refuse an address at which MLflow would create a store, or that MLflow does not understand.

    No request goes to an MLflow server. A database that cannot be reached passes: `require_reachable` refuses it.
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
    """Refuse the registry's address if nothing answers there, since MLflow would retry for minutes."""
    address = registry_address()
    variable = REGISTRY if os.environ.get(REGISTRY) else TRACKING
    scheme = _scheme_of(address)
    reason = _probe_database(address)[1] if scheme in _DATABASE_SERVERS else None
    if scheme in {"http", "https"}:
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
        return "MLflow does not read folders any more; `mlflow migrate-filestore` makes a database of them"
    if scheme in _DATABASE_SERVERS:
        return _probe_database(address)[0]
    if scheme not in _SCHEMES | {each.name for each in entry_points(group="mlflow.tracking_store")}:
        return f"MLflow has no scheme {scheme!r}, but {', '.join(sorted(_SCHEMES))}"
    return None


def _scheme_of(address: str) -> str:
    """Return the scheme of an address without a database's driver; empty for a path."""
    return urlsplit(address).scheme.partition("+")[0] if ":" in address else ""


_STORES: set[str] = set()
"""Addresses of databases that hold MLflow's tables; they are not looked at again."""


def _probe_database(address: str) -> tuple[str | None, str | None]:
    """Return why a database is not an MLflow store, and why it does not answer; None where that is not so."""
    from sqlalchemy import NullPool, create_engine, inspect, make_url
    from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

    if address in _STORES:
        return None, None
    try:
        url = make_url(address)
        waits = {"connect_timeout": int(_SERVER_WAIT_S)} if url.get_dialect().driver in _TIMED_DRIVERS else {}
        found = inspect(create_engine(url, poolclass=NullPool, connect_args=waits)).has_table(_TABLE)
    except (NoSuchModuleError, ImportError) as error:
        return f"its driver is not installed ({error}). Install it, or name another in the scheme", None
    except (ArgumentError, ValueError):
        return "that is no address of a database, such as postgresql+psycopg://USER@HOST:PORT/DATABASE", None
    except SQLAlchemyError as error:
        return None, " ".join(str(error.__cause__ or error).split())
    if not found:
        return "the database there has no tables of MLflow's", None
    _STORES.add(address)
    return None, None


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
