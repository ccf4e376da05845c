"""What the environment tells MLflow: its settings, and the address of a store, which must be there to be read.

MLflow would create a store at a mistyped address. It is not imported here, which takes seconds: such an address is
refused at once.
"""

import os
import re
import sqlite3
import urllib.error
import urllib.request
from importlib.metadata import entry_points
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from lingraft.errors import NoStoreError, TrackingError

TRACKING = "MLFLOW_TRACKING_URI"
REGISTRY = "MLFLOW_REGISTRY_URI"
"""Environment variable of MLflow: where the registry is, if not where runs are tracked."""
SETTINGS = {"MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
"""No bars for files between our lines, and no report on its use to MLflow's makers from a thread of its own."""
_DEFAULT = "sqlite:///mlflow.db"
"""What MLflow takes where the environment names nothing."""
_DATABASES = {"postgresql", "mysql", "mssql", "sqlite"}
_SCHEMES = {"http", "https", "file", "databricks", "databricks-uc", "uc", *_DATABASES}
_TABLE = "registered_models"
_SERVER_WAIT_S = 5.0


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


def without_password(address: str) -> str:
    """An address as messages and logs may show it."""
    return re.sub(r"(?<=://)([^:/@]*):[^/]*@", r"\1:***@", address)


def require_store() -> None:
    """Refuse an address at which MLflow would create a store, or that it does not understand.

    Servers are not asked.

    Raises:
        NoStoreError: the message names the address, and says how to set it.
    """
    for variable in (TRACKING, REGISTRY):
        if address := os.environ.get(variable):
            _require_named(variable, address)
    if not os.environ.get(TRACKING) and not Path(file_of(_DEFAULT)).is_file():
        raise NoStoreError(
            f"{TRACKING} is not set, and there is no mlflow.db in {Path.cwd()}, which would be MLflow's default. "
            + _remedy(TRACKING)
        )


def require_answer() -> None:
    """Refuse the registry's address if it is a server's and nobody answers there; any answer will do.

    Raises:
        TrackingError: nobody answers.
    """
    address = registry_address()
    if urlsplit(address).scheme not in {"http", "https"}:
        return
    try:
        urllib.request.urlopen(f"{address.rstrip('/')}/health", timeout=_SERVER_WAIT_S).close()
    except urllib.error.HTTPError:
        pass
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        if "CERTIFICATE" in str(reason):  # MLflow has settings of its own for certificates
            return
        variable = REGISTRY if os.environ.get(REGISTRY) else TRACKING
        raise TrackingError(
            f"nobody answers at {variable}={without_password(address)}: {reason}. See that the server is up. "
            + _remedy(variable)
        ) from error


def file_of(address: str) -> str:
    """The file that a SQLite address such as `sqlite:///mlflow.db` names; empty if it names none."""
    name = re.sub(r"^sqlite(\+\w+)?://(/|$)", "", address).partition("?")[0]
    return "" if name == ":memory:" or name.startswith("sqlite") else name


def _require_named(variable: str, address: str) -> None:
    scheme = urlsplit(address).scheme.partition("+")[0] if ":" in address else ""
    problem = None
    if address in {"databricks", "databricks-uc", "uc"}:
        return
    if scheme == "sqlite":
        problem = _lack_of_tables(file_of(address))
    elif scheme in {"", "file"}:
        folder = Path(unquote(urlsplit(address).path))
        problem = _lack_of_runs(folder)
    elif scheme not in _SCHEMES | {each.name for each in entry_points(group="mlflow.tracking_store")}:
        problem = f"MLflow has no scheme {scheme!r}, but {', '.join(sorted(_SCHEMES))}"
    if problem:
        raise NoStoreError(f"{variable} is {without_password(address)}, but {problem}. {_remedy(variable)}")


def _lack_of_runs(folder: Path) -> str | None:
    """What keeps a folder from being read as an MLflow store; None if nothing does."""
    if not folder.is_dir():
        return f"there is no folder {folder.absolute()}"
    if not any(folder.glob("*/meta.yaml")):
        return f"{folder.absolute()} holds no store of MLflow's"
    if os.environ.get("MLFLOW_ALLOW_FILE_STORE", "").lower() != "true":
        return "MLflow does not read folders any more; `mlflow migrate-filestore` makes a database of them"
    return None


def _lack_of_tables(name: str) -> str | None:
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
    kinds = "a server (http://HOST:PORT) or of a SQLite file (sqlite:///FOLDER/mlflow.db)"
    return f"Nothing was created. Set {variable} to the address of {kinds}, for example: export {variable}={example}"
