"""A test that was left out proves nothing, so a run with one in it fails."""

import pytest


def _left_out(config: pytest.Config) -> list[pytest.TestReport]:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    return [report for kind in ("skipped", "xfailed") for report in reporter.stats.get(kind, [])] if reporter else []


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.exitstatus == pytest.ExitCode.OK and _left_out(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for report in _left_out(config):
        terminalreporter.write_line(f"Left out, which counts as failed: {report.nodeid}", red=True)
