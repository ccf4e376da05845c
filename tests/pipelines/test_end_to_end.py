"""The pipelines from text to a registered bundle and a report, run once for real by kfp.local, and looked at.

In the language pipeline's first run German was killed once, Turkish diverged and Swahili had no text; the second run
did what was left.
"""

import re
from pathlib import Path

import mlflow
import optuna
import pytest

from lingraft import tracking
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.artifacts.names import bundle_name
from lingraft.data.languages import name_and_tag
from lingraft.reports.run.page import PAGE_FILE
from lingraft.reports.run.records import RunRecords, SampleAnswer
from lingraft.search.outcome import PAGE_FILE as SEARCH_PAGE
from lingraft.serving.bundle import Bundle
from lingraft.serving.served_models import served_models
from lingraft.stages import results
from pipelines.demo import ask_examples, write_report
from tests.made_up import TOPICS
from tests.pipelines.finished import Finished
from tests.pipelines.project import LANGUAGES, Seen
from tests.postgresql import PostgreSql
from tests.tracking_stores import quiet

pytestmark = [quiet, pytest.mark.integration]
TEXT_LANE = {"text", "tokenizer", "blocks"}
TASKS = ("topic", "reading")
BUNDLES = (*TASKS, "primary")


@pytest.fixture
def store(finished: Finished, monkeypatch: pytest.MonkeyPatch) -> str:
    """The store that the pipelines wrote, set as the one that lingraft reads."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", finished.uri)
    return finished.uri


def _lane(language: str) -> set[str]:
    return {f"{noun}-{language}" for noun in TEXT_LANE}


def _chosen(finished: Finished) -> int:
    (search,) = finished.made("depth-search", "search-depth", "search")
    return results.load_search(Path(search["uri"])).chosen


def test_every_pipeline_is_a_run_with_one_run_a_stage_and_all_finished(finished: Finished) -> None:
    runs = finished.runs()
    chosen = _chosen(finished)
    runs_over = ("de-1", f"de-{chosen}", "tr-1", "sw-1")
    trained = {f"{stage}-{run}" for stage in ("adapt", "evaluate") for run in runs_over}
    assert {pipeline: set(stages) for pipeline, (_, stages) in runs.items()} == {
        "source": _lane("en")
        | {"pretrain", "evaluate-source", "register-source"}
        | {f"finetune-{job}" for job in ("topic-1", "topic-2", "reading-1")},
        "depth-search": _lane("de") | {"fetch-source", "initialise-de", "try-depths-1", "search-depth"},
        "language": set().union(*map(_lane, LANGUAGES))
        | trained
        | {f"initialise-{language}" for language in LANGUAGES}
        | {"fetch-source", "report", *(f"register-{language}" for language in LANGUAGES)}
        | {f"bundle-{task}" for task in BUNDLES},
    }
    for parent, stages in runs.values():
        assert {run.info.status for run in (parent, *stages.values())} == {"FINISHED"}


@pytest.mark.usefixtures("store")
def test_a_pipelines_run_keeps_the_recipe(finished: Finished) -> None:
    for run, _ in finished.runs().values():
        kept = mlflow.artifacts.load_dict(f"{run.info.artifact_uri}/recipe.json")
        assert kept == finished.recipe.model_dump(mode="json")
        assert run.data.params["encoder.width"] == str(finished.recipe.encoder.width)


def test_every_stage_says_what_data_it_was_made_from(finished: Finished) -> None:
    (text,) = finished.artifacts("source", "prepare-text", "text", Kind.TEXT)
    params = {name: run.data.params for name, run in finished.runs()["source"][1].items()}
    assert params["text-en"]["data_documents"] == text.manifest.data_hashes["documents"]
    assert params["tokenizer-en"]["data_text"] == params["text-en"]["fingerprint"] == text.fingerprint
    assert params["blocks-en"]["data_text"] == text.fingerprint
    assert params["pretrain"]["data_blocks"] == params["blocks-en"]["fingerprint"]
    assert params["finetune-topic-1"]["data_text"] == text.fingerprint


def test_every_model_has_a_champion_that_says_which_primary_and_run_it_belongs_to(finished: Finished) -> None:
    models = {model.name for model in finished.client.search_registered_models()}
    theirs = {*(f"embeddings-{language}" for language in LANGUAGES), *(f"task-{name}" for name in TASKS)}
    theirs |= {f"bundle-{name}" for name in BUNDLES}
    assert models == {f"tiny-{name}" for name in ("primary", *theirs)}
    primary = finished.champion("primary").tags["fingerprint"]
    for name in theirs:
        assert finished.champion(name).tags["aligned_with"] == primary
    assert finished.champion("embeddings-tr").run_id == finished.stage("language", "register-tr").info.run_id


def test_the_language_is_adapted_over_the_depth_that_the_search_chose(finished: Finished) -> None:
    chosen = _chosen(finished)
    assert chosen != finished.recipe.adaptation.depth
    tags = finished.champion("primary").tags
    assert tags["depth.de"] == str(chosen)
    assert "depth.tr" not in tags
    assert finished.champion("embeddings-de").tags["depth"] == str(chosen)
    assert finished.champion("embeddings-tr").tags["depth"] == str(finished.recipe.adaptation.depth)


def test_the_search_leaves_its_trials_in_postgresql_and_its_page_in_kfp_and_mlflow(
    finished: Finished, databases: PostgreSql, tmp_path: Path
) -> None:
    (search,) = finished.made("depth-search", "search-depth", "search")
    (shown,) = finished.made("depth-search", "search-depth", "page")
    page = (Path(search["uri"]) / SEARCH_PAGE).read_text(encoding="utf-8")
    run = finished.stage("depth-search", "search-depth").info.run_id
    kept = Path(finished.client.download_artifacts(run, f"search/{SEARCH_PAGE}", str(tmp_path)))
    assert page == Path(shown["uri"]).read_text(encoding="utf-8") == kept.read_text(encoding="utf-8")
    storage = optuna.storages.RDBStorage(databases.address("optuna"))
    (study,) = storage.get_all_studies()
    trials = storage.get_all_trials(study._study_id)
    assert storage.get_best_trial(study._study_id).params == {"depth": _chosen(finished)}
    assert [trial.params["depth"] for trial in trials] == [2, 3]
    assert {trial.state.name for trial in trials} <= {"COMPLETE", "PRUNED"}
    storage.remove_session()
    storage.engine.dispose()


@pytest.mark.usefixtures("store")
def test_registered_bundles_serve_all_languages_with_the_champion_task_or_the_primary(
    finished: Finished, tmp_path: Path
) -> None:
    for task in BUNDLES:
        bundle = tracking.fetch(bundle_name(finished.recipe, task), Kind.BUNDLE, tmp_path / task)
        assert set(bundle.manifest.details["languages"]) == {"en", *LANGUAGES}
        found = bundle.manifest.record["parity"]["fp32"]
        logged = finished.stage("language", f"bundle-{task}").data.metrics
        for language in ("en", *LANGUAGES):
            assert found[language]["difference"] == pytest.approx(logged[f"parity_{language}"])
            assert logged[f"parity_{language}"] < 1e-4
        if task != "primary":
            assert bundle.manifest.data_hashes["task"] == finished.champion(f"task-{task}").tags["fingerprint"]
            assert float(finished.champion("embeddings-tr").tags[f"parity.{task}"]) < 1e-4
    opened = Bundle.load(tmp_path / "primary")
    assert set(served_models({opened.name: opened})) == {"fill-mask", "embeddings"}
    opened.run_self_test()


@pytest.mark.usefixtures("store")
def test_the_demo_asks_the_registered_bundle_in_every_language_that_has_an_example(
    finished: Finished, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "reading"
    task = finished.recipe.task(name)
    tracking.fetch(bundle_name(finished.recipe, name), Kind.BUNDLE, tmp_path / "bundle")
    returned = ask_examples(finished.recipe, task, tmp_path / "bundle")
    title, unasked, *answers, _ = capsys.readouterr().out.splitlines()
    assert (title, unasked) == (f"{name}:", "Not asked, for want of a text in [tasks.examples]: sw")
    told, asked = dict(zip(answers[::2], answers[1::2], strict=True)), ("en", *LANGUAGES[:-1])
    assert [*told] == [f"{name_and_tag(at)}: {' | '.join(task.asked(at).values())}" for at in asked]
    assert all(re.fullmatch(r"    -> '.+' \(\d+%\)", said) for said in told.values())
    assert [(each.task, each.language, each.texts) for each in returned] == [(name, at, task.asked(at)) for at in asked]


@pytest.mark.usefixtures("store")
def test_a_question_that_the_endpoint_refuses_costs_no_other_its_answer(
    finished: Finished, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = finished.recipe.task("topic")
    task = topic.model_copy(update={"examples": topic.examples | {"en": "kilo " * 500}})
    tracking.fetch(bundle_name(finished.recipe, "topic"), Kind.BUNDLE, tmp_path / "bundle")
    answered = ask_examples(finished.recipe, task, tmp_path / "bundle")
    assert "-> no answer: the endpoint refused the texts: " in capsys.readouterr().out
    assert [each.language for each in answered] == [language for language in task.examples if language != "en"]


@pytest.mark.usefixtures("store")
def test_the_demos_report_is_shown_by_kfp_and_has_the_answers_also_where_mlflow_keeps_it(
    finished: Finished, seen: Seen, tmp_path: Path
) -> None:
    (shown,) = finished.made("language", "write-report", "page")
    assert Path(shown["uri"]).read_text(encoding="utf-8") == (Path(seen.report) / PAGE_FILE).read_text(encoding="utf-8")
    answer = SampleAnswer(task="topic", language="de", texts={"text": "kilo de ba"}, found=(("x", 0.75),))
    records = RunRecords.load(Path(seen.report))
    run, _ = finished.runs()["language"]
    report = write_report(records.model_copy(update={"answers": (answer,)}), tmp_path / "report")
    kept = Path(finished.client.download_artifacts(run.info.run_id, "report", str(tmp_path)))
    assert RunRecords.load(kept).answers == RunRecords.load(report).answers == (answer,)
    assert "kilo de ba" in (kept / PAGE_FILE).read_text(encoding="utf-8")


def test_costs_confusion_matrices_and_scores_are_shown_in_kfp(finished: Finished) -> None:
    (primary,) = finished.artifacts("source", "pretrain", "primary", Kind.PRIMARY)
    (metrics,) = finished.made("source", "pretrain", "metrics")
    assert metrics["metadata"] == pytest.approx(primary.manifest.cost.model_dump())
    (evaluation,) = finished.artifacts("source", "evaluate-source", "evaluation", Kind.EVALUATION)
    task, *_ = results.load_source(evaluation.folder).tasks
    assert task.score.mean > task.baseline + 0.1  # made-up topics are learned
    judged = finished.made("language", "evaluate-language", "confusion")
    scores = finished.made("language", "evaluate-language", "metrics")
    evaluations = finished.artifacts("language", "evaluate-language", "evaluation", Kind.EVALUATION)
    assert len(judged) == 1 + len(LANGUAGES)
    for shown, score, evaluation in zip(judged, scores, evaluations, strict=True):
        result = results.load_language(evaluation.folder)
        task, *others = result.tasks
        assert {one.name: one.metric for one in others} == {"reading": "F1"}
        matrix = shown["metadata"]["confusionMatrix"]
        assert [spec["displayName"] for spec in matrix["annotationSpecs"]] == sorted(TOPICS)
        assert [row["row"] for row in matrix["rows"]] == task.confusion
        assert sum(map(sum, task.confusion)) == task.examples * len(task.score.by_seed)
        assert score["metadata"]["zero_shot_topic"] == pytest.approx(task.score.mean)


def test_the_report_covers_source_and_languages(finished: Finished, seen: Seen) -> None:
    report = Artifact.load(Path(seen.report), Kind.REPORT)
    records = RunRecords.load(report.folder)
    chosen = _chosen(finished)
    assert {(row.language, row.depth) for row in records.languages} == {
        ("de", chosen),
        *((language, 1) for language in LANGUAGES),
    }
    assert records.source.language == "en"
    assert {language: verdict.promoted for language, verdict in records.verdicts.items()} == dict.fromkeys(
        LANGUAGES, True
    )
    german = finished.champion("embeddings-de")
    assert (records.verdicts["de"].version, records.verdicts["de"].run) == (int(german.version), german.run_id)


def test_the_runs_of_pipelines_open_with_their_results(finished: Finished) -> None:
    runs = {pipeline: run for pipeline, (run, _) in finished.runs().items()}
    assert [runs[pipeline].info.run_name for pipeline in ("source", "depth-search", "language")] == [
        "source: English",
        "depth-search: German",
        "language: German, Turkish, Swahili",
    ]
    assert (
        runs["source"].data.tags["mlflow.note.content"].startswith("**A primary of 3 layers in English (en)**: masked")
    )
    searched = runs["depth-search"].data.tags["mlflow.note.content"]
    assert searched.startswith(f"**{_chosen(finished)} layers are the best for German (de)**, of 2 trials. ")
    assert all(run.data.metrics for run in runs.values())
    run = runs["language"]
    note = run.data.tags["mlflow.note.content"]
    assert note.startswith("**From English (en) to German (de), Turkish (tr), Swahili (sw).**")
    assert note.count(" is promoted: ") == len(LANGUAGES)


def test_a_person_sees_steps_and_progress_and_nothing_else(finished: Finished, seen: Seen) -> None:
    steps = finished.recipe.pretraining.steps
    headlines = re.findall(r"^\[ *\d+ s\] step (\d+) of (\d+): ([\w-]+)", seen.screen, re.MULTILINE)
    source = headlines[: next(index for index, (number, *_) in enumerate(headlines) if index and number == "1")]
    assert sorted(int(number) for number, *_ in source) == [*range(1, len(source) + 1)]  # some run at once
    assert {total for _, total, _ in source} == {str(len(source))}
    kinds = [kind for *_, kind in source]
    first = kinds.index("open-run")
    assert kinds[first : first + 5] == ["open-run", "prepare-text", "train-tokenizer", "build-blocks", "pretrain"]
    assert all(int(number) <= int(total) for number, total, _ in headlines)
    assert headlines[-1][0] == headlines[-1][1]
    titles = re.findall(r"^\[ *\d+ s\] step \d+ of \d+: ([^,\n]+)", seen.screen, re.MULTILINE)
    assert {"train-tokenizer tr", "build-blocks de", "adapt tr depth 1", "evaluate-language sw"} <= {*titles}
    left = r"(about|at least) \d+ (s|min) left$"
    assert re.search(rf"step \d+ of \d+: [^\n]+, {left}", seen.screen, re.MULTILINE)
    lines = re.findall(r"^ +pretrain en: step \d+/\d+, .*, (\d+) s left(.*)$", seen.screen, re.MULTILINE)
    assert lines
    assert all(re.fullmatch(rf"; all steps: {left}", rest) for left_s, rest in lines if int(left_s) > 0)
    assert f"pretrain en: step {steps}/{steps}, loss " in seen.screen
    assert "search de: depth 2: step " in seen.screen
    assert "executor" not in seen.screen.lower()
    assert "{" not in seen.screen


def test_two_languages_are_learned_at_the_same_time(finished: Finished) -> None:
    """In the run with faults, in which nothing had been done before; Swahili had no text."""
    _, stages = finished.runs(which=0)["language"]
    spans = []
    for language in LANGUAGES[:2]:
        its = [run.info for name, run in stages.items() if language in name.split("-")]
        assert len(its) >= len(TEXT_LANE)
        spans.append((min(run.start_time for run in its), max(run.end_time for run in its)))
    assert max(begin for begin, _ in spans) < min(end for _, end in spans)


def test_each_language_fails_by_its_own_reason_and_only_what_may_heal_was_tried_again(seen: Seen) -> None:
    assert "2 of 3 languages failed" in seen.failure
    assert re.search(
        r"tr: the loss or a gradient is not finite at step \d+ of \d+ \(learning rate [\d.e-]+\)", seen.failure
    )
    assert re.search(r"sw: .*sw\.jsonl", seen.failure)
    assert "de:" not in seen.failure.partition("failed, the others")[2]
    assert "the process of step 'adapt' was killed: attempt 2 of 3" in seen.faulty_log
    assert seen.faulty_log.count("attempt ") == 1


def test_what_was_learned_is_registered_and_the_report_tells_the_rest(finished: Finished, seen: Seen) -> None:
    assert seen.learned == ["de"]
    run, stages = finished.runs(which=0)["language"]
    assert run.info.status == "FAILED"
    assert stages["report"].info.status == "FINISHED"
    page, *_ = sorted(finished.folder.glob("runs/**/write-report*/page"))
    assert "sw.jsonl" in page.read_text(encoding="utf-8")


def test_run_again_the_others_are_learned_and_nothing_is_learned_twice(finished: Finished, seen: Seen) -> None:
    assert len(seen.trained) == 2  # German, over the recipe's depth and the one that was chosen
    assert seen.trained.items() < seen.trained_at_last.items()
    assert len(seen.trained_at_last) == 1 + len(LANGUAGES)
    for language in LANGUAGES:
        assert finished.champion(f"embeddings-{language}").tags["language"] == language
