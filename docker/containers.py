"""Containers by buildah, without a daemon, run as Kubernetes runs them: by the image's user, with a read-only root."""

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lingraft.signals import stop_signals

ROOT = Path(__file__).parents[1]
STORAGE = ["--storage-driver", "vfs"]
IDLE = ["sleep", "infinity"]
UP_S = 30


def buildah(*arguments: object, quiet: bool = True) -> str:
    """Run buildah's command; returns what it said."""
    command = ["buildah", *STORAGE, *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, check=False, text=True, stdout=subprocess.PIPE if quiet else None)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: ended with {done.returncode}, and said why above")
    return (done.stdout or "").strip()


@contextlib.contextmanager
def container(image: str) -> Iterator[tuple[str, Path]]:
    """A container of an image, and the folder of its root; removed in the end, however that comes."""
    name = f"lingraft-check-{uuid.uuid4().hex}"  # ours, so that it is known also if buildah is interrupted
    try:
        buildah("from", "--pull-never", "--name", name, image)
        yield name, Path(buildah("mount", name))
    finally:
        with stop_signals():  # and in groups of their own, which Ctrl-C does not reach
            for command in ("umount", "rm"):
                removing = ["buildah", *STORAGE, command, name]
                subprocess.run(removing, check=False, stdout=subprocess.DEVNULL, process_group=0)


def config_of(image: str) -> dict[str, Any]:
    """How an image wants to be run, in Docker's words: OCI's have no health check."""
    return dict(json.loads(buildah("inspect", "--type", "image", image))["Docker"]["config"])


def health_command(config: Mapping[str, Any]) -> list[str]:
    """The command of an image's health check."""
    match (config.get("Healthcheck") or {}).get("Test"):
        case ["CMD", *command] if command:
            return command
        case ["CMD-SHELL", command]:
            return ["/bin/sh", "-c", command]
        case other:
            sys.exit(f"the image has no health check that can be run, but {other!r}: see its HEALTHCHECK")


def set_up(root: Path, mounts: Mapping[str, Path]) -> str:
    """Shell commands that mount what a container has, within a mount namespace of its own, and then start it."""
    here = str(root)
    lines = [["mount", "--bind", here, here]]
    lines += [["mount", "--bind", str(outside), f"{here}{inside}"] for inside, outside in mounts.items()]
    lines += [["mount", "--rbind", f"/{each}", f"{here}/{each}"] for each in ("proc", "dev")]
    lines += [["mount", "-t", "tmpfs", "tmpfs", f"{here}/tmp"], ["chmod", "1777", f"{here}/tmp"]]
    lines += [["mount", "-o", "remount,bind,ro", here]]
    return " && ".join(map(shlex.join, lines)) + ' && exec "$@"'


@dataclass(frozen=True)
class Running:
    """A container that runs."""

    config: Mapping[str, Any]
    root: Path
    process: subprocess.Popen[str]
    """Its first one."""

    def is_healthy(self) -> bool:
        """What its health check says: of so many tries as the image allows one has to succeed in time."""
        command, check = health_command(self.config), self.config["Healthcheck"]
        joined = ["nsenter", f"--target={self.process.pid}", "--mount", *entered(self.config, self.root, command)]
        return any(_ends_well(joined, check["Timeout"] / 1e9) for _ in range(check["Retries"]))

    def wait_until_up(self) -> None:
        """Wait until its first process has the container's root."""
        ends = time.monotonic() + UP_S
        while self.process.poll() is None and time.monotonic() < ends:
            if not Path(f"/proc/{self.process.pid}/root").samefile("/"):
                return
            time.sleep(0.1)
        sys.exit(f"a container did not start within {UP_S} s, and said why above")


def _ends_well(command: Sequence[str], limit_s: float) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False, timeout=limit_s).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def entered(config: Mapping[str, Any], root: Path, command: Sequence[str]) -> list[str]:
    """A command as an image wants it run: with its root, user and environment."""
    return ["chroot", f"--userspec={config['User']}", str(root), "/usr/bin/env", "-i", *config["Env"], *command]


@contextlib.contextmanager
def running(image: str, arguments: Sequence[str], mounts: Mapping[str, Path], idle: bool = False) -> Iterator[Running]:
    """Start a container with the image's entry point, environment and user, its root read-only but for /tmp.

    Args:
        image: its reference.
        arguments: for its entry point.
        mounts: folders of this machine by their places in the container.
        idle: whether it does nothing in place of its entry point.
    """
    with container(image) as (_, root):
        for inside in mounts:
            (root / inside.strip("/")).mkdir(exist_ok=True)
        config = config_of(image)
        command = entered(config, root, IDLE if idle else [*config["Entrypoint"], *arguments])
        script = set_up(root, mounts)
        isolated = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", script, "sh", *command]
        with group(isolated) as process:
            yield Running(config, root, process)


@contextlib.contextmanager
def group(command: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """Run a command in a process group of its own, of which nothing is left in the end."""
    with subprocess.Popen(command, text=True, process_group=0) as process:
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
