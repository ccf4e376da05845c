"""Training jobs of the comparison: those of a recipe, named after the comparison's arms and primaries."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from lingraft.artifacts.artifact import Artifact
from lingraft.comparison.plan import Arm, FinetuningRun, PlannedPrimary
from lingraft.jobs import job as jobs
from lingraft.jobs.job import Job
from lingraft.stages.adapt import adapt

if TYPE_CHECKING:
    from lingraft.training.schedule import MetricsCallback

CHECKPOINTS, EMBEDDINGS = "checkpoints", "embeddings"
"""Folders within that of an adaptation: the embeddings at each checkpoint, and the final ones."""


def pretraining(primary: PlannedPrimary, blocks: Path, tokenizer: Path, out: Path) -> Job:
    """Return the job that pretrains a primary in the source language."""
    job = jobs.pretraining(primary.recipe, blocks, tokenizer, out)
    return replace(job, name=f"pretrain-{primary.name}", title=f"pretraining of {primary.title}")


def mini_building(arm: Arm, primary: Path, blocks: Path, out: Path) -> Job:
    """Return the job that runs step 1b of an arm."""
    job = jobs.mini_building(arm.recipe, primary, blocks, out)
    return replace(job, name=f"build-mini-{arm.name}", title=f"mini-model of {arm.title}")


def finetuning(planned: PlannedPrimary, wanted: FinetuningRun, primary: Path, text: Path, out: Path) -> Job:
    """Return the job that finetunes a primary, or its mini-model, on a task in the source language."""
    layers = None if wanted.layers == planned.layers else wanted.layers
    job = jobs.finetuning(
        recipe=planned.recipe,
        task_name=wanted.task,
        seed=wanted.seed,
        primary=primary,
        text_folder=text,
        out=out,
        layers=layers,
    )
    return replace(
        job,
        name=f"finetune-{planned.name}-{wanted.key.replace('/', '-')}",
        title=f"finetuning of {planned.title}, {wanted.layers} layers, on {wanted.task!r} with seed {wanted.seed}",
    )


def initialisation(
    planned: PlannedPrimary,
    language: str,
    primary: Path,
    blocks: Path,
    tokenizer: Path,
    vectors: Path,
    out: Path,
    start: str = "",
) -> Job:
    """Return the job that writes a language's embeddings at update 0, for all arms of a primary with the same start."""
    job = jobs.initialisation(
        recipe=planned.arm_with_start(start).recipe,
        language=language,
        primary=primary,
        tokenizer_folder=tokenizer,
        out=out,
        blocks_folder=blocks,
        source_vectors=vectors,
    )
    by = f" from {start}" if start else ""
    title = f"initial embeddings of {language!r}{by} for {planned.title}"
    name = f"initialise-{language}-{planned.name}" + (f"-{start}" if start else "")
    return replace(job, name=name, title=title)


def adaptation(
    arm: Arm,
    language: str,
    primary: Path,
    mini: Path | None,
    blocks: Path,
    tokenizer: Path,
    out: Path,
    initial: Path | None = None,
) -> Job:
    """Return the job that learns a language's embeddings; its artifact is the final ones, with checkpoints beside it.

    Args:
        arm: arm that adapts the language.
        language: tag of the language.
        primary: folder of the arm's primary.
        mini: folder of the arm's mini-model, if it has a step 1b.
        blocks: folder of the language's blocks.
        tokenizer: folder of the tokenizer that the blocks were made with.
        out: folder for checkpoints and embeddings.
        initial: embeddings at update 0, where the recipe's initialisation needs text.
    """
    recipe = arm.recipe

    def make(folder: Path, watch: "MetricsCallback") -> Artifact:
        return adapt(
            recipe=recipe,
            primary=primary,
            blocks=blocks,
            tokenizer=tokenizer,
            depth=arm.depth,
            out=folder / EMBEDDINGS,
            watch=watch,
            mini=mini,
            checkpoints=folder / CHECKPOINTS,
            initial=initial,
        )

    job = jobs.adaptation(
        recipe=recipe,
        depth=arm.depth,
        language=language,
        primary=primary,
        mini=mini,
        blocks_folder=blocks,
        tokenizer_folder=tokenizer,
        out=out,
        initial=initial,
    )
    return replace(
        job,
        name=f"adapt-{language}-{arm.name}",
        title=f"adaptation of {language!r} by {arm.title}",
        part=EMBEDDINGS,
        make=make,
    )
