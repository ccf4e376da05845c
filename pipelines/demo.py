"""The demo from text to a served answer, as `make demo` runs it: three pipelines, a report, an endpoint."""

import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from kfp.dsl import base_component

from lingraft import tracking
from lingraft.artifacts.files import write_json
from lingraft.artifacts.manifest import Kind
from lingraft.artifacts.names import bundle_kinds, bundle_name, primary_name
from lingraft.config.recipe import Recipe
from lingraft.config.tasks import Task
from lingraft.console import PlannedStep, TotalProgress, command_line
from lingraft.data.languages import name_and_tag
from lingraft.errors import NotRegisteredError, RequestError
from lingraft.reports.run.page import PAGE_FILE, write
from lingraft.reports.run.records import RunRecords, SampleAnswer
from lingraft.reports.run.tables import as_text
from lingraft.tracking.bundles import require_droppable
from pipelines import build, local
from pipelines.endpoint import embed, predict, run_server
from pipelines.page_index import PageIndex, search_table, searches
from pipelines.plan import planned_steps

TIME_FILE = "time.json"
"""File in the folder of results with the time of the last run that did everything itself."""


def run(recipe: Recipe, out: Path, compare: bool, drop_languages: Sequence[str] = ()) -> None:
    """Run source, depth search and language pipelines, print the table, and query the endpoint.

    Args:
        recipe: recipe to run.
        out: folder for everything that is made.
        compare: whether to adapt over all layers as well; a primary that is registered already is reused.
        drop_languages: languages of an earlier run in `out` that are to leave its bundles.
    """
    started = time.monotonic()
    local.set_up(out)
    if drop_languages:
        require_droppable(tracking.connect(creates=True), recipe, recipe.targets, drop_languages)
    whole = not (compare and _is_registered(recipe))
    before = [build.source_pipeline(recipe), *([build.depth_search_pipeline(recipe)] if recipe.search else [])]
    if not whole:
        before = []
    language = build.language_pipeline(recipe)
    plan = [step for pipeline in before for step in planned_steps(pipeline, {})] + planned_steps(
        language, {"compare": compare}
    )
    print("\n".join(announcement(recipe, [*before, language], plan, out)))
    progress = TotalProgress(plan)
    for pipeline in before:
        local.run(pipeline, out, progress)
    indices = {task.name: PageIndex.of(recipe, task, out / "search") for task in searches(recipe)}
    # A whole run makes a new primary and new tasks on purpose.
    allowed = {"new_primary": whole, "new_labels": whole, "drop_languages": [*drop_languages]}
    first_report = local.run(language, out, progress, compare=compare, **allowed)
    assert first_report is not None
    records = RunRecords.load(first_report)
    print(f"\n{as_text(records)}\n")
    bundles = _fetch_bundles(recipe, out / "bundle")
    answers = []
    for task in (task for task in recipe.tasks if task.name in bundles):
        index = indices.get(task.name)
        if index:
            print(*search_table(records, task.name), "", sep="\n")
        elif task.kind == "retrieval":
            continue  # there is nothing to search in
        answers += ask_examples(recipe, task, bundles[task.name], index)
    records = records.model_copy(update={"answers": tuple(answers)})
    report = write_report(records, out / "report")
    if bundles:
        command = command_line(Path(sys.executable).with_name("lingraft"), "serve", *bundles.values())
        print(f"Serve:  {command}\n        and try it on http://localhost:8080/ui")
    print(f"Report: {(report / PAGE_FILE).resolve()}")
    elapsed_s = time.monotonic() - started
    if whole and not progress.done_earlier:
        write_json(out / TIME_FILE, {"elapsed_s": round(elapsed_s, 1)})
    print(f"Time: {_time_taken(elapsed_s, progress)}")


