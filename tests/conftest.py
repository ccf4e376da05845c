"""A test that was left out proves nothing, so a run with one in it fails. Also what tests of all folders share."""

import functools
import inspect
import os
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING
from unittest import mock

import pytest

if TYPE_CHECKING:
    from tests.workshop import Workshop


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> "Workshop":
    """A finished tiny project; imported here, so that tests without models do not wait for PyTorch."""
    from tests.workshop import Workshop

    return Workshop.make(tmp_path_factory.mktemp("workshop"))


@pytest.fixture(scope="session", autouse=True)
def _stacks_without_sources() -> Iterator[None]:
    """KFP asks for the stack, sources included, at each setting of a step: minutes for a pipeline under xdist."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inspect, "stack", functools.partial(inspect.stack, 0))
        yield


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


def _left_out(config: pytest.Config) -> list[pytest.TestReport]:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    return [report for kind in ("skipped", "xfailed") for report in reporter.stats.get(kind, [])] if reporter else []


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.exitstatus == pytest.ExitCode.OK and _left_out(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for report in _left_out(config):
        terminalreporter.write_line(f"Left out, which counts as failed: {report.nodeid}", red=True)
