"""A PostgreSQL server of a test's own: a new cluster in a temporary folder, that listens on a socket in it alone."""

import contextlib
import os
import secrets
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

AWKWARD = "%40%d@'\""
"""Means something in addresses, in .ini files, or to shells."""


@dataclass(frozen=True)
class PostgreSql:
    """A running server with an empty database, `mlflow`."""

    run: Callable[..., None]
    """One of its commands, with its arguments."""
    folder: Path
    password: str

    def start(self) -> None:
        """Begin to listen, on what was there before."""
        self.run("pg_ctl", "start", "--wait", "-D", self.folder / "data", "--log", self.folder / "log")

    def stop(self, mode: str = "fast") -> None:
        """End connections and go; `immediate` is as if it was killed."""
        self.run("pg_ctl", "stop", "--wait", "-D", self.folder / "data", "--mode", mode)

    def address(self, database: str) -> str:
        """Of a database, in the form of the Secret."""
        return f"postgresql+psycopg://mlflow:{quote(self.password, safe='')}@/{database}?host={quote(str(self.folder))}"


@contextlib.contextmanager
def started() -> Iterator[PostgreSql]:
    """A server, until the end."""
    tools, password = _tools(), AWKWARD + secrets.token_hex(24)
    # Not pytest's folder: PostgreSQL refuses to run as root, and another user cannot enter a folder of root's.
    owner: dict[str, Any] = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}
    with tempfile.TemporaryDirectory(prefix="lingraft-") as name:
        folder, data = Path(name), Path(name) / "data"

        def run(command: str, *arguments: object) -> None:
            environment = os.environ | {"PGPASSWORD": password}
            subprocess.run([tools / command, *map(str, arguments)], check=True, cwd=folder, env=environment, **owner)

        (folder / "password").write_text(password)
        if owner:
            subprocess.run(["chown", "--recursive", "postgres:", folder], check=True)
        run("initdb", "-D", data, "-U", "mlflow", f"--pwfile={folder / 'password'}", "-A", "scram-sha-256", "--no-sync")
        with (data / "postgresql.conf").open("a") as settings:
            settings.write(f"listen_addresses = ''\nunix_socket_directories = '{folder}'\nfsync = off\n")
        server = PostgreSql(run, folder, password)
        server.start()
        try:
            run("createdb", "-h", folder, "-U", "mlflow", "mlflow")
            yield server
        finally:
            server.stop()


def _tools() -> Path:
    """The folder of the newest PostgreSQL's own commands; Debian keeps them off the PATH, one folder a version."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    assert found, "no PostgreSQL server in /usr/lib/postgresql: run `make system-deps`"
    return found[-1].parent
