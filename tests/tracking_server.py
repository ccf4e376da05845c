"""MLflow's server with the command of our manifests, started once a run; each test there has a project of its own.

`python -m tests.tracking_server FOLDER` is the process that holds the server.
"""

import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from tests.fixtures import once
from tests.tracking_stores import new_database

_ROOT = Path(__file__).parents[1]
_OVERLAY = "local"
"""Overlays start the same server, but for the number of workers."""


class Server(NamedTuple):
    """A server that answers until the run ends."""

    port: int
    artifacts: Path
    """Folder in which it keeps them."""

    @property
    def uri(self) -> str:
        """What MLFLOW_TRACKING_URI says of it."""
        return f"http://localhost:{self.port}"


def shared() -> Server:
    """The one of this run, on a SQLite file."""
    port, folder = once.server("mlflow", _start).splitlines()
    return Server(int(port), Path(folder) / "artifacts")


def _start(folder: Path) -> tuple[subprocess.Popen[bytes], str]:
    new_database(folder / "mlflow.db")
    with (folder / "holder.log").open("wb") as log:
        holder = subprocess.Popen(
            [sys.executable, "-m", __name__, str(folder)],
            cwd=_ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            process_group=0,
        )
    assert holder.stdout
    with holder.stdout:
        port = holder.stdout.readline().decode().strip()
    assert port, (folder / "holder.log").read_text()
    return holder, f"{port}\n{folder}"


def _hold(folder: Path) -> None:
    """Start the server, say on which port it answers, and stay until killed with it: both are in one group."""
    from tests.manifests.conftest import built, pod_of
    from tests.manifests.mlflow_server import running

    documents = built(_OVERLAY)
    pods = {f"{one['kind']}/{one['metadata']['name']}": pod for one in documents if (pod := pod_of(one))}
    with running(documents, pods, f"sqlite:///{folder / 'mlflow.db'}", folder) as port:
        print(port, flush=True)
        signal.pause()


if __name__ == "__main__":
    _hold(Path(sys.argv[1]))
