"""What steps of a language add to stages beside tracking: which depth it has, and which results go where."""

from collections.abc import Iterator
from pathlib import Path

import mlflow
import pytest
from mlflow import MlflowClient

from lingraft import tracking
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.failures import LanguagesFailedError, failure_reason, write_failure, write_outcome
from lingraft.artifacts.manifest import Kind
from lingraft.artifacts.names import bundle_kinds, bundle_name, embeddings_name, primary_name
from lingraft.config.gate import PARITY_TOLERANCE
from lingraft.config.tasks import Finetuning, Task, TaskFile
from lingraft.errors import DepthError, PromotionError, TrackingError
from lingraft.reports.run.records import RunRecords
from lingraft.serving.bundle import Bundle
from lingraft.stages import results
from lingraft.steps import data, language, source
from tests.serving.kinds import LABELS, NAMES
from tests.steps.conftest import Registered
from tests.tiny import write_task
from tests.tracking_stores import quiet

pytestmark = quiet


@pytest.fixture
def searched(registered: Registered) -> Iterator[int]:
    """The depth that a search chose for German."""
    name = primary_name(registered.shop.recipe)
    tracking.tag(name, "depth.de", "2")
    yield 2
    MlflowClient().delete_model_version_tag(name, "1", "depth.de")


def depths_of(recipe: str, tag: str, compare: bool, out: Path) -> list[int]:
    return language.choose_depths(language.DepthChoice(recipe=recipe, language=tag, compare=compare, out=out))


def test_depths_are_the_recipes_the_searched_one_beside_it_and_all_layers_where_compared(
    registered: Registered, searched: int, tmp_path: Path
) -> None:
    assert depths_of(registered.recipe, "tr", False, tmp_path) == [1]
    assert depths_of(registered.recipe, "de", False, tmp_path) == [1, searched]
    assert depths_of(registered.recipe, "tr", True, tmp_path) == [1, 3]
    assert depths_of(registered.recipe, "de", True, tmp_path) == [1, searched, 3]
    other = registered.shop.recipe.model_copy(update={"name": "nameless"}).to_json()
    with pytest.raises(TrackingError, match="'nameless-primary'"):
        depths_of(other, "de", False, tmp_path)


def test_the_searched_depth_is_registered_and_all_results_are_handed_on(
    registered: Registered, searched: int, tmp_path: Path
) -> None:
    chosen, handed = tmp_path / "chosen", tmp_path / "results"
    run = registered.begin(tmp_path / "run")
    with pytest.raises(DepthError, match=r"'de' was adapted over depths \[3\], but its own is now 2"):
        registered.register(run, [registered.judged(3)], tmp_path / "not-chosen", tmp_path / "not-handed-on")
    assert MlflowClient().get_run(run.read_text()).info.status == "FAILED"

    registered.register(run, [registered.judged(depth) for depth in (1, searched)], chosen, handed)
    tags = tracking.tags_of(embeddings_name(registered.shop.recipe, "de"))
    assert tags["depth"] == str(searched)
    assert Artifact.load(chosen, Kind.EMBEDDINGS).fingerprint == tags["fingerprint"]
    assert {results.load_language(folder).depth for folder in handed.iterdir()} == {1, searched}


def test_without_a_task_a_language_is_judged_and_registered_by_masked_accuracy(
    registered: Registered, tmp_path: Path
) -> None:
    recipe = registered.shop.recipe.model_copy(update={"name": "taskless", "tasks": ()}).to_json()
    run, (embeddings, _), evaluation = tmp_path / "run", registered.judged(1), tmp_path / "evaluation"
    data.open_run(recipe, "language", run)
    source.register_source(recipe, run, registered.shop.primary, [], registered.evaluation)
    registered.evaluate(run, "de", embeddings, evaluation, recipe, tmp_path / "no tasks were written")
    assert results.load_language(evaluation).tasks == ()
    registered.register(run, [(embeddings, evaluation)], tmp_path / "chosen", tmp_path / "results", recipe)
    assert Artifact.load(tmp_path / "chosen", Kind.EMBEDDINGS).manifest.language == "de"


