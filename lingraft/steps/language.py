"""Steps that run once for each language: depths, evaluation, registration; then bundle and report."""

import html
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from typing_extensions import override

from lingraft import tracking
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.failures import (
    LanguagesFailedError,
    failure_reason,
    load_outcome,
    require_success,
    write_failure,
)
from lingraft.artifacts.files import write_json
from lingraft.artifacts.manifest import Kind, read_manifest
from lingraft.artifacts.names import bundle_name, embeddings_name, primary_name, task_folders
from lingraft.config.recipe import Recipe
from lingraft.config.tasks import PRIMARY
from lingraft.console import say
from lingraft.data.languages import language_name
from lingraft.errors import DepthError
from lingraft.jobs.evaluation import LanguageEvaluationJob
from lingraft.jobs.launchable import Input, InputList, Launchable, Output
from lingraft.reports.run.records import GateVerdict, RunRecords
from lingraft.stages.results import LanguageResult, load_language, load_source, zero_shot
from lingraft.steps.run_job import (
    Scores,
    ScoresAndConfusion,
    confusion_of,
    promote_version,
    recalls,
    requester,
)
from lingraft.tasks.dev_score import dev_score_and_seed
from lingraft.tracking.bundles import renew_bundle
from lingraft.tracking.evidence import register_judged
from lingraft.tracking.gate import refusal_reason, sentences
from lingraft.tracking.promotion import AllowedChanges, languages_of, verdict_on
from lingraft.tracking.tags import parity_of
from lingraft.tracking.versions import download, version_by_alias, versions_of

REFUSED = "refused."
"""Prefix of tags of a pipeline's run that say why a bundle was not promoted; the bundle's name follows."""
_PRECONDITIONS = ("aligned", "parity")
"""Checks that do not measure quality; a report shows them only if they fail."""


class DepthChoice(Launchable, frozen=True):
    """Chooses the depths to adapt a language over."""

    failed_result: ClassVar[Any] = [0]  # a depth for an adaptation that fails for the same reason
    language: str
    compare: bool
    """Whether to adapt over all layers as well."""
    out: Output


class EvaluateLanguage(LanguageEvaluationJob, frozen=True):
    """A language's evaluation on the tasks of a folder, `<task>/seed-<seed>`."""

    failed_result: ClassVar[Any] = ({}, [], [])
    task_folder: Input

    @property
    @override
    def inputs(self) -> dict[str, Path]:
        return {name: folder for name, folder in super().inputs.items() if name != "task_folder"}


class LanguageRegistration(Launchable, frozen=True):
    """Registers a language's embeddings."""

    tasks: Input
    """Folder of finetuned tasks."""
    embeddings: InputList
    evaluations: InputList
    """One for each of `embeddings`."""
    chosen: Output
    """The champion, old or new, to be served."""
    results: Output
    """All evaluations of the language."""


class BundleExport(Launchable, frozen=True):
    """Exports and promotes the bundle of a task."""

    task: str
    """One of `lingraft.artifacts.names.bundle_kinds`: a task, or the primary itself."""
    primary: Input
    tasks: Input
    """Folder of finetuned tasks."""
    embeddings: InputList
    """Embeddings of the run's languages; a folder may have the reason of a failure instead."""
    out: Output
    drop_languages: tuple[str, ...] = ()
    """Languages to leave out, even if they are in production."""
    new_primary: bool = False
    """Whether the primary may differ from the champion's."""
    new_labels: bool = False
    """Whether kind of task and labels may differ from the champion's."""
    records_failure: bool = True


def choose_depths(given: DepthChoice, run: Path | None = None) -> list[int]:
    """Return the depths to adapt a language over: the recipe's, the searched one, and all layers to compare with."""
    recipe = given.recipe
    chosen = _chosen_depth(recipe, given.language)
    whole = [recipe.encoder.layers] if given.compare else []
    found = sorted({recipe.adaptation.depth, chosen, *whole})
    write_json(given.out / "depths.json", found)
    return found


def evaluate_language(given: EvaluateLanguage, run: Path) -> ScoresAndConfusion:
    """Evaluate one language."""
    job = given.model_copy(update={"tasks": tuple(task_folders(given.recipe, given.task_folder))})
    with tracking.stage(run.read_text(), job.name) as stage:
        made = job.get_or_make()
        result = load_language(job.out)
        scores = {f"masked_accuracy_{name}": score for name, score in result.masked_scores.items()}
        scores |= result.alignment_metrics
        scores |= zero_shot(result)
        stage.record(made, scores | recalls(result.tasks))
    return scores, *confusion_of(result.tasks)


