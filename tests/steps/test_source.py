"""What steps of a source add to stages: jobs of finetuning, what is registered, and what comes back."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from mlflow import MlflowClient

from lingraft import tracking
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.artifacts.names import mini_name, primary_name, task_folders, task_name
from lingraft.config.initialisation import Initialisation
from lingraft.config.recipe import Recipe
from lingraft.config.systems import System
from lingraft.config.tasks import Task, finetuning_ids
from lingraft.config.training import MiniBuilding
from lingraft.errors import NotRegisteredError
from lingraft.jobs.evaluation import SourceEvaluationJob
from lingraft.jobs.training import AdaptationJob, VectorsJob
from lingraft.model.loading import load_mini
from lingraft.stages import pretrain
from lingraft.stages.results import load_language
from lingraft.steps import data, language, source
from lingraft.steps.run_job import run_job
from lingraft.training.schedule import ignore_metrics
from tests.fixtures import once
from tests.steps.conftest import Registered
from tests.steps.sources import register
from tests.tracking.promotion.prepared import copied
from tests.tracking_stores import quiet, sqlite_store
from tests.workshop import Workshop, changed

pytestmark = quiet
BUILDING = MiniBuilding(steps=4, batch_blocks=8, learning_rate=1e-3, fresh_layers=2)


def fetched(recipe: str, run: Path, out: Path) -> dict[str, Path]:
    """What a language pipeline begins with."""
    folders = {name: out / name for name in ("primary", "tasks", "evaluation", "mini", "vectors")}
    source.fetch_source(recipe, run, *folders.values())
    return folders


def test_every_task_is_finetuned_with_every_seed(workshop: Workshop) -> None:
    topic = workshop.recipe.task()
    mood = topic.model_copy(
        update={"name": "mood", "finetuning": topic.finetuning.model_copy(update={"seeds": (3, 1)})}
    )
    recipe = workshop.recipe.model_copy(update={"tasks": (topic, mood)})
    assert finetuning_ids(recipe.tasks) == ["topic/1", "topic/2", "mood/3", "mood/1"]
    assert finetuning_ids(()) == []


def test_an_imported_task_is_not_finetuned_and_has_one_seed(workshop: Workshop, tmp_path: Path) -> None:
    imported = Task(name="retrieval", kind="retrieval")
    recipe = workshop.recipe.model_copy(update={"tasks": (imported,)})
    assert finetuning_ids(recipe.tasks) == []
    assert task_folders(recipe, tmp_path) == [tmp_path / "retrieval" / "seed-1"]
    assert not recipe.judges(imported, "de")  # nothing to test it on is named


def test_the_source_comes_back_with_a_folder_a_task_and_seed(registered: Registered, tmp_path: Path) -> None:
    shop = registered.shop
    found = fetched(registered.recipe, registered.begin(tmp_path / "run"), tmp_path)
    primary = Artifact.load(shop.primary, Kind.PRIMARY)
    assert Artifact.load(found["primary"], Kind.PRIMARY).manifest == primary.manifest
    assert {path.name for path in found["tasks"].iterdir()} == {"topic"}
    for seed, folder in shop.tasks.items():
        back = Artifact.load(found["tasks"] / "topic" / f"seed-{seed}", Kind.TASK)
        assert back.fingerprint == Artifact.load(folder, Kind.TASK).fingerprint
    assert Artifact.load(found["evaluation"], Kind.EVALUATION).manifest.aligned_with == primary.fingerprint
    assert list(found["mini"].iterdir()) == list(found["vectors"].iterdir()) == []
    taskless = registered.shop.recipe.model_copy(update={"tasks": ()}).to_json()
    found = fetched(taskless, registered.begin(tmp_path / "other-run"), tmp_path / "taskless")
    assert list(found["tasks"].iterdir()) == []


def test_static_vectors_are_kept_with_the_primary_and_come_back_where_rows_need_them(
    workshop: Workshop, tmp_path: Path
) -> None:
    recipe = workshop.recipe.model_copy(update={"tasks": ()})
    aligned = changed(recipe, "adaptation", initialisation=Initialisation.ALIGNED)
    blocks, judged, vectors = workshop.blocks["en"], tmp_path / "judged", tmp_path / "vectors"
    with sqlite_store(tmp_path):
        for name, settings in (("drawn", recipe), ("aligned", aligned)):
            data.open_run(settings.to_json(), "source", tmp_path / name)
        run = tmp_path / "aligned"
        run_job(VectorsJob(recipe=aligned, blocks=blocks, tokenizer=workshop.tokenizers["en"], out=vectors), run)
        judging = SourceEvaluationJob(
            recipe=aligned, primary=workshop.primary, text=workshop.texts["en"], blocks=blocks, out=judged
        )
        source.evaluate_source(judging, run)
        source.register_source(recipe.to_json(), tmp_path / "drawn", workshop.primary, [], judged)
        with pytest.raises(NotRegisteredError, match=r"without the source's static vectors, which .* 'aligned' needs"):
            fetched(aligned.to_json(), begun(aligned, tmp_path / "too-early"), tmp_path / "nothing")
        source.register_source(aligned.to_json(), run, workshop.primary, [], judged, [vectors])
        found = fetched(aligned.to_json(), begun(aligned, tmp_path / "language"), tmp_path / "found")
        kept, made = (Artifact.load(folder, Kind.VECTORS).manifest for folder in (found["vectors"], vectors))
        assert kept == made
        without = fetched(recipe.to_json(), begun(recipe, tmp_path / "other"), tmp_path / "without")
        assert list(without["vectors"].iterdir()) == []


def begun(recipe: Recipe, out: Path) -> Path:
    """The file that names a new language pipeline's run."""
    data.open_run(recipe.to_json(), "language", out)
    return out


