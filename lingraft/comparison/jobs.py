"""Training jobs of the comparison: stages named after its arms and primaries, each of which records its failure."""

from collections.abc import Sequence
from pathlib import Path

from lingraft.comparison.plan import Arm, FinetuningRun, PlannedPrimary, plan_comparison
from lingraft.config.recipe import Recipe
from lingraft.jobs.job import Job
from lingraft.jobs.training import AdaptationJob, FinetuningJob, InitialisationJob, MiniBuildingJob, PretrainingJob


def planned_primary(recipe: str, name: str) -> PlannedPrimary:
    """Return a primary of the comparison of a recipe in JSON.

    Raises:
        RecipeError: the comparison has no such primary.
    """
    return plan_comparison(Recipe.parse(recipe)).primary(name)


def planned_arm(recipe: str, name: str) -> Arm:
    """Return an arm of the comparison of a recipe in JSON.

    Raises:
        RecipeError: the comparison has no such arm.
    """
    return plan_comparison(Recipe.parse(recipe)).arm(name)


def pretraining(primary: PlannedPrimary, blocks: Path, tokenizer: Path, out: Path) -> Job:
    """Return the job that pretrains a primary in the source language."""
    return PretrainingJob(
        recipe=primary.recipe,
        blocks=blocks,
        tokenizer=tokenizer,
        out=out,
        own_name=f"pretrain-{primary.name}",
        own_title=f"pretraining of {primary.title}",
        records_failure=True,
    )


def mini_building(arm: Arm, primary: Path, blocks: Path, out: Path) -> Job:
    """Return the job that runs step 1b of an arm."""
    return MiniBuildingJob(
        recipe=arm.recipe,
        primary=primary,
        blocks=blocks,
        out=out,
        own_name=f"build-mini-{arm.name}",
        own_title=f"mini-model of {arm.title}",
        records_failure=True,
    )


def finetuning(planned: PlannedPrimary, wanted: FinetuningRun, primary: Path, text: Path, tasks: Path) -> Job:
    """Return the job that finetunes a primary, or its mini-model, on a task in the source language.

    Args:
        planned: primary in the plan.
        wanted: one of its finetunings.
        primary: folder of the primary.
        text: folder of the source language's text.
        tasks: folder of all finetunings, in which the job has a folder of its own.
    """
    return FinetuningJob(
        recipe=planned.recipe,
        task=wanted.task,
        seed=wanted.seed,
        primary=primary,
        text=text,
        layers=None if wanted.layers == planned.layers else wanted.layers,
        out=wanted.path_in(tasks),
        own_name=f"finetune-{planned.name}-{wanted.key.replace('/', '-')}",
        own_title=(
            f"finetuning of {planned.title}, {wanted.layers} layers, on {wanted.task!r} with seed {wanted.seed}"
        ),
        records_failure=True,
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
    by = f" from {start}" if start else ""
    return InitialisationJob(
        recipe=planned.arm_with_start(start).recipe,
        language=language,
        primary=primary,
        tokenizer=tokenizer,
        blocks=blocks,
        source_vectors=vectors,
        out=out,
        own_name=f"initialise-{language}-{planned.name}" + (f"-{start}" if start else ""),
        own_title=f"initial embeddings of {language!r}{by} for {planned.title}",
        records_failure=True,
    )


def adaptation(
    arm: Arm,
    language: str,
    primary: Path,
    blocks: Path,
    tokenizer: Path,
    out: Path,
    mini: Path | None = None,
    initial: Sequence[Path] = (),
) -> Job:
    """Return the job that learns a language's embeddings; its artifact is the final ones, with checkpoints beside it.

    Args:
        arm: arm that adapts the language.
        language: tag of the language.
        primary: folder of the arm's primary.
        blocks: folder of the language's blocks.
        tokenizer: folder of the tokenizer that the blocks were made with.
        out: folder for checkpoints and embeddings.
        mini: folder of the arm's mini-model, if it has a step 1b.
        initial: one folder of embeddings at update 0 where the recipe's initialisation needs text, else none.
    """
    return AdaptationJob(
        recipe=arm.recipe,
        depth=arm.depth,
        language=language,
        primary=primary,
        blocks=blocks,
        tokenizer=tokenizer,
        mini=mini,
        initial=next(iter(initial), None),
        out=out,
        has_curve=True,
        own_name=f"adapt-{language}-{arm.name}",
        own_title=f"adaptation of {language!r} by {arm.title}",
        records_failure=True,
    )
