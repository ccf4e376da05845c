"""Ceilings of zero-shot scores: BL_BASE's primary with its embeddings of a language, finetuned by that one's labels."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lingraft.artifacts import artifact
from lingraft.artifacts.manifest import Kind
from lingraft.comparison.plan import Arm, Comparison
from lingraft.comparison.runner import adaptation_dir, primary_dir
from lingraft.config.source import Source
from lingraft.config.systems import System
from lingraft.config.tasks import Task, TaskFile
from lingraft.console import say
from lingraft.jobs.training import EMBEDDINGS
from lingraft.model.loading import load_embeddings, load_primary, save_vocabulary
from lingraft.stages.finetune import finetune
from lingraft.stages.task_tests import TaskInputs, task_test
from lingraft.tasks.examples import load_examples
from lingraft.tasks.finetuned import load_task
from lingraft.tasks.kinds import kind_of
from lingraft.training.schedule import ignore_metrics, write_curve

_DIGITS = 4
_MOST_EPOCHS = 20


def ceilings(comparison: Comparison, out: Path, labels: Path) -> Iterator[dict[str, Any]]:
    """Finetune and judge by labels of each language, and yield a record for each language, task and arm of BL_BASE.

    Args:
        comparison: whose adaptations are all made.
        out: folder of the comparison's results; models are written there once.
        labels: folder of `<task>-train-<language>` and `<task>-test-<language>` with some ending; tasks without them
            are left out.
    """
    for arm in comparison.arms:
        if arm.system is not System.BL_BASE:
            continue
        for language in arm.recipe.targets:
            for task in arm.recipe.tasks:
                if files := sorted(labels.glob(f"{task.name}-train-{language}.*")):
                    say(f"labels of {language!r} for {task.name!r}: {arm.title}")
                    found = {"language": language, "start": str(arm.start), "seed": arm.seed, "task": task.name}
                    yield found | {"score": round(_score(arm, language, task, out, files[0]), _DIGITS)}


def _score(arm: Arm, language: str, task: Task, out: Path, train: Path) -> float:
    folder = out / "ceiling" / arm.name / language
    _save_primary_in(arm, language, out, folder / "primary")
    recipe = arm.recipe
    english = load_examples(task, "train", recipe.source.language, None)
    own = task.model_copy(
        update={
            "train": TaskFile(kind="file", path=str(train)),
            "dev": TaskFile(kind="file", path=str(train)),  # nothing is chosen by it
            "test": TaskFile(kind="file", path=str(train.with_name(train.name.replace("-train-", "-test-")))),
            "languages": (),
            "labels": tuple(task.labels or kind_of(task).labels(english)),
        }
    )
    count = len(load_examples(own, "train", language, None))
    # As many updates as in the source language, where so few examples can be repeated that often.
    epochs = min(_MOST_EPOCHS, max(1, round(task.finetuning.epochs * len(english) / count)))
    own = own.model_copy(update={"finetuning": task.finetuning.model_copy(update={"epochs": epochs})})
    seed, made = task.finetuning.seeds[0], folder / task.name
    if not made.is_dir():
        finetune(
            recipe=recipe.model_copy(update={"source": Source(language=language), "tasks": (own,)}),
            task=task.name,
            primary=folder / "primary",
            text=None,
            seed=seed,
            out=made,
            watch=ignore_metrics,
        )
    primary, model = load_primary(folder / "primary"), load_task(made)
    test = task_test(TaskInputs(task=own, seeds=[model], text=None, tokenizer=primary.tokenizer, source=primary))
    if test is None:
        raise AssertionError(f"{task.name} has no test in {language}")
    model.swap_in(primary)
    return test.judge(model).score


def _save_primary_in(arm: Arm, language: str, out: Path, place: Path) -> None:
    """Write the arm's primary with the language's embeddings in place of the source's."""
    if place.is_dir():
        return
    primary = load_primary(primary_dir(arm.primary, out))
    learned = load_embeddings(adaptation_dir(arm, language, out) / EMBEDDINGS)
    with artifact.create(place, Kind.PRIMARY) as draft:
        draft.tensors("body", primary.encoder.body_tensors())
        save_vocabulary(draft, learned.vocabulary, learned.tokenizer)
        write_curve(draft, ())
        draft.facts = {
            "language": language,
            "tokenizer_hash": learned.tokenizer.hash,
            "details": {"shape": primary.encoder.shape.model_dump(mode="json")},
        }