def test_every_seed_is_registered_and_the_best_on_dev_is_champion(registered: Registered) -> None:
    name, recipe = task_name(registered.shop.recipe, "topic"), registered.shop.recipe
    versions = [MlflowClient().get_model_version_by_alias(name, f"seed-{seed}") for seed in (1, 2)]
    assert [version.tags["seed"] for version in versions] == ["1", "2"]
    best = max(versions, key=lambda version: (float(version.tags["dev_score"]), int(version.tags["seed"])))
    assert tracking.tags_of(name)["fingerprint"] == best.tags["fingerprint"]
    assert tracking.tags_of(primary_name(recipe))["recipe"] == recipe.digest()


@pytest.fixture
def post(workshop: Workshop, tmp_path: Path) -> Iterator[tuple[Path, Recipe]]:
    """A MINIPOST project's folder and recipe; its primary and mini-model are registered in its store."""
    recipe = workshop.recipe.model_copy(update={"mini": BUILDING, "tasks": ()}).for_system(System.MINIPOST)
    recipe = changed(recipe, "pretraining", steps=2, warmup_steps=0)

    def make(folder: Path) -> None:
        pretrain.pretrain(recipe, workshop.blocks["en"], workshop.tokenizers["en"], folder / "primary", ignore_metrics)
        with sqlite_store(folder):
            register(workshop, recipe, folder / "primary", folder / "source")

    with copied(once.folder("registered-post", make, recipe.to_json()), tmp_path / "post"):
        yield tmp_path / "post", recipe


def test_a_mini_model_is_registered_fetched_and_adapted_over(
    workshop: Workshop, post: tuple[Path, Recipe], tmp_path: Path
) -> None:
    folder, settings = post
    built = Artifact.load(folder / "source" / "mini", Kind.MINI)
    assert built.manifest.cost.steps == BUILDING.steps
    assert mini_name(settings) == "tiny-mini-minipost-1"
    tags = tracking.tags_of(mini_name(settings))
    primary = Artifact.load(folder / "primary", Kind.PRIMARY).fingerprint
    assert (tags["fingerprint"], tags["depth"], tags["aligned_with"]) == (built.fingerprint, "1", primary)
    recipe, run = settings.to_json(), begun(settings, tmp_path / "language")
    found = fetched(recipe, run, tmp_path / "fetched")
    assert load_mini(found["mini"]).fingerprint == built.fingerprint
    common = {"recipe": recipe, "primary": found["primary"], "mini": found["mini"], "blocks": workshop.blocks["de"]}
    tokenizer, embeddings = workshop.tokenizers["de"], tmp_path / "embeddings"
    run_job(AdaptationJob(depth=1, tokenizer=tokenizer, out=embeddings, **common), run)
    judging = language.EvaluateLanguage(
        task_folder=found["tasks"],
        embeddings=embeddings,
        text=workshop.texts["de"],
        source_evaluation=found["evaluation"],
        out=tmp_path / "result",
        **common,
    )
    language.evaluate_language(judging, run)
    result = load_language(tmp_path / "result")
    assert (result.system, result.depth, result.fresh_layers) == ("MINIPOST", 1, 2)

    deeper = settings.for_system(System.MINIPOST, 2).to_json()
    with pytest.raises(NotRegisteredError, match="'tiny-mini-minipost-2'"):
        fetched(deeper, run, tmp_path / "none")
