"""Components called as KFP's executor calls them: with KFP's own artifacts, whose paths and metadata they use."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from kfp import dsl

from components import data, language, source
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.failures import failure_reason
from lingraft.artifacts.manifest import Kind
from lingraft.steps import runner
from tests.made_up import TOPICS
from tests.tracking_stores import quiet, sqlite_store
from tests.workshop import Workshop

pytestmark = quiet


@dataclass(frozen=True)
class Bench:
    """A folder of KFP artifacts beside a finished project, with a tracking run to stand under."""

    folder: Path
    shop: Workshop
    run: dsl.Artifact
    recipe: dsl.Artifact

    def output(self, name: str, kind: type[dsl.Artifact] = dsl.Artifact) -> dsl.Artifact:
        """An artifact that is yet to be written."""
        return kind(name=name, uri=str(self.folder / name))


def given(folder: Path, kind: type[dsl.Artifact] = dsl.Artifact) -> dsl.Artifact:
    """An artifact that an earlier step wrote."""
    return kind(name=folder.name, uri=str(folder))


@pytest.fixture(scope="module")
def bench(workshop: Workshop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("bench")
    with sqlite_store(folder):
        recipe = dsl.Artifact(name="recipe", uri=str(folder / "recipe.json"))
        made = Bench(folder, workshop, dsl.Artifact(name="run", uri=str(folder / "run")), recipe)
        data.check_inputs.python_func(workshop.recipe.to_json(), "tiny.toml", "source", [], [], recipe)
        data.open_run.python_func(recipe, "source", "run-1", made.run)
        yield made


@pytest.fixture(scope="module")
def evaluated(bench: Bench) -> tuple[dsl.Metrics, dsl.ClassificationMetrics]:
    """What the evaluation and the registration of the source show; afterwards the primary is in the registry."""
    primary, evaluation = given(bench.shop.primary, dsl.Model), bench.output("evaluation")
    metrics, confusion = dsl.Metrics(), dsl.ClassificationMetrics()
    tasks = [given(folder, dsl.Model) for folder in bench.shop.tasks.values()]
    folders = given(bench.shop.texts["en"]), given(bench.shop.blocks["en"])
    source.evaluate_source.python_func(
        bench.recipe, bench.run, primary, *folders, evaluation, metrics, confusion, tasks
    )
    source.register_source.python_func(bench.recipe, bench.run, primary, evaluation, tasks)
    return metrics, confusion


def test_text_tokenizer_and_blocks_go_from_path_to_path(bench: Bench) -> None:
    text, tokenizer, blocks = (bench.output(name) for name in ("text", "tokenizer", "blocks"))
    data.prepare_text.python_func(bench.recipe, bench.run, "de", text)
    data.train_tokenizer.python_func(bench.recipe, bench.run, text, tokenizer)
    data.build_blocks.python_func(bench.recipe, bench.run, text, tokenizer, blocks)
    expected = Artifact.load(bench.shop.blocks["de"], Kind.BLOCKS)
    assert Artifact.load(Path(blocks.path), Kind.BLOCKS).fingerprint == expected.fingerprint


def test_an_evaluation_fills_metrics_and_confusion_matrix(
    bench: Bench, evaluated: tuple[dsl.Metrics, dsl.ClassificationMetrics]
) -> None:
    metrics, confusion = evaluated
    heads = bench.shop.recipe.encoder.mlm_heads
    assert metrics.metadata.keys() == {
        "topic_accuracy",
        "topic_macro_F1",
        *(f"masked_accuracy_depth_{depth}" for depth in heads),
    }
    matrix = confusion.metadata["confusionMatrix"]
    assert [spec["displayName"] for spec in matrix["annotationSpecs"]] == sorted(TOPICS)
    assert sum(sum(row["row"]) for row in matrix["rows"]) > 0


def test_an_evaluation_without_a_task_has_no_matrix(bench: Bench) -> None:
    metrics, confusion = dsl.Metrics(), dsl.ClassificationMetrics()
    folders = (given(folder) for folder in (bench.shop.primary, bench.shop.texts["en"], bench.shop.blocks["en"]))
    source.evaluate_source.python_func(
        bench.recipe, bench.run, *folders, bench.output("without-task"), metrics, confusion
    )
    assert "topic_accuracy" not in metrics.metadata
    assert confusion.metadata["confusionMatrix"]["rows"] == []


def test_a_language_whose_depths_cannot_be_asked_for_fails_alone(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv(runner.RETRIES, "0")
    depths, embeddings, metrics = bench.output("no-depths"), bench.output("unlearned", dsl.Model), dsl.Metrics()
    [depth] = language.depths_of.python_func(bench.recipe, "de", False, depths)
    shop, nothing = bench.shop, bench.output("nothing", dsl.Model)
    inputs = given(shop.primary, dsl.Model), nothing, given(shop.blocks["de"]), given(shop.tokenizers["de"])
    initial = given(shop.embeddings["de"], dsl.Model)
    language.adapt.python_func(bench.recipe, bench.run, depth, *inputs, initial, depths, embeddings, metrics)
    assert "127.0.0.1" in str(failure_reason(Path(embeddings.path)))


@pytest.mark.usefixtures("evaluated")
def test_a_language_is_adapted_and_judged_without_a_mini_model(bench: Bench) -> None:
    shop, embeddings, evaluation = bench.shop, bench.output("embeddings", dsl.Model), bench.output("judged")
    names = ("primary", "tasks", "evaluation", "mini", "vectors")
    fetched = {name: bench.output(f"for-language-{name}", dsl.Model) for name in names}
    source.fetch_source.python_func(bench.recipe, bench.run, **fetched)
    primary, mini, blocks = fetched["primary"], fetched["mini"], given(shop.blocks["de"])
    tokenizer, metrics, confusion = given(shop.tokenizers["de"]), dsl.Metrics(), dsl.ClassificationMetrics()
    initial, text = bench.output("initial", dsl.Model), given(shop.texts["de"])
    start = primary, tokenizer, blocks, fetched["vectors"], initial
    language.initialise.python_func(bench.recipe, bench.run, *start)
    made = mini, blocks, tokenizer, initial, given(shop.blocks["de"])
    language.adapt.python_func(bench.recipe, bench.run, 1, primary, *made, embeddings, metrics)
    learned, expected = (Artifact.load(at, Kind.EMBEDDINGS) for at in (Path(embeddings.path), shop.embeddings["de"]))
    assert learned.manifest.fingerprints == expected.manifest.fingerprints
    started_from = Artifact.load(Path(initial.path), Kind.EMBEDDINGS).fingerprint
    assert learned.manifest.data_hashes["initial"] == started_from
    folders = primary, mini, fetched["tasks"], embeddings, initial, text, blocks, fetched["evaluation"], evaluation
    language.evaluate_language.python_func(bench.recipe, bench.run, *folders, metrics, confusion)
    assert Artifact.load(Path(evaluation.path), Kind.EVALUATION).manifest.data_hashes["initial"] == started_from
    wanted = {"zero_shot_topic", "zero_shot_topic_initial", "masked_accuracy_mini", "alignment_top", "steps"}
    assert wanted <= metrics.metadata.keys()
    assert len(confusion.metadata["confusionMatrix"]["rows"]) == len(TOPICS)
