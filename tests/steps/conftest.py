"""A finished project whose source is in a registry, for the tests of steps."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from lingraft.artifact import Artifact, Kind
from lingraft.steps import data, language, source
from tests.tracking_stores import sqlite_store
from tests.workshop import Workshop


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

    def begin(self, out: Path) -> Path:
        """The file that names a new pipeline's run."""
        data.open_run(self.recipe, "language", out)
        return out

    def judge(self, run: Path, depth: int, out: Path, recipe: str = "", tasks: Path | None = None) -> tuple[Path, Path]:
        """German embeddings learned over a depth, and their evaluation."""
        shop, embeddings, evaluation = self.shop, out / f"embeddings-{depth}", out / f"evaluation-{depth}"
        given = recipe or self.recipe
        folders = shop.blocks["de"], shop.tokenizers["de"]
        language.adapt(given, run, depth, shop.primary, self.no_mini, *folders, embeddings)
        inputs = shop.primary, self.no_mini, tasks or self.tasks, embeddings, shop.texts["de"], shop.blocks["de"]
        language.evaluate_language(given, run, *inputs, evaluation)
        return embeddings, evaluation


@pytest.fixture(scope="module")
def registered(workshop: Workshop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registered]:
    folder = tmp_path_factory.mktemp("registered")
    recipe, run, evaluation = workshop.recipe.to_json(), folder / "run", folder / "evaluation"
    tasks = list(workshop.tasks.values())
    with sqlite_store(folder):
        data.open_run(recipe, "source", run)
        inputs = workshop.primary, tasks, workshop.texts["en"], workshop.blocks["en"]
        source.evaluate_source(recipe, run, *inputs, evaluation)
        source.register_source(recipe, run, workshop.primary, tasks, evaluation)
        for seed, task in workshop.tasks.items():
            Artifact.load(task, Kind.TASK).copy_to(folder / "tasks" / "topic" / f"seed-{seed}")
        yield Registered(workshop, folder, evaluation)