def announcement(
    recipe: Recipe, pipelines: Sequence[base_component.BaseComponent], plan: Sequence[PlannedStep], out: Path
) -> list[str]:
    """Return lines about what a run will do.

    Args:
        recipe: recipe to run.
        pipelines: pipelines in order.
        plan: steps of the pipelines.
        out: folder for everything that is made.
    """
    asked = ", ask it a question in each language" if any(task.examples for task in recipe.tasks) else ""
    source = name_and_tag(recipe.source.language)
    targets = ", ".join(map(name_and_tag, recipe.targets))
    settings = recipe.adaptation
    numbers = {each.kind for each in plan}
    lines = [f"{len(pipelines)} pipelines, {len(plan)} steps:"]
    if "pretrain" in numbers:
        tasks = f", finetune it on {', '.join(task.name for task in recipe.tasks)}" if recipe.tasks else ""
        lines.append(f"  - {source}: pretrain {recipe.primary_shape.layers} layers{tasks}")
    if "import-model" in numbers:
        lines.append(f"  - {source}: import {recipe.source.model}")
    if "try-depths" in numbers:
        lines.append(f"  - {name_and_tag(recipe.require_search().language)}: search the mini-model's depth")
    lines += [
        f"  - {targets}: learn embeddings over the bottom layers "
        f"({settings.initialisation}, {settings.steps:,} updates)",
        f"  - evaluate all of them, export and serve a bundle{asked}",
    ]
    return [
        *lines,
        "Each step says how much is left.",
        f"Results go to {out}. After a stop, run the same again to go on.",
    ]


def _time_taken(elapsed_s: float, progress: TotalProgress) -> str:
    """Return the seconds of this run, and how much of the work earlier runs have done, whose time is not known."""
    if not progress.done_earlier:
        return f"{elapsed_s:.0f} s"
    return (
        f"{elapsed_s:.0f} s for this run; {progress.done_earlier} of {progress.started} steps had been done "
        "before, and the time of earlier runs is not in it"
    )


def _is_registered(recipe: Recipe) -> bool:
    try:
        return tracking.tags_of(primary_name(recipe)).get("recipe") == recipe.digest()
    except NotRegisteredError:
        return False


def _fetch_bundles(recipe: Recipe, out: Path) -> dict[str, Path]:
    """Download the registered bundles, each to a folder of its own, a lone one to `out`, and return them by name.

    A task in which no language has passed the gate has no bundle.
    """
    shutil.rmtree(out, ignore_errors=True)
    names = bundle_kinds(recipe)
    folders = {name: out if len(names) == 1 else out / name for name in names}
    fetched = {}
    for name, folder in folders.items():
        try:
            tracking.fetch(bundle_name(recipe, name), Kind.BUNDLE, folder)
            fetched[name] = folder
        except NotRegisteredError:
            print(f"{name}: no language has passed the gate, so there is nothing to serve; the report says why.")
    return fetched


def ask_examples(recipe: Recipe, task: Task, bundle: Path, index: PageIndex | None = None) -> list[SampleAnswer]:
    """Serve a task's bundle, query it with the recipe's example of every language, and print and return the answers.

    A retrieval task turns questions into vectors, by which an index is asked.

    A question that the endpoint refuses, such as one that is too long, is printed with the reason, and left out.
    """
    print(f"{task.name}:")
    if unasked := sorted(set(recipe.languages) - set(task.examples)):
        print(f"Not asked, for want of a text in [tasks.examples]: {', '.join(unasked)}")
    answers = []
    with run_server([bundle]) as server:
        for language in task.examples:
            texts = task.asked(language)
            print(f"{name_and_tag(language)}: {' | '.join(texts.values())}")
            try:
                if index:
                    found = index.nearest(embed(server.url, [*texts.values()], language, task.name, "query"))
                else:
                    found = predict(server.url, task.name, texts, language)
            except RequestError as error:
                print(f"    -> no answer: {error}")
                continue
            named = tuple((task.named(what), probability) for what, probability in found)
            said = ", ".join(f"{what} ({probability:.0%})" for what, probability in named) or "nothing"
            print(f"    -> {said}")
            answers.append(SampleAnswer(task=task.name, language=language, texts=dict(texts), found=named))
    if index:
        index.require_unchanged()
        print(f"{index.file}: sha256 {index.sha256}, as it was before a language was learned")
    print()
    return answers


def write_report(records: RunRecords, out: Path) -> Path:
    """Write the report with the endpoint's answers, and store it with the pipeline's run in place of the first one."""
    shutil.rmtree(out, ignore_errors=True)
    made = write(records, out)
    if records.tracked:
        tracking.log_artifact(tracking.connect(), records.tracked.run, made, "report")
    return out
