"""Commands that a reader of the report is likely to need next, with the names of this project filled in."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from lingraft.artifacts.addresses import sqlite_file
from lingraft.artifacts.names import bundle_kinds, bundle_name, embeddings_name
from lingraft.config.recipe import Recipe
from lingraft.config.tasks import Task
from lingraft.data.languages import language_name
from lingraft.reports.run.records import RunRecords, TrackedRuns

_ENDPOINT = "http://localhost:8080"


class NextStep(NamedTuple):
    """One thing to do."""

    purpose: str
    """Sentence on what it is good for."""
    commands: tuple[str, ...]
    link: str = ""
    """Address of a page to do it on."""


def next_steps(records: RunRecords) -> list[NextStep]:
    """Return what to do with what was made: look at it, serve it, ask it, publish it, take it back, go on."""
    recipe = records.recipe
    tracked = records.tracked
    if recipe is None or tracked is None:
        return list(_without_registry())
    return [*_tracked(recipe, tracked), *_registered(records, recipe), *_further(records, recipe, tracked)]


def _without_registry() -> Iterator[NextStep]:
    inputs = "--primary PRIMARY --task TASK --embeddings EMBEDDINGS"
    yield NextStep(
        f"Serve the languages: bundle them with a task, and start an endpoint. {_ENDPOINT}/ui is a page to try it on.",
        (f"lingraft export onnx {inputs} --out bundle", "lingraft serve bundle"),
    )
    yield NextStep(
        "Judge another language or depth, and give its folder to the report as well.",
        (f"lingraft evaluate --recipe RECIPE {inputs} --text TEXT --blocks BLOCKS --out EVALUATION",),
    )


def mlflow_ui_command(tracked: TrackedRuns) -> str:
    """Return the command that opens MLflow's pages on a store that is no server."""
    return f"mlflow ui --backend-store-uri {shlex.quote(tracked.uri)} --workers 1"


def _tracked(recipe: Recipe, tracked: TrackedRuns) -> Iterator[NextStep]:
    store = shlex.quote(tracked.uri)
    pages = () if tracked.is_server else (mlflow_ui_command(tracked),)
    yield NextStep("Open MLflow's pages on the runs and models.", pages, tracked.link())
    yield NextStep(
        "Tell lingraft which registry to use, and list every version, with the champions marked.",
        (f"export MLFLOW_TRACKING_URI={store}", f"lingraft registry ls --project {recipe.name}"),
    )


def _registered(records: RunRecords, recipe: Recipe) -> Iterator[NextStep]:
    for name in bundle_kinds(recipe)[:1]:
        model = bundle_name(recipe, name)
        yield NextStep(
            f"Serve the registered bundle. {_ENDPOINT}/ui is a page to try it on.",
            (f"lingraft registry pull {model} --out bundle", "lingraft serve bundle"),
        )
        yield from (_ask_endpoint(task) for task in recipe.tasks if task.name == name and task.examples)
        yield NextStep(
            "Publish the champion's languages to endpoints that run already and follow the folder PUBLISHED.",
            (f"lingraft publish champion {model} --to PUBLISHED --once",),
        )
    if records.refused:
        models = [embeddings_name(recipe, language) for language in records.refused]
        yield NextStep(
            "Read every check of the gate on a language that it refused.",
            tuple(f"lingraft registry show {model}" for model in models),
        )
    promoted = [verdict.model for verdict in records.verdicts.values() if verdict.promoted]
    if promoted:
        yield NextStep(
            "See what taking a language's last promotion back would do; without --dry-run it is done.",
            (f"lingraft registry rollback {promoted[0]} --dry-run",),
        )


def _ask_endpoint(task: Task) -> NextStep:
    language = [*task.examples][-1]
    inputs = [
        {"name": name, "shape": [1], "datatype": "BYTES", "data": [text]}
        for name, text in {**task.asked(language), "language": language}.items()
    ]
    body = shlex.quote(json.dumps({"inputs": inputs}, ensure_ascii=False))
    curl = f"curl -s {_ENDPOINT}/v2/models/{task.name}/infer -H 'Content-Type: application/json' -d {body}"
    return NextStep(f"Ask the endpoint a question in {language_name(language)}.", (curl,))


def _further(records: RunRecords, recipe: Recipe, tracked: TrackedRuns) -> Iterator[NextStep]:
    run = "python -m pipelines run language --recipe RECIPE"
    results = ""
    if not tracked.is_server:  # a local run keeps what it has made beside its store
        results = shlex.quote(str(Path(sqlite_file(tracked.uri)).parent))
        run += f" --out {results}"
    if not any(result.standard for result in records.languages):
        yield NextStep(
            f"Compare with standard adaptation over all {records.source.layers} layers.", (f"{run} --compare",)
        )
    yield NextStep(
        f"Add a language: name it in “targets” of the recipe “{recipe.name}”, provide its text, and run the "
        "language pipeline again. What was made before is not made again.",
        (run,),
    )
    if results:
        yield NextStep(
            "Or add a language by itself, and then register it as the last line says.",
            (f"lingraft add-language --results {results} --text FILES --lang CODE --out NEW",),
        )
