"""What the demo's comparison adds to it: halves of the pages that share none, and its table."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from benchmarks import demo_compare
from benchmarks.demo_compare import SOURCE_HALF, TARGET_HALF, Demo, half_of, half_vectors
from lingraft.data.text import load_split, load_text
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.jobs.data import LanguageDirs
from lingraft.model.initialisation import aligned_rows, vector_alignment
from lingraft.model.initialisation.aligned_rows import AlignedRows
from tests.workshop import Workshop


def test_vectors_of_a_half_are_counted_from_its_pages_alone(workshop: Workshop) -> None:
    language = "en"
    text, pieces = load_text(workshop.texts[language], language), Tokenizer.load(workshop.tokenizers[language])
    block_tokens = workshop.recipe.encoder.block_tokens
    counted = [half_vectors(text, pieces, block_tokens, half).counts_V for half in (SOURCE_HALF, TARGET_HALF)]
    for half, counts_V in enumerate(counted):
        own = [each for each in load_split(text, "train") if half_of(each.name) == half]
        assert 0 < counts_V.sum() <= sum(len(pieces.encode(each.text)) for each in own)


def test_halves_whose_rows_add_to_the_masked_loss_fall_back_as_in_production(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[AlignedRows] = []

    def align_rows(**given: Any) -> AlignedRows:
        found.append(aligned_rows.align_rows(**given))
        return found[-1]

    monkeypatch.setattr(demo_compare, "align_rows", align_rows)
    monkeypatch.setattr(vector_alignment, "AGREEMENT", -1.0)
    monkeypatch.setattr(aligned_rows, "MOST_ADDED_LOSS", -10.0)
    work = tmp_path / "compare"
    shutil.copytree(workshop.primary, work / "primary")
    for seed, folder in workshop.tasks.items():
        shutil.copytree(folder, work / f"task-{seed}")
    for language in ("en", "de"):
        made = (workshop.texts, workshop.tokenizers, workshop.blocks)
        for folders, out in zip(made, LanguageDirs.under(work, language), strict=True):
            shutil.copytree(folders[language], out)
    scores = Demo(workshop.recipe, work).halves("de")
    assert found[0].quality.added_loss is not None
    assert not found[0].quality.succeeded
    assert 0 <= scores.masked_initial <= 1