def register_language(given: LanguageRegistration, run: Path) -> str | None:
    """Register the embeddings of the language's own depth, and make them champion if they pass the gate.

    The language's own depth is the one a search chose for it, else the recipe's.

    Returns:
        Why the gate refused; None if it did not.

    Raises:
        DepthError: the language was not adapted over its own depth.
    """
    recipe = given.recipe
    judged = [load_language(folder) for folder in given.evaluations]
    for result, folder in zip(judged, given.evaluations, strict=True):
        Artifact.load(folder, Kind.EVALUATION).copy_to(given.results / f"{result.language}-{result.depth}")
    with tracking.stage(run.read_text(), f"register-{judged[0].language}") as stage:
        result, folder = _of_own_depth(recipe, judged, given.embeddings)
        name = embeddings_name(recipe, result.language)
        version = register_judged(
            stage=stage,
            name=name,
            embeddings=folder,
            evaluation=Artifact.load(given.results / f"{result.language}-{result.depth}", Kind.EVALUATION),
            gate=recipe.gate,
            parity=_task_parity(recipe, given.tasks, folder),
            recipe=recipe.digest(),
        )
        verdict = promote_version(stage, name, version, recipe.gate)
        if verdict.passed:
            Artifact.load(folder, Kind.EMBEDDINGS).copy_to(given.chosen)
            return None
        refused = refusal_reason(verdict.checks)
        say(f"Version {version} of {name!r} stays a challenger. {refused}")
        _hand_on_champion(stage, name, result.primary, given.chosen, refused)
        return refused


def _task_parity(recipe: Recipe, tasks: Path, embeddings: Path) -> dict[str, float]:
    """Return the parity of ONNX Runtime and PyTorch in each task with these embeddings."""
    from lingraft.export import measure_parity

    bodies = {task.name: _best_seed(recipe, tasks, task.name) for task in recipe.tasks}
    return {name: measure_parity(folder, embeddings) for name, folder in bodies.items()}


def _best_seed(recipe: Recipe, tasks: Path, task: str) -> Path:
    made = [Artifact.load(each, Kind.TASK) for each in task_folders(recipe, tasks) if each.parent.name == task]
    return max(made, key=lambda each: dev_score_and_seed(each.manifest.details)).folder


def _hand_on_champion(stage: tracking.StageRun, name: str, primary: str, chosen: Path, refused: str) -> None:
    """Write the embeddings to serve if the new ones were refused: the champion, or the reason if there is none."""
    champion = version_by_alias(stage.client, name)
    if champion and champion.primary == primary:
        download(champion, Kind.EMBEDDINGS, chosen)
    else:
        write_failure(chosen, f"no embeddings of {name!r} are good enough to be served: {refused}")


def _of_own_depth(
    recipe: Recipe, judged: Sequence[LanguageResult], embeddings: Sequence[Path]
) -> tuple[LanguageResult, Path]:
    language = judged[0].language
    by_depth = {result.depth: (result, folder) for result, folder in zip(judged, embeddings, strict=True)}
    own = _chosen_depth(recipe, language)
    if own not in by_depth:
        raise DepthError(
            f"{language!r} was adapted over depths {sorted(by_depth)}, but its own is now {own}: a search ended "
            "meanwhile. Run the language again."
        )
    return by_depth[own]


def export_bundle(given: BundleExport, run: Path) -> Scores:
    """Export a task's champion to ONNX, check parity, register the bundle, and promote it if it passes the gate.

    The bundle holds the languages of the current champion, and those of this run. If the gate refuses it, it stays
    registered, production stays as it is, and `require_languages` ends the run with the reason. If the run has no
    language to add, a bundle is made only to remove languages from production.
    """
    from lingraft import export

    recipe = given.recipe
    task = given.task
    out = given.out
    learned = [folder for folder in given.embeddings if not failure_reason(folder)]
    name = bundle_name(recipe, task)
    served = languages_of(version_by_alias(tracking.connect(), name)) if given.drop_languages else []
    if not learned and not {*given.drop_languages} & {*served}:
        write_failure(out, "no language of this run has embeddings that may be served, so the bundle stays as it is")
        return {}
    best = None if recipe.serve_primary and task == PRIMARY else _best_seed(recipe, given.tasks, task)

    def make(folders: Sequence[Path]) -> Artifact:
        shutil.rmtree(out, ignore_errors=True)  # of an attempt that another run has superseded
        return export.export_bundle(given.primary, best, folders, out, prompts=_examples(recipe, task))

    with tracking.stage(run.read_text(), f"bundle-{task}") as stage:
        renewed = renew_bundle(
            stage=stage,
            name=name,
            primary=Artifact.load(given.primary, Kind.PRIMARY).fingerprint,
            brought={str(read_manifest(folder).language): folder for folder in learned},
            make=make,
            tags={"recipe": recipe.digest()},
            allowed=AllowedChanges(
                drop_languages=given.drop_languages, new_primary=given.new_primary, new_labels=given.new_labels
            ),
            asked_by=requester(stage),
        )
        parity = {f"parity_{each}": difference for each, difference in parity_of(renewed.made.manifest).items()}
        stage.record(renewed.made, parity)
        if renewed.refused:
            refused = f"version {renewed.verdict.version} is registered, and not promoted: {renewed.refused}"
            stage.client.set_tag(run.read_text(), f"{REFUSED}{name}", refused)
    return parity


