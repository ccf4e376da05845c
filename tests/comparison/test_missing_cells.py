"""What fails in a comparison is a hole with its reason, while the rest is there."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.failures import FAILED_FILE
from lingraft.comparison.plan import plan_comparison
from lingraft.comparison.records import MissingCells, count_missing
from lingraft.stages import finetune
from tests.comparison.compared import SMALL, Compared, closing_line
from tests.comparison.project import recipe
from tests.made_up import write


def test_a_training_that_runs_away_is_a_hole_while_the_rest_is_there(tmp_path: Path) -> None:
    absurd = {"steps": 4, "fresh_layers": 1, "batch_blocks": 8, "learning_rate": 1e30, "clip_norm": 1e30}
    records = Compared.run(recipe(tmp_path, **SMALL, mini=absurd), tmp_path / "out").records
    failed = {cell.system: cell.failed for cell in records.cells if cell.language == "de"}
    assert failed["BL_BASE"] is None
    assert re.fullmatch(
        r"mini-model of MINIPOST at depth 1, .*: the loss or a gradient is not finite at step 4 of 4 .*",
        failed["MINIPOST"],
    )
    assert all(cell.failed is None for cell in records.source_cells)


def test_a_finetuning_that_fails_leaves_its_other_seeds_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = finetune.finetune

    def without_memory(**named: Any) -> Artifact:
        if named["seed"] == 2:
            raise torch.OutOfMemoryError("out of memory:\ntried to allocate 20 GiB")
        return real(**named)

    finetuning = {"epochs": 0.5, "seeds": [1, 2]}
    settings = recipe(tmp_path, **SMALL | {"tasks": [{"name": "topic", "kind": "documents", "finetuning": finetuning}]})
    with monkeypatch.context() as patch:
        patch.setattr(finetune, "finetune", without_memory)
        records = Compared.run(settings, tmp_path / "out").records
    topic = [cell for cell in records.cells if cell.task == "topic"]
    assert all(set(point.scores.by_seed) == {1} for cell in topic for point in cell.points)
    [missing] = [note for note in records.notes if note.startswith("Missing: ")]
    assert "on 'topic' with seed 2: out of memory: tried to allocate 20 GiB" in missing

    assert closing_line(capsys.readouterr().err).startswith("0 of 8 cells are missing, and 4 lack finetuning seeds; ")

    mended = Compared.run(settings, tmp_path / "out").records
    assert "cells are missing" not in capsys.readouterr().err
    assert not [note for note in mended.notes if note.startswith("Missing: ")]
    topic = [cell for cell in mended.cells if cell.task == "topic"]
    assert all(set(point.scores.by_seed) == {1, 2} for cell in topic for point in cell.points)


def test_a_further_seed_that_is_judged_on_masked_tokens_alone_leaves_no_hole(tmp_path: Path) -> None:
    compared = {"systems": ["BL_BASE", "MINIPOST"], "further_seeds": {"BL_BASE": [7]}, "further_tasks": []}
    settings = recipe(tmp_path, **SMALL | {"paper": compared})
    records = Compared.run(settings, tmp_path / "out").records
    assert {cell.task for cell in records.cells if cell.pretraining_seed == 7} == {"masked"}
    assert {cell.task for cell in records.cells if cell.pretraining_seed == 1} == {"masked", "topic"}
    assert count_missing(plan_comparison(settings), records) == MissingCells(
        len(records.cells) + len(records.source_cells), 0, 0
    )


def test_a_task_without_examples_in_a_language_is_a_hole_in_that_task_only(tmp_path: Path) -> None:
    settings = recipe(tmp_path, **SMALL | {"tasks": recipe(tmp_path).model_dump(mode="json")["tasks"]})
    (tmp_path / "pairs" / "test.de.tsv").unlink()
    records = Compared.run(settings, tmp_path / "out").records
    reasons = {cell.task: cell.failed for cell in records.cells if cell.system == "BL_BASE"}
    assert (reasons["topic"], reasons["masked"]) == (None, None)
    assert reasons["paws-x"].startswith("judging of 'paws-x' in 'de': BL_BASE at depth 2")
    assert "test.de.tsv" in reasons["paws-x"]


def test_text_that_is_too_short_is_a_hole_until_there_is_enough(tmp_path: Path) -> None:
    settings = recipe(tmp_path, **SMALL)
    write(tmp_path / "text", ("de",), count=3)
    short = Compared.run(settings, tmp_path / "out").records
    assert {cell.failed is None for cell in short.cells} == {False}
    assert (tmp_path / "out/text/de" / FAILED_FILE).is_file()
    write(tmp_path / "text", ("de",), count=120)
    assert all(cell.failed is None for cell in Compared.run(settings, tmp_path / "out").records.cells)
