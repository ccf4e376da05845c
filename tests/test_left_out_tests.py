"""The plugin that fails a run with a test that was left out, tried on runs of pytest of their own."""

import pytest

PASSES = "from pytest import mark\n\ndef test_passes():\n    assert True\n"
PLUGIN = ("-p", "tests.fixtures.left_out", "-p", "no:cacheprovider")


def test_a_run_without_left_out_tests_passes(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(PASSES)
    assert pytester.runpytest_inprocess(*PLUGIN).ret == 0


@pytest.mark.parametrize("mark", ["skip(reason='later')", "xfail"])
def test_a_run_with_a_left_out_test_fails_and_names_it(pytester: pytest.Pytester, mark: str) -> None:
    _fails_and_names_it(pytester, mark)


def test_so_does_a_run_with_workers(pytester: pytest.Pytester) -> None:
    _fails_and_names_it(pytester, "xfail", "--numprocesses=1")


def _fails_and_names_it(pytester: pytest.Pytester, mark: str, *arguments: str) -> None:
    name = pytester.makepyfile(f"{PASSES}\n@mark.{mark}\ndef test_left_out():\n    assert False\n").name
    run = pytester.runpytest_inprocess(*PLUGIN, *arguments)
    assert run.ret == 1
    run.stdout.fnmatch_lines([f"*counts as failed: {name}::test_left_out*"])


def test_a_module_that_leaves_itself_out_fails_the_run(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(f"import pytest\npytest.{'skip'}('no', allow_module_level=True)\n{PASSES}")
    assert pytester.runpytest_inprocess(*PLUGIN).ret != 0