def test_the_report_has_the_gate_s_verdict_and_the_pipelines_run_opens_with_it(
    registered: Registered, tmp_path: Path
) -> None:
    run, outcome = registered.begin(tmp_path / "run"), tmp_path / "outcome"
    handed = tmp_path / "handed"
    refused = registered.register(run, [registered.judged(1)], tmp_path / "chosen", handed)
    write_outcome("de", handed, outcome, refused)

    page = language.report(registered.recipe, run, registered.evaluation, [handed], [outcome], tmp_path / "report")

    records = RunRecords.load(tmp_path / "report")
    [(tag, verdict)] = records.verdicts.items()
    version = MlflowClient().get_model_version_by_alias(verdict.model, tracking.CHAMPION)
    assert (tag, verdict.model) == ("de", embeddings_name(registered.shop.recipe, "de"))
    assert (verdict.promoted, verdict.version, verdict.run) == (True, int(version.version), version.run_id)
    assert "masked accuracy on the primary is" in verdict.reason
    assert records.tracked
    assert records.tracked.uri == mlflow.get_tracking_uri()
    parent = MlflowClient().get_run(run.read_text())
    assert records.tracked.run == parent.info.run_id
    assert parent.info.run_name == "language: German"
    note = parent.data.tags["mlflow.note.content"]
    assert note.startswith("**From English (en) to German (de).**")
    assert f"version {verdict.version} of {verdict.model!r} is promoted: {verdict.reason}" in note
    [result] = records.languages
    assert parent.data.metrics["de over 1 of 3/masked_accuracy"] == result.masked.primary
    assert parent.data.metrics["de over 1 of 3/topic_accuracy"] == result.task_scores["topic"].score.mean
    kept = mlflow.artifacts.load_text(f"{parent.info.artifact_uri}/report/report.html")
    assert kept == page == (tmp_path / "report" / "report.html").read_text(encoding="utf-8")
    language.require_languages(run, [outcome])
    assert MlflowClient().get_run(run.read_text()).info.status == "FINISHED"


def test_scores_stand_in_the_steps_output_and_in_the_evaluations_run(registered: Registered, tmp_path: Path) -> None:
    scores, labels, matrix = registered.evaluate(
        registered.begin(tmp_path / "run"), "de", registered.shop.embeddings["de"], tmp_path / "out"
    )
    result = results.load_language(tmp_path / "out")
    [task] = result.tasks
    assert task.initial
    assert result.alignment
    assert scores["alignment_top"] == result.alignment.top.accuracy
    assert scores["zero_shot_topic"] == task.score.mean
    assert scores["zero_shot_topic_initial"] == task.initial.mean
    assert (labels, matrix) == (task.labels, task.confusion)
    assert {name for name in scores if name.startswith("masked_accuracy_")} == {
        "masked_accuracy_mini",
        "masked_accuracy_primary",
        "masked_accuracy_mini_initial",
        "masked_accuracy_primary_initial",
    }
    [found] = MlflowClient().search_runs(
        [MlflowClient().get_experiment_by_name(registered.shop.recipe.name).experiment_id],
        f"params.fingerprint = '{Artifact.load(tmp_path / 'out', Kind.EVALUATION).fingerprint}'",
    )
    assert found.data.metrics["zero_shot_topic_macro_F1"] == pytest.approx(task.others["macro_F1"].mean)
    recalls = {name: value for name, value in found.data.metrics.items() if name.startswith("recall topic/")}
    assert recalls == {
        f"recall topic/{label}": pytest.approx(counts[place] / sum(counts))
        for place, (label, counts) in enumerate(zip(task.labels, task.confusion, strict=True))
    }


