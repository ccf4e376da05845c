"""What steps add to stages beside tracking: which depth a language has, and which results go where."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from mlflow import MlflowClient

from lingraft import results, steps, tracking
from lingraft.artifact import Artifact, Kind
from lingraft.config import Recipe
from lingraft.errors import DepthError, TrackingError
from tests.tracking_stores import quiet, sqlite_store
from tests.workshop import Workshop

pytestmark = quiet


@dataclass(frozen=True)
class Registered:
    """A finished project whose source is in a registry."""

    shop: Workshop
    folder: Path
    evaluation: Path

    @property
    def recipe(self) -> str:
        return self.shop.recipe.to_json()

    @property
    def tasks(self) -> Path:
        return self.folder / "tasks"

    def begin(self, out: Path) -> Path:
        """The file that names a new pipeline's run."""
        steps.open_run(self.recipe, "language", out)
        return out

    def judge(self, run: Path, depth: int, out: Path, recipe: str = "", tasks: Path | None = None) -> tuple[Path, Path]:
        """German embeddings learned over a depth, and their evaluation."""
        embeddings, evaluation = out / f"embeddings-{depth}", out / f"evaluation-{depth}"
        self.shop.adapt("de", depth, embeddings)
        inputs = self.shop.primary, tasks or self.tasks, embeddings, self.shop.texts["de"], self.shop.blocks["de"]
        steps.evaluate_language(recipe or self.recipe, run, *inputs, evaluation)
        return embeddings, evaluation


@pytest.fixture(scope="module")
def registered(workshop: Workshop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registered]:
    folder = tmp_path_factory.mktemp("registered")
    recipe, run, evaluation = workshop.recipe.to_json(), folder / "run", folder / "evaluation"
    tasks = list(workshop.tasks.values())
    with sqlite_store(folder):
        steps.open_run(recipe, "source", run)
        inputs = workshop.primary, tasks, workshop.texts["en"], workshop.blocks["en"]
        steps.evaluate_source(recipe, run, *inputs, evaluation)
        steps.register_source(recipe, run, workshop.primary, tasks, evaluation)
        for seed, task in workshop.tasks.items():
            Artifact.load(task, Kind.TASK).copy_to(folder / "tasks" / f"seed-{seed}")
        yield Registered(workshop, folder, evaluation)


@pytest.fixture
def searched(registered: Registered) -> Iterator[int]:
    """The depth that a search chose for German."""
    name = steps.primary_name(registered.shop.recipe)
    tracking.tag(name, "depth.de", "2")
    yield 2
    MlflowClient().delete_model_version_tag(name, "1", "depth.de")


def test_without_a_search_a_language_has_the_recipes_depth(registered: Registered) -> None:
    assert steps.depths_of(registered.recipe, "de", compare=False) == [1]


def test_a_searched_depth_is_adapted_beside_the_recipes(registered: Registered, searched: int) -> None:
    assert steps.depths_of(registered.recipe, "de", compare=False) == [1, searched]
    assert steps.depths_of(registered.recipe, "tr", compare=False) == [1]


def test_comparing_adds_all_layers(registered: Registered, searched: int) -> None:
    assert steps.depths_of(registered.recipe, "de", compare=True) == [1, searched, 3]
    assert steps.depths_of(registered.recipe, "tr", compare=True) == [1, 3]


def test_a_depth_is_asked_of_a_registered_primary_only(registered: Registered) -> None:
    other = registered.shop.recipe.model_copy(update={"name": "nameless"}).to_json()
    with pytest.raises(TrackingError, match="'nameless-primary'"):
        steps.depths_of(other, "de", compare=False)


def test_the_searched_depth_is_registered_and_all_results_are_handed_on(
    registered: Registered, searched: int, tmp_path: Path
) -> None:
    run = registered.begin(tmp_path / "run")
    embeddings, evaluations = zip(*(registered.judge(run, depth, tmp_path) for depth in (1, searched)), strict=True)
    chosen, handed = tmp_path / "chosen", tmp_path / "results"

    steps.register_language(registered.recipe, run, embeddings, evaluations, chosen, handed)

    tags = tracking.tags_of("tiny-embeddings-de")
    assert tags["depth"] == str(searched)
    assert Artifact.load(chosen, Kind.EMBEDDINGS).fingerprint == tags["fingerprint"]
    assert {results.load_language(folder).depth for folder in handed.iterdir()} == {1, searched}


def test_a_language_that_was_not_adapted_over_its_own_depth_is_not_registered(
    registered: Registered, searched: int, tmp_path: Path
) -> None:
    run = registered.begin(tmp_path / "run")
    embeddings, evaluation = registered.judge(run, 3, tmp_path)
    with pytest.raises(DepthError, match=r"'de' was adapted over depths \[3\], but its own is now 2"):
        steps.register_language(
            registered.recipe, run, [embeddings], [evaluation], tmp_path / "chosen", tmp_path / "results"
        )
    assert MlflowClient().get_run(run.read_text()).info.status == "FAILED"


def test_without_a_task_a_language_is_judged_and_registered_by_masked_accuracy(
    registered: Registered, tmp_path: Path
) -> None:
    recipe = _without_task(registered.shop.recipe).to_json()
    run = registered.begin(tmp_path / "run")
    judged = registered.judge(run, 1, tmp_path, recipe, tmp_path / "no tasks were written")
    assert results.load_language(judged[1]).task is None
    steps.register_language(recipe, run, *([one] for one in judged), tmp_path / "chosen", tmp_path / "results")
    assert Artifact.load(tmp_path / "chosen", Kind.EMBEDDINGS).manifest.language == "de"


def test_without_a_task_only_the_primary_is_fetched(registered: Registered, tmp_path: Path) -> None:
    run = registered.begin(tmp_path / "run")
    folders = [tmp_path / name for name in ("primary", "tasks", "evaluation")]
    steps.fetch_source(_without_task(registered.shop.recipe).to_json(), run, *folders)
    assert Artifact.load(folders[0], Kind.PRIMARY)
    assert not list(folders[1].iterdir())


def _without_task(recipe: Recipe) -> Recipe:
    return recipe.model_copy(update={"task": None})


def test_a_report_needs_no_search(registered: Registered, tmp_path: Path) -> None:
    run = registered.begin(tmp_path / "run")
    _, evaluation = registered.judge(run, 1, tmp_path / "group")
    group = tmp_path / "handed" / "de-1"
    Artifact.load(evaluation, Kind.EVALUATION).copy_to(group)
    page = steps.report(registered.recipe, run, registered.evaluation, [group.parent], tmp_path / "report")
    assert page == (tmp_path / "report" / "report.html").read_text(encoding="utf-8")
    assert MlflowClient().get_run(run.read_text()).info.status == "FINISHED"
