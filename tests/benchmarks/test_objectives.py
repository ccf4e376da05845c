"""The comparison of objectives: run small, for real."""

from pathlib import Path

import pytest

from benchmarks.objectives import ALIGNED, OBJECTIVES, main, page
from benchmarks.pages import RECORD_SUFFIX, read_record
from tests.made_up import write


def test_every_objective_spends_the_same_and_is_searched_with(tmp_path: Path) -> None:
    text, out = write(tmp_path / "text", ("en", "de"), count=60), tmp_path / "out"
    given = ["--quick", "--data", str(text), "--out", str(out), "--languages", "de", "--seeds", "1", "--updates", "40"]
    main(given)
    found = read_record(out / f"objectives{RECORD_SUFFIX}")
    by_objective = {record["objective"]: record for record in found["records"]}
    assert by_objective.keys() == {ALIGNED, *OBJECTIVES}
    budget = by_objective["masked tokens"]["flops"]
    for objective in OBJECTIVES:
        record = by_objective[objective]
        assert record["flops"] == pytest.approx(budget, rel=0.5 / record["updates"])
        assert 0 <= record["accuracy_at_1"] <= 1
    assert (out / "objectives.md").read_text(encoding="utf-8") == page(found)
    assert str(tmp_path) not in page(found)