def test_every_kind_of_task_passes_the_gate_and_gets_a_bundle(registered: Registered, tmp_path: Path) -> None:
    run, tasks, primary = tmp_path / "run", tmp_path / "tasks", registered.shop.primary
    files = {split: TaskFile(kind="file", path="absent") for split in ("train", "dev", "test")}
    made = tuple(Task(name=name, kind=kind, finetuning=Finetuning(seeds=(1,)), **files) for kind, name in NAMES.items())
    settings = registered.shop.recipe.model_copy(update={"name": "of-every-kind", "tasks": made})
    for task in made:
        alone = settings.model_copy(update={"tasks": (task,)})
        write_task(alone, primary, tasks / task.name / "seed-1", seed=1, labels=LABELS.get(task.kind))
    recipe = settings.to_json()
    data.open_run(recipe, "language", run)
    source.register_source(recipe, run, primary, [tasks / task.name / "seed-1" for task in made], registered.evaluation)
    judged = registered.judged(1)
    assert registered.register(run, [judged], tmp_path / "chosen", tmp_path / "results", recipe, tasks) is None
    for task in made:
        parity = float(tracking.tags_of(embeddings_name(settings, "de"))[f"parity.{task.name}"])
        assert parity <= PARITY_TOLERANCE
        out = tmp_path / f"bundle-{task.name}"
        told = registered.bundle(run, judged[:1], out, task.name, recipe, tasks=tasks)
        opened, tags = Bundle.load(out), tracking.tags_of(bundle_name(settings, task.name))
        assert sorted(told) == ["parity_de", "parity_en"]
        assert (opened.kind, opened.fingerprint, tags["task_kind"]) == (task.kind, tags["fingerprint"], task.kind)


def accepted(registered: Registered, run: Path, folder: Path, language_tag: str = "de") -> Path:
    """Embeddings that the gate lets become champion, as the next step is given them."""
    judged = registered.judged(1)
    if language_tag != "de":
        judged = registered.shop.embeddings[language_tag], folder / f"evaluation-{language_tag}"
        registered.evaluate(run, language_tag, *judged)
    folders = folder / f"chosen-{language_tag}", folder / f"results-{language_tag}"
    assert registered.register(run, [judged], *folders) is None
    return folders[0]


def languages_of(model: str, folder: Path) -> list[str]:
    """Of the bundle that is champion."""
    found: list[str] = tracking.fetch(model, Kind.BUNDLE, folder).manifest.details["languages"]
    return found


def test_a_run_for_other_languages_leaves_those_in_production_there(registered: Registered, tmp_path: Path) -> None:
    """Whether the recipe has fewer targets, the run names fewer, or one of them has failed."""
    shop, name = registered.shop, "tiny-bundle-topic"
    task = shop.recipe.task().model_copy(update={"languages": (), "examples": {}})
    fewer = shop.recipe.model_copy(update={"targets": ("tr",), "tasks": (task,), "search": None})

    def bundle(number: int, *embeddings: Path, **allowed: object) -> Path:
        run, out = registered.begin(tmp_path / f"run-{number}"), tmp_path / f"bundle-{number}"
        registered.bundle(run, embeddings, out, recipe=fewer.to_json(), **allowed)
        return run

    run = registered.begin(tmp_path / "run")
    german, failed = accepted(registered, run, tmp_path), tmp_path / "failed"
    bundle(1, german)
    turkish = accepted(registered, run, tmp_path, language_tag="tr")
    bundle(2, turkish)
    assert languages_of(name, tmp_path / "two") == ["en", "de", "tr"]
    parts = [Artifact.load(tmp_path / folder, Kind.BUNDLE).manifest.files for folder in ("bundle-1", "bundle-2")]
    assert {file: mark for file, mark in parts[1].items() if not file.startswith("tr/")} == parts[0]
    write_failure(failed, "no text")
    bundle(3, german, failed)
    assert languages_of(name, tmp_path / "three") == ["en", "de", "tr"]
    bundle(4, failed, drop_languages=["sw"])
    assert failure_reason(tmp_path / "bundle-4")
    bundle(5, failed, drop_languages=["tr", "sw"])
    assert languages_of(name, tmp_path / "five") == ["en", "de"]


