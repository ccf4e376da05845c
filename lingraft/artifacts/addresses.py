"""Addresses of databases: of a SQLite file, and as messages may show them.

MLflow and Optuna give an address to SQLAlchemy, which ends a path at a question mark, and decodes %20 and the like.
"""

import re
import sys
from pathlib import Path
from urllib.parse import quote, unquote


def sqlite_address(file: Path) -> str:
    """Return the address of a SQLite file, for MLflow and Optuna: `sqlite:///` and the path, except after odd names.

    Optuna formats an address by `str.format`, so braces are encoded too. MLflow makes the folder of any address that
    begins with `sqlite:///`, without decoding it: where that would be another folder, the address names the driver.
    """
    encoded = re.sub("[%?{}]", lambda found: quote(found[0]), str(file))
    return f"{'sqlite' if encoded == str(file) else 'sqlite+pysqlite'}:///{encoded}"


def sqlite_file(address: str) -> str:
    """Return the file of a SQLite address such as `sqlite:///mlflow.db`; empty if it names none."""
    found = re.match(r"sqlite(?:\+\w+)?:///([^?]*)", address)
    file = unquote(found[1]) if found else ""
    return "" if file == ":memory:" else file


def without_password(address: str) -> str:
    """Return the address with asterisks in place of its password, for messages and logs."""
    hidden = re.sub(r"(?<=://)([^:/@]*):[^/]*@", r"\1:***@", address)
    return re.sub(r"(?<=[?&]password=)[^&]*", "***", hidden)


if __name__ == "__main__":
    print(sqlite_address(Path(sys.argv[1]).absolute()))