def _examples(recipe: Recipe, name: str) -> dict[str, dict[str, str]]:
    """Return a task's example texts by language; for a primary, the texts of the first task that has any."""
    tasks = [task for task in recipe.tasks if task.examples and name in (task.name, PRIMARY)]
    if not tasks:
        return {}
    asked = {language: tasks[0].asked(language) for language in tasks[0].examples}
    if name != PRIMARY:
        return asked
    return {language: {"text": texts.get("text") or texts["question"]} for language, texts in asked.items()}


def report(
    recipe: str, run: Path, evaluation: Path, results: Sequence[Path], outcomes: Sequence[Path], out: Path
) -> str:
    """Write the report of the source and its languages, with the reasons of failures, and return the page's HTML."""
    from lingraft.reports.run.page import write
    from lingraft.reports.run.tables import as_markdown, headline_metrics

    settings = Recipe.parse(recipe)
    parent = run.read_text()
    with tracking.stage(parent, "report") as stage:
        whole = [group for group in results if not failure_reason(group)]
        languages = [load_language(folder) for group in whole for folder in sorted(group.iterdir())]
        ended = [*map(load_outcome, outcomes)]
        failed = {each.language: each.failed for each in ended if each.failed}
        if not languages:
            write_failure(out, "no language succeeded, so there is nothing to report beside the source language")
            return f"<p>{html.escape('; '.join(f'{name}: {reason}' for name, reason in failed.items()))}</p>"
        records = RunRecords.of(
            source=load_source(evaluation),
            languages=languages,
            failed=failed,
            verdicts=_verdicts(stage, settings, languages),
            tracked=tracking.tracked_run(stage.client, parent),
        )
        made = write(records, out)
        tracking.log_artifact(stage.client, parent, made, "report")
        title = f"language: {', '.join(map(language_name, records.names))}"
        tracking.describe(stage.client, parent, title, as_markdown(records), headline_metrics(records))
    return (out / "report.html").read_text(encoding="utf-8")


def _verdicts(stage: tracking.StageRun, recipe: Recipe, languages: Sequence[LanguageResult]) -> dict[str, GateVerdict]:
    """Return the gate's verdict on each language's registered depth."""
    found = {}
    for each in languages:
        registered = versions_of(stage.client, embeddings_name(recipe, each.language))
        version = next((one for one in registered if one.fingerprint == each.embeddings), None)
        verdict = verdict_on(version) if version else None
        if version and verdict and each.depth == _chosen_depth(recipe, each.language):
            decisive = [check for check in verdict.checks if check.name not in _PRECONDITIONS]
            found[each.language] = GateVerdict(
                model=version.name,
                version=version.number,
                promoted=verdict.passed,
                reason=sentences(decisive) if verdict.passed else refusal_reason(verdict.checks),
                run=version.run_id,
            )
    return found


def require_languages(run: Path, outcomes: Sequence[Path]) -> None:
    """End the pipeline's tracking run as finished or failed, and log the outcome of each language and bundle.

    Raises:
        LanguagesFailedError: languages failed, or a bundle was not promoted; the message says which, and why.
    """
    run_id = run.read_text()
    found = tracking.connect().get_run(run_id).data.tags
    refused = {key.removeprefix(REFUSED): said for key, said in found.items() if key.startswith(REFUSED)}
    try:
        require_success([load_outcome(folder) for folder in outcomes], refused)
    except LanguagesFailedError:
        tracking.close_run(run_id, failed=True)
        raise
    tracking.close_run(run_id)


def _chosen_depth(recipe: Recipe, language: str) -> int:
    """Return the searched depth of a language, else the recipe's."""
    return int(tracking.tags_of(primary_name(recipe)).get(f"depth.{language}", recipe.adaptation.depth))
