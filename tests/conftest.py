"""What tests of all folders share."""

import os
import signal
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING
from unittest import mock

import pytest

from tests.fixtures import once

if TYPE_CHECKING:
    from tests.workshop import Workshop

pytest_plugins = ["pytester", "tests.fixtures.left_out"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--device", default="cpu", help="device that tests/training/test_devices.py asks, such as cuda")


def pytest_configure(config: pytest.Config) -> None:
    """Give the run a folder for what is made once; workers of pytest-xdist inherit its name."""
    if not hasattr(config, "workerinput"):
        root = once.begin()
        config.add_cleanup(lambda: once.end(root))


@pytest.fixture(scope="session")
def workshop() -> "Workshop":
    """A finished tiny project; imported here, so that tests without models do not wait for PyTorch."""
    from tests.workshop import Workshop

    return Workshop.shared()


@pytest.fixture(autouse=True)
def _own_threads() -> Iterator[None]:
    """Threads that a test sets hold for the process, and their number decides last bits: the next test has its own."""
    yield
    if (torch := sys.modules.get("torch")) and (threads := os.environ.get("OMP_NUM_THREADS")):
        torch.set_num_threads(int(threads))


@pytest.fixture(scope="session", autouse=True)
def _heed_ctrl_c() -> Iterator[None]:
    """Ctrl-C is tested too where a shell has started the tests in the background, and has them ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def _own_environment() -> Iterator[None]:
    """Local pipelines set variables for their steps, which are not for the next test."""
    with mock.patch.dict(os.environ):
        yield
