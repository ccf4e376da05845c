"""What fails in a comparison is a hole with its reason, while the rest is there."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.failures import FAILED_FILE
from lingraft.stages import finetune
from tests.comparison.compared import Compared, closing_line
from tests.comparison.project import recipe
from tests.made_up import write


def test_whatever_fails_is_a_hole_with_its_reason_until_it_is_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A training runs away, a finetuning lacks memory, a language's text is too short, and one has no pairs."""
    real = finetune.finetune

    def without_memory(**named: Any) -> Artifact:
        if named["seed"] == 2:
            raise torch.OutOfMemoryError("out of memory:\ntried to allocate 20 GiB")
        return real(**named)

    absurd = {"steps": 4, "fresh_layers": 1, "batch_blocks": 8, "learning_rate": 1e30}
    systems = {"systems": ["BL_BASE", "MINIPOST"]}
    settings = recipe(tmp_path, targets=["de", "tr"], mini=absurd, paper=systems)
    write(tmp_path / "text", ("tr",), count=3)
    pairs, elsewhere = tmp_path / "pairs" / "test.de.tsv", tmp_path / "elsewhere"
    pairs.rename(elsewhere)
    with monkeypatch.context() as patch:
        patch.setattr(finetune, "finetune", without_memory)
        records = Compared.run(settings, tmp_path / "out").records
    assert closing_line(capsys.readouterr().err).startswith("8 of 16 cells are missing, and 1 finetuning; ")
    learned = [cell for cell in records.cells if cell.language != "en"]
    failed = {(cell.system, cell.language, cell.task): cell.failed for cell in learned}
    assert (failed["BL_BASE", "de", "topic"], failed["BL_BASE", "de", "masked"]) == (None, None)
    assert re.fullmatch(
        r"mini-model of MINIPOST at depth 1, .*: the loss or a gradient is not finite at step 4 of 4 .*",
        failed["MINIPOST", "de", "masked"],
    )
    assert failed["BL_BASE", "de", "paws-x"].startswith("evaluation of 'de' on 'paws-x': BL_BASE at depth 2")
    assert "test.de.tsv" in failed["BL_BASE", "de", "paws-x"]
    assert failed["BL_BASE", "tr", "masked"]
    assert (tmp_path / "out/text/tr" / FAILED_FILE).is_file()
    [topic] = [cell for cell in learned if cell.task == "topic" and not cell.failed]
    assert {*topic.scores} == {1}
    [missing] = records.lost
    assert "on 'topic', seed 2: out of memory: tried to allocate 20 GiB" in missing

    elsewhere.rename(pairs)
    write(tmp_path / "text", ("tr",), count=120)
    mended = Compared.run(settings, tmp_path / "out").records
    assert {cell.system for cell in mended.cells if cell.failed} == {"MINIPOST"}
    topics = [cell for cell in mended.cells if cell.task == "topic" and not cell.failed]
    assert {cell.language for cell in topics} == {"en", "de", "tr"}
    assert all({*cell.scores} == {1, 2} for cell in topics)
    assert mended.lost == ()
    assert "finetuning;" not in capsys.readouterr().err
