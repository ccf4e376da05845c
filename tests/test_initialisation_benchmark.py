"""The comparison of starts: run small, for real, and what its page says."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.initialisation.__main__ import main
from benchmarks.initialisation.arms import SYSTEMS
from benchmarks.initialisation.page import Costs, page
from lingraft.files import write_text
from tests.made_up import write

_REPOSITORY = Path(__file__).parents[1]
_JSON, _PAGE = "docs/benchmarks/initialisation.json", "docs/results/initialisation.md"


def files_under(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def test_it_runs_every_system_from_every_start_and_goes_on_where_it_was(tmp_path: Path) -> None:
    text, out = write(tmp_path / "text", ("en", "de"), count=120), tmp_path / "out"
    words = tmp_path / "words"
    words.mkdir()
    write_text(words / "freedict-eng-deu.index", "")
    given = ["--quick", "--data", str(text), "--out", str(out), "--languages", "de", "--seeds", "1"]
    main([*given, "--starts", "overlap", "pairs", "--systems", "BL_BASE", "MINIJOINT"])
    trained = {path: at for path, at in files_under(out / "adaptation").items() if path.name == "manifest.json"}
    main([*given, "--starts", "overlap", "text", "pairs"])
    assert trained.items() <= files_under(out / "adaptation").items()
    found = json.loads((out / "initialisation.json").read_text(encoding="utf-8"))
    records = {(record["start"], record["system"]): record for record in found["records"]}
    assert {*records} == {(start, system) for start in ("overlap", "text", "pairs") for system in map(str, SYSTEMS)}
    for (start, _), record in records.items():
        assert {*record["scores"]} == {"masked", "alignment", "help-topic"}
        assert {len(scores) for scores in record["scores"].values()} == {len(record["steps"])}
        assert (record["alignment_s"] > 0) == ("quality" in record) == (start != "overlap")
    resources = {start: records[start, "BL_BASE"]["quality"]["resource"] for start in ("text", "pairs")}
    assert resources == {"text": "text alone", "pairs": "parallel text"}
    assert str(tmp_path) not in json.dumps(found)
    assert (out / "initialisation.md").read_text(encoding="utf-8") == page(found)
