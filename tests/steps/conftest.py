"""A finished project whose source is in a registry, for the tests of steps."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.jobs.evaluation import SourceEvaluationJob
from lingraft.jobs.training import AdaptationJob
from lingraft.steps import data, language, source
from lingraft.steps.run_job import Scores, ScoresAndConfusion, run_job
from tests.fixtures import once
from tests.tracking.promotion.prepared import copied
from tests.tracking_stores import sqlite_store
from tests.workshop import TINY, Workshop


@dataclass(frozen=True)
class Registered:
    """Where things are."""

    shop: Workshop
    folder: Path
    evaluation: Path

    @property
    def recipe(self) -> str:
        return self.shop.recipe.to_json()

    @property
    def tasks(self) -> Path:
        return self.folder / "tasks"

    def judged(self, depth: int) -> tuple[Path, Path]:
        """The same as `judge` makes, made once a run; over 1, 2 or 3 layers."""
        return _judged(self.folder, depth)

    def begin(self, out: Path) -> Path:
        """The file that names a new pipeline's run."""
        data.open_run(self.recipe, "language", out)
        return out

    def judge(self, run: Path, depth: int, out: Path, recipe: str = "", tasks: Path | None = None) -> tuple[Path, Path]:
        """German embeddings learned over a depth, and their evaluation."""
        embeddings, evaluation = _judged(out, depth)
        job = AdaptationJob(
            recipe=recipe or self.recipe,
            depth=depth,
            primary=self.shop.primary,
            blocks=self.shop.blocks["de"],
            tokenizer=self.shop.tokenizers["de"],
            out=embeddings,
        )
        run_job(job, run)
        self.evaluate(run, "de", embeddings, evaluation, recipe, tasks)
        return embeddings, evaluation

    def evaluate(
        self, run: Path, tag: str, embeddings: Path, out: Path, recipe: str = "", tasks: Path | None = None
    ) -> ScoresAndConfusion:
        """Evaluate a language's embeddings as a step does."""
        given = language.EvaluateLanguage(
            recipe=recipe or self.recipe,
            primary=self.shop.primary,
            task_folder=tasks or self.tasks,
            embeddings=embeddings,
            text=self.shop.texts[tag],
            blocks=self.shop.blocks[tag],
            source_evaluation=self.evaluation,
            out=out,
        )
        return language.evaluate_language(given, run)

    def register(
        self,
        run: Path,
        judged: Sequence[tuple[Path, Path]],
        chosen: Path,
        results: Path,
        recipe: str = "",
        tasks: Path | None = None,
    ) -> str | None:
        """Register embeddings with their evaluations as a step does."""
        given = language.LanguageRegistration(
            recipe=recipe or self.recipe,
            tasks=tasks or self.tasks,
            embeddings=tuple(embeddings for embeddings, _ in judged),
            evaluations=tuple(evaluation for _, evaluation in judged),
            chosen=chosen,
            results=results,
        )
        return language.register_language(given, run)

    def bundle(
        self, run: Path, embeddings: Sequence[Path], out: Path, task: str = "topic", recipe: str = "", **fields: Any
    ) -> Scores:
        """Export a bundle as a step does."""
        given = {"primary": self.shop.primary, "tasks": self.tasks} | fields
        export = language.BundleExport(
            recipe=recipe or self.recipe, task=task, embeddings=tuple(embeddings), out=out, **given
        )
        return language.export_bundle(export, run)


def _judged(folder: Path, depth: int) -> tuple[Path, Path]:
    return folder / f"embeddings-{depth}", folder / f"evaluation-{depth}"


@pytest.fixture(scope="module")
def registered(workshop: Workshop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registered]:
    """One for the tests of a module, copied from that of the run."""
    original = once.folder("registered-source", partial(_register, workshop), TINY.read_bytes())
    folder = tmp_path_factory.mktemp("registered") / "copy"
    with copied(original, folder):
        yield Registered(workshop, folder, folder / "evaluation")


def _register(shop: Workshop, folder: Path) -> None:
    recipe, run, evaluation = shop.recipe.to_json(), folder / "run", folder / "evaluation"
    tasks = list(shop.tasks.values())
    with sqlite_store(folder):
        data.open_run(recipe, "source", run)
        judging = SourceEvaluationJob(
            recipe=recipe,
            primary=shop.primary,
            tasks=tuple(tasks),
            text=shop.texts["en"],
            blocks=shop.blocks["en"],
            out=evaluation,
        )
        source.evaluate_source(judging, run)
        source.register_source(recipe, run, shop.primary, tasks, evaluation)
        for seed, task in shop.tasks.items():
            Artifact.load(task, Kind.TASK).copy_to(folder / "tasks" / "topic" / f"seed-{seed}")
        made = Registered(shop, folder, evaluation)
        for depth in (1, 2, 3):
            made.judge(made.begin(folder / f"run-{depth}"), depth, folder)
