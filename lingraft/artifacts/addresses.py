"""Addresses of databases: the file that a SQLite address names, and an address as messages may show it."""

import re


def sqlite_file(address: str) -> str:
    """Return the file of a SQLite address such as `sqlite:///mlflow.db`; empty if it names none."""
    name = re.sub(r"^sqlite(\+\w+)?://(/|$)", "", address).partition("?")[0]
    return "" if name == ":memory:" or name.startswith("sqlite") else name


def without_password(address: str) -> str:
    """Return the address with asterisks in place of its password, for messages and logs."""
    hidden = re.sub(r"(?<=://)([^:/@]*):[^/]*@", r"\1:***@", address)
    return re.sub(r"(?<=[?&]password=)[^&]*", "***", hidden)
