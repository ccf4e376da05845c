"""`python -m tests.pipelines.project FOLDER`: three pipelines from text to a report, run once for real for many tests.

MLflow and the search's storage are where the environment says. The language pipeline runs first with a fault in
each language (`tests.pipelines.faults`; Swahili's text is none), then without. What is only to be seen meanwhile is
written into `seen.json`.
"""

import contextlib
import io
import json
import multiprocessing
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from kfp import compiler, components
from mlflow import MlflowClient

from lingraft.config.recipe import Recipe
from pipelines import build, forkserver, local
from tests.made_up import write
from tests.pipelines import faults
from tests.pipelines.finished import tiny
from tests.pipelines.made_up_tasks import tasks

LANGUAGES = ("de", "tr", "sw")


@dataclass(frozen=True)
class Seen:
    """What the pipelines show while they run, and between two runs."""

    screen: str
    """What a person saw."""
    report: str
    """The folder of the last run's report."""
    failure: str
    """How the run with faults ended."""
    faulty_log: str
    learned: list[str]
    """Languages in the registry after the run with faults."""
    trained: dict[str, int]
    """When each of the embeddings that there were then had been made, by file."""
    trained_at_last: dict[str, int]

    @classmethod
    def load(cls, folder: Path) -> "Seen":
        return cls(**json.loads((folder / "seen.json").read_text(encoding="utf-8")))


def recipe_in(folder: Path) -> Recipe:
    """Two tasks and a primary with bundles, three languages of which two are learned at once."""
    recipe = tiny(folder, targets=LANGUAGES)
    [reading] = [task for task in tasks(folder / "tasks", recipe.languages) if task.name == "reading"]
    changes = {"tasks": (*recipe.tasks, reading), "serve_primary": True}
    recipe = recipe.model_copy(update=changes).with_folder(write(folder / "text", recipe.languages))
    return Recipe.parse(recipe.to_json())


def main() -> None:
    """Run everything."""
    folder = Path(sys.argv[1])
    recipe, out, screen = recipe_in(folder), folder / "out", io.StringIO()
    multiprocessing.get_context("forkserver").set_forkserver_preload([*forkserver.IMPORTS, faults.__name__])
    (folder / "faults").mkdir()
    os.environ[faults.FOLDER] = str(folder / "faults")
    compiled = str(folder / "source.yaml")
    compiler.Compiler().compile(build.source_pipeline(recipe), compiled)
    with contextlib.redirect_stdout(screen):
        local.run(components.load_component_from_file(compiled), out)  # as a cluster gets it
        local.run(build.depth_search_pipeline(recipe), out)
        failure = _failure(recipe, folder)
        log = next(out.glob("*language.log")).read_text(encoding="utf-8")
        learned, trained = _learned(recipe), _trained(out)
        report = local.run(build.language_pipeline(recipe), out)
    seen = Seen(
        screen=screen.getvalue(),
        report=str(report),
        failure=failure,
        faulty_log=log,
        learned=learned,
        trained=trained,
        trained_at_last=_trained(out),
    )
    (folder / "seen.json").write_text(json.dumps(asdict(seen)), encoding="utf-8")


def _failure(recipe: Recipe, folder: Path) -> str:
    """Run the language pipeline with a fault in each language; how it ended."""
    for language in faults.FAULTS:
        (folder / "faults" / language).touch()
    swahili = folder / "text" / "sw.jsonl"
    whole = swahili.read_bytes()
    swahili.write_bytes(b"\xff\xfe no text at all")
    try:
        local.run(build.language_pipeline(recipe), folder / "out")
    except local.PipelineFailedError as error:
        return str(error)
    finally:
        swahili.write_bytes(whole)
        for fault in (folder / "faults").iterdir():
            fault.unlink()
    raise AssertionError("it did not fail")


def _learned(recipe: Recipe) -> list[str]:
    prefix = f"{recipe.name}-embeddings-"
    names = (model.name for model in MlflowClient().search_registered_models())
    return sorted(name.removeprefix(prefix) for name in names if name.startswith(prefix))


def _trained(out: Path) -> dict[str, int]:
    made = out.glob("results/embeddings-*/result/manifest.json")
    learned = [manifest for manifest in made if json.loads(manifest.read_bytes())["cost"]["steps"]]
    return {str(manifest): manifest.stat().st_mtime_ns for manifest in learned}


if __name__ == "__main__":
    main()
