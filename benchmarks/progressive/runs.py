"""Trains and judges the arms, each once: what is in the folder of results already is used again."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.progressive.arms import Arm, arms
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.files import write_json
from lingraft.artifacts.manifest import Kind
from lingraft.config.recipe import Recipe
from lingraft.console import say
from lingraft.data.blocks import load_blocks, open_split
from lingraft.data.shards import Blocks
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.jobs.data import LanguageDirs, language_jobs
from lingraft.jobs.job import Job
from lingraft.jobs.training import AdaptationJob, PretrainingJob
from lingraft.model.flops import UpdateShape
from lingraft.model.loading import LoadedPrimary, load_embeddings, load_primary
from lingraft.model.swap import swap
from lingraft.training import masked_lm, precision
from lingraft.training.schedule import read_curve

_CURVE_BLOCKS, _TEST_BLOCKS = 256, 1024


def make(planned: Iterable[Job]) -> None:
    """Do what has not been done."""
    for job in planned:
        with job.cached() as found:
            if not found:
                job.make()


def pretrained(recipe: Recipe, out: Path) -> Path:
    """The recipe's primary, with its text, tokenizer and blocks."""
    folders = LanguageDirs.under(out, recipe.source.language)
    make(language_jobs(recipe, recipe.source.language, folders))
    make([PretrainingJob(recipe=recipe, blocks=folders.blocks, tokenizer=folders.tokenizer, out=out / "primary")])
    return out / "primary"


def known(recipe: Recipe, primary: Path, out: Path) -> dict[int, float] | None:
    """Masked accuracy of each head in the source language, on test text; None where its text is not at hand."""
    folders = LanguageDirs.under(out, recipe.source.language)
    if not folders.blocks.exists():
        return None
    model = load_primary(primary, recipe.primary_shape)
    test = open_split(load_blocks(folders.blocks, model.tokenizer, recipe.encoder.block_tokens), "test")
    found = masked_lm.accuracy(
        model.encoder.to(precision.device()), _spread(test, _TEST_BLOCKS), recipe.encoder.mlm_heads
    )
    by_head = ", ".join(f"{d}: {100 * a:.1f}%" for d, a in found.items())
    say(f"masked accuracy in {recipe.source.language}, by head: {by_head}")
    return found


@dataclass(frozen=True)
class Bench:
    """One language, to be learned for one primary."""

    recipe: Recipe
    primary: Path
    language: str
    out: Path

    def records(self, seeds: Iterable[int]) -> Iterator[dict[str, Any]]:
        """Yield the results of every arm with every seed."""
        folders = LanguageDirs.under(self.out, self.language)
        make(language_jobs(self.recipe, self.language, folders))
        pieces = Tokenizer.load(folders.tokenizer)
        for seed in seeds:
            for arm in arms(self.recipe, len(pieces), seed):
                yield self._record(arm, folders)

    def _record(self, arm: Arm, folders: LanguageDirs) -> dict[str, Any]:
        say(f"{self.language}: {arm.title}, seed {arm.recipe.adaptation.seed}")
        place = self.out / "adaptation" / self.language / arm.name
        made = self._learned(arm, folders, place)
        record = place / "record.json"
        if record.exists() and (found := json.loads(record.read_bytes()))["embeddings"] == made.fingerprint:
            return dict(found)
        found = {"language": self.language, "arm": arm.title, "seed": arm.recipe.adaptation.seed}
        found |= {"embeddings": made.fingerprint, **_spent(arm, made)} | self._judged(folders, made, place)
        write_json(record, found)
        return found

    def _learned(self, arm: Arm, folders: LanguageDirs, place: Path) -> Artifact:
        job = AdaptationJob(
            recipe=arm.recipe,
            depth=arm.depth,
            language=self.language,
            primary=self.primary,
            blocks=folders.blocks,
            tokenizer=folders.tokenizer,
            checkpoints=place / "along",
            out=place / "last",
        )
        make([job])
        return Artifact.load(job.made, job.kind)

    def _judged(self, folders: LanguageDirs, made: Artifact, place: Path) -> dict[str, Any]:
        """Masked accuracy of the primary, with the rows swapped in, on test text: along the way, and in the end."""
        primary = load_primary(self.primary, self.recipe.primary_shape)
        data = load_blocks(folders.blocks, Tokenizer.load(folders.tokenizer), self.recipe.encoder.block_tokens)
        test = open_split(data, "test")
        along = [folder for folder in sorted((place / "along").iterdir()) if folder.name.startswith("step-")]
        curve = [_accuracy(primary, each, _spread(test, _CURVE_BLOCKS)) for each in (*along, made.folder)]
        spent = [Artifact.load(each, Kind.EMBEDDINGS).manifest.cost.flops for each in (*along, made.folder)]
        first, last = (_accuracy(primary, each, _spread(test, _TEST_BLOCKS)) for each in (along[0], made.folder))
        return {"curve": [*zip(spent, curve, strict=True)], "initial": first, "accuracy": last}


def _spent(arm: Arm, made: Artifact) -> dict[str, Any]:
    """Return what learning took; looks at the dev loss are forward passes of the whole primary, counted apart."""
    cost, shape, settings = made.manifest.cost, arm.recipe.encoder, arm.recipe.adaptation
    plain = [{"depth": arm.depth, "steps": cost.steps, "flops": cost.flops}]
    looks = sum(point.dev_loss is not None for point in read_curve(made.folder))
    vocabulary = made.manifest.details["vocabulary"]
    work = UpdateShape(
        layers=shape.layers,
        width=shape.width,
        vocabulary=vocabulary,
        block_tokens=shape.block_tokens,
        batch_blocks=settings.judged_blocks,
        mask_rate=masked_lm.EVALUATION_MASK_RATE,
    )
    return {
        "phases": made.manifest.details.get("phases", plain),
        "steps": cost.steps,
        "flops": cost.flops,
        "elapsed_s": cost.elapsed_s,
        "looks": looks,
        "looks_flops": looks * work.pretraining_flops() / 3,  # equation A1 takes three passes
    }


def _accuracy(primary: LoadedPrimary, embeddings: Path, blocks_NT: Tensor) -> float:
    swap(primary.encoder, load_embeddings(embeddings).vocabulary)
    top = primary.encoder.shape.layers
    return masked_lm.accuracy(primary.encoder.to(precision.device()), blocks_NT, (top,))[top]


def _spread(blocks: Blocks, count: int) -> Tensor:
    """So many blocks (N, T) from all over a split, whose neighbours are of one document."""
    return blocks.take(torch.linspace(0, len(blocks) - 1, min(count, len(blocks))).long())
