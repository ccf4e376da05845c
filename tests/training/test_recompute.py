"""Activation checkpointing and micro-batches: less memory at a time, the same result."""

from pathlib import Path

import pytest
import torch

from lingraft.artifacts.artifact import Artifact
from lingraft.stages import pretrain
from lingraft.training.schedule import ignore_metrics
from tests.workshop import Workshop, changed


def primary(workshop: Workshop, out: Path, dropout: float, **pretraining: object) -> Artifact:
    recipe = changed(workshop.recipe, "pretraining", steps=4, warmup_steps=1, **pretraining)
    recipe = changed(recipe, "encoder", dropout=dropout)
    return pretrain.pretrain(recipe, workshop.blocks["en"], workshop.tokenizers["en"], out, ignore_metrics)


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_what_is_computed_again_is_the_same(workshop: Workshop, tmp_path: Path, dropout: float) -> None:
    plain = primary(workshop, tmp_path / "plain", dropout)
    again = primary(workshop, tmp_path / "again", dropout, recompute=True)
    for part in ("body", "vocabulary"):
        wanted = plain.tensors(part)
        for name, found in again.tensors(part).items():
            torch.testing.assert_close(found, wanted[name], rtol=0, atol=1e-5, msg=name)


def test_micro_batches_learn_what_the_whole_batch_does(workshop: Workshop, tmp_path: Path) -> None:
    whole = primary(workshop, tmp_path / "whole", 0.0)
    parts = primary(workshop, tmp_path / "parts", 0.0, micro_batch_blocks=4)
    for part in ("body", "vocabulary"):
        wanted = whole.tensors(part)
        for name, found in parts.tensors(part).items():
            torch.testing.assert_close(found, wanted[name], rtol=0, atol=2e-4, msg=name)
