"""A finished project whose source is in a registry, for the tests of steps."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from lingraft.artifacts.artifact import Artifact, Kind
from lingraft.steps import data, language, source
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

    @property
    def no_mini(self) -> Path:
        """The folder that a system without a step 1b has in place of a mini-model."""
        (self.folder / "no-mini").mkdir(exist_ok=True)
        return self.folder / "no-mini"

    def judged(self, depth: int) -> tuple[Path, Path]:
        """The same as `judge` makes, made once a run; over 1, 2 or 3 layers."""
        return _judged(self.folder, depth)

    def begin(self, out: Path) -> Path:
        """The file that names a new pipeline's run."""
        data.open_run(self.recipe, "language", out)
        return out

    def judge(self, run: Path, depth: int, out: Path, recipe: str = "", tasks: Path | None = None) -> tuple[Path, Path]:
        """German embeddings learned over a depth, and their evaluation."""
        shop, (embeddings, evaluation) = self.shop, _judged(out, depth)
        given = recipe or self.recipe
        folders = shop.blocks["de"], shop.tokenizers["de"]
        language.adapt(given, run, depth, shop.primary, self.no_mini, *folders, embeddings)
        inputs = shop.primary, self.no_mini, tasks or self.tasks, embeddings, shop.texts["de"], shop.blocks["de"]
        language.evaluate_language(given, run, *inputs, self.evaluation, evaluation)
        return embeddings, evaluation


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
        source.evaluate_source(recipe, run, shop.primary, tasks, shop.texts["en"], shop.blocks["en"], evaluation)
        source.register_source(recipe, run, shop.primary, tasks, evaluation)
        for seed, task in shop.tasks.items():
            Artifact.load(task, Kind.TASK).copy_to(folder / "tasks" / "topic" / f"seed-{seed}")
        made = Registered(shop, folder, evaluation)
        for depth in (1, 2, 3):
            made.judge(made.begin(folder / f"run-{depth}"), depth, folder)
