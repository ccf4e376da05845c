from pathlib import Path

import pytest

from lingraft.config.tasks import Task, TaskFile
from lingraft.tasks.examples import load_examples
from lingraft.tasks.kinds import kind_of

UNKNOWN = Task.model_construct(name="stars", kind="regression", dev=TaskFile(kind="file", path="dev.tsv"))
"""A task of a kind that the recipe would refuse, as if a kind were added there alone."""


def test_a_kind_that_nothing_learns_is_not_taken_for_classification() -> None:
    with pytest.raises(AssertionError, match="regression"):
        kind_of(UNKNOWN)


def test_examples_of_a_kind_that_nothing_reads_are_not_read_as_texts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dev.tsv").write_text("five stars\t5\none star\t1\n", encoding="utf-8")
    with pytest.raises(AssertionError, match="regression"):
        load_examples(UNKNOWN, "dev", "en", None)
