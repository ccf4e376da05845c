"""Asking a training as Prometheus does: over HTTP."""

import socket
import urllib.request

import pytest

from lingraft.training import metrics


def port_for_metrics(monkeypatch: pytest.MonkeyPatch) -> int:
    """A free port, at which what trains in this process is to answer."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = int(probe.getsockname()[1])
    monkeypatch.setenv(metrics.PORT, str(free))
    return free


def asked(port: int) -> dict[str, float]:
    """Values by names with labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}