def test_a_language_to_drop_that_nothing_knows_is_refused_before_anything_is_computed(
    registered: Registered, tmp_path: Path
) -> None:
    run, model = registered.begin(tmp_path / "run"), "tiny-bundle-topic"
    registered.bundle(run, [accepted(registered, run, tmp_path)], tmp_path / "bundle")
    assert "de" in languages_of(model, tmp_path / "champion")

    def check(dropped: list[str]) -> None:
        data.check_inputs(registered.recipe, "tiny.toml", "language", ["tr"], dropped, tmp_path / "recipe.json")

    check(["de", "tr"])
    with pytest.raises(
        PromotionError, match=r"--drop-language names 'dee', but .* have .*'de'.*, and the run names 'tr'\."
    ):
        check(["de", "dee"])
    with pytest.raises(PromotionError, match="--drop-language names 'en', the source language"):
        check(["en"])


def test_a_bundle_that_is_refused_ends_the_run_with_the_reason(registered: Registered, tmp_path: Path) -> None:
    shop, run = registered.shop, registered.begin(tmp_path / "run")
    recipe = shop.recipe.model_copy(update={"name": "refusing"}).to_json()
    data.open_run(recipe, "language", run)
    source.register_source(recipe, run, shop.primary, list(shop.tasks.values()), registered.evaluation)
    data.open_run(recipe, "language", run)
    registered.bundle(run, [shop.embeddings["tr"]], tmp_path / "bundle", recipe=recipe)
    outcome = tmp_path / "outcome"
    write_outcome("tr", tmp_path, outcome)
    reason = r"refusing-bundle-topic: version 1 is registered, and not promoted: the gate has not accepted .* 'tr'"
    with pytest.raises(LanguagesFailedError, match=rf"stays as it is. {reason}"):
        language.require_languages(run, [outcome])
    assert MlflowClient().get_run(run.read_text()).info.status == "FAILED"


def test_a_primary_gets_a_bundle_of_its_own(registered: Registered, tmp_path: Path) -> None:
    shop, run = registered.shop, registered.begin(tmp_path / "run")
    recipe = shop.recipe.model_copy(update={"serve_primary": True})
    assert bundle_kinds(recipe) == ("topic", "primary")
    registered.bundle(run, [accepted(registered, run, tmp_path)], tmp_path / "bundle", "primary", recipe.to_json())
    opened, tags = Bundle.load(tmp_path / "bundle"), tracking.tags_of("tiny-bundle-primary")
    assert (opened.kind, opened.fingerprint, "task_kind" in tags) == ("primary", tags["fingerprint"], False)
    assert opened.examples == {"en": {"text": "ba de"}, "de": {"text": "ki lo"}}


def test_a_bundle_holds_the_champion_of_the_task_that_is_named(registered: Registered, tmp_path: Path) -> None:
    shop, run = registered.shop, registered.begin(tmp_path / "run")
    german = accepted(registered, run, tmp_path)
    task = shop.recipe.task().model_copy(update={"examples": {"tr": "va ze"}})
    recipe = shop.recipe.model_copy(update={"tasks": (task,)}).to_json()
    parity = registered.bundle(run, [german], tmp_path / "bundle", recipe=recipe)
    made = Artifact.load(tmp_path / "bundle", Kind.BUNDLE)
    found = [Artifact.load(folder, Kind.TASK) for folder in shop.tasks.values()]
    best = max(found, key=lambda one: (one.manifest.details["dev_score"], one.manifest.details["seed"]))
    assert made.manifest.data_hashes["task"] == best.fingerprint
    assert made.manifest.details["examples"] == {"tr": {"text": "va ze"}}  # not those that it was finetuned with
    assert tracking.tags_of("tiny-bundle-topic")["fingerprint"] == made.fingerprint
    assert sorted(parity) == ["parity_de", "parity_en"]

    # A run that changes nothing but examples brings them into production.
    task = task.model_copy(update={"examples": {"de": "ki lo"}})
    recipe = shop.recipe.model_copy(update={"tasks": (task,)}).to_json()
    registered.bundle(run, [german], tmp_path / "again", recipe=recipe)
    tracking.fetch("tiny-bundle-topic", Kind.BUNDLE, tmp_path / "champion")
    assert Bundle.load(tmp_path / "champion").examples == {"de": {"text": "ki lo"}}
