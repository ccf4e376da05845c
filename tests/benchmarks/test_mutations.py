"""The mutations that the fast tests are held against fit the library as it is."""

import shutil
from pathlib import Path

import pytest

from benchmarks import mutations
from benchmarks.mutations import MUTATIONS, ROOT, Mutation
from lingraft.errors import LingraftError


def test_every_mutation_changes_one_passage_of_the_library_and_names_tests_that_there_are(tmp_path: Path) -> None:
    for mutation in MUTATIONS:
        copy = tmp_path / mutation.file
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / mutation.file, copy)
        mutation.apply(tmp_path)
        assert copy.read_text() != (ROOT / mutation.file).read_text()
        assert [test for test in mutation.tests if not (ROOT / "tests" / test).exists()] == []


def test_a_passage_that_is_gone_is_named(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text("pass\n")
    mutation = Mutation("a mutation", "module.py", "return 1", "return 2", ())
    with pytest.raises(LingraftError, match=r"'a mutation': .* 0 times in module\.py"):
        mutation.apply(tmp_path)


def test_a_mutation_is_caught_by_the_first_test_that_fails_or_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a tree of one module and one test, so that real pytest runs on the copy."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # of which none is needed, and some take seconds
    (tmp_path / "tests").mkdir()
    (tmp_path / "module.py").write_text("def double(x):\n    return 2 * x  # twice\n")
    (tmp_path / "tests" / "test_module.py").write_text(
        "from module import double\n\n\ndef test_double():\n    assert double(2) == 4\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    integration\n    nightly\n")
    wrong = Mutation("three times", "module.py", "2 * x", "3 * x", ("test_module.py",))
    harmless = Mutation("another comment", "module.py", "# twice", "# two times", ("test_module.py",))
    assert mutations.run(wrong, tmp_path, whole=False).caught_by == "tests/test_module.py::test_double"
    assert mutations.run(harmless, tmp_path, whole=False).caught_by is None
    assert (tmp_path / "module.py").read_text() == "def double(x):\n    return 2 * x  # twice\n"
