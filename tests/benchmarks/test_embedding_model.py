"""The benchmark of embedding models: its parts for real at a tiny shape, and what its page says of them."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.embedding_model import __main__ as program
from benchmarks.embedding_model.speed import MIXED, ONE, SINGLE
from benchmarks.pages import RECORD_SUFFIX, read_record


def measured(parts: Sequence[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, Any], str]:
    """Return what is found in parts, and the page."""
    page = folder / "embedding-models.md"
    given = ["--out", str(folder / "out"), "--page", str(page), "--vectors", "300", "--queries", "20"]
    given += ["--languages", "2", "--vocabulary", "400", "--layers", "2", "--width", "32", "--attention-heads", "2"]
    given += ["--block-tokens", "64", "--rounds", "3", "--batches", "2"]
    monkeypatch.setattr(sys, "argv", ["benchmarks.embedding_model", *given, "--parts", *parts])
    program.main()
    found: dict[str, Any] = read_record(page.with_suffix(RECORD_SUFFIX))["parts"]
    assert set(found) == set(parts)
    return found, page.read_text(encoding="utf-8")


@pytest.mark.integration
def test_an_added_language_finds_its_passages_in_an_index_that_stays_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, page = measured(["adding"], tmp_path, monkeypatch)
    before, after = found["adding"]["sha256"]
    assert before == after
    assert found["adding"]["found_exactly"] == found["adding"]["found"] == 1.0
    assert found["adding"]["table_bytes"] == 400 * 32 * 4
    assert "The index's file is the same after 20 queries" in page
    assert "| vectors embedded | 0 | 300 |" in page


@pytest.mark.integration
@pytest.mark.nightly
def test_all_sides_compute_the_same_vectors_and_are_not_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, page = measured(["speed", "memory"], tmp_path, monkeypatch)
    assert measured(["speed", "memory"], tmp_path, monkeypatch) == (found, page)
    int8, *others = sorted(found["speed"]["difference"].values(), reverse=True)
    assert max(others) < 1e-5 < int8
    assert set(found["speed"]["cases"]) == {ONE, MIXED, SINGLE}
    assert len(found["memory"]["separate"]) == len(found["memory"]["shared"]) == 3
    assert found["memory"]["separate"][2] > found["memory"]["separate"][1]
