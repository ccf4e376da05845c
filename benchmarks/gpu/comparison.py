"""The comparison of systems by recipes/medium.toml, as far as time allows; the next run goes on where it was."""

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.gpu.parts import Given
from benchmarks.initialisation.data import on_data
from lingraft.artifacts.failures import failure_reason
from lingraft.artifacts.files import write_text
from lingraft.comparison import runner
from lingraft.comparison.plan import plan_comparison
from lingraft.comparison.records import merge_records
from lingraft.config.recipe import Recipe
from lingraft.errors import TextError
from lingraft.jobs.data import LanguageDirs, language_jobs
from lingraft.reports.paper import report
from lingraft.signals import Interruption

RECIPE = Path(__file__).parents[2] / "recipes" / "medium.toml"
PREPARED = "prepared"
"""Folder of text, tokenizers and blocks among the data."""
TABLES = "paper.md"
_RESULTS = "medium"


def recipe_of(tiny: bool) -> Recipe:
    """Return the recipe; at tiny size it has two languages, no tasks, and two updates of each training."""
    recipe = Recipe.load(RECIPE)
    if not tiny:
        return recipe
    few = {"steps": 2, "warmup_steps": 1, "batch_blocks": 2}
    changes: dict[str, Any] = {
        "targets": ("de",),
        "tasks": (),
        "precision": "fp32",
        "test_blocks": 4,
        "split": recipe.split.model_copy(update={"dev_share": 0.2, "test_share": 0.2}),
        "tokenizer": recipe.tokenizer.model_copy(update={"vocabulary": 200}),
        "encoder": recipe.encoder.model_copy(
            update={"width": 16, "layers": 3, "attention_heads": 2, "mlm_heads": (1, 3), "block_tokens": 16}
        ),
        "pretraining": recipe.pretraining.model_copy(update=few | {"windows": None}),
        "adaptation": recipe.adaptation.model_copy(
            update=few | {"depth": 1, "checkpoint_every_steps": 2, "early_checkpoints": ()}
        ),
        "paper": recipe.paper and recipe.paper.model_copy(update={"systems": recipe.paper.systems[-1:]}),
    }
    return recipe.model_copy(update=changes)


def prepare(recipe: Recipe, corpus: Path, out: Path) -> None:
    """Read, split and tokenize the text of every language, as far as that has not been done.

    Args:
        recipe: recipe whose text is a folder.
        corpus: folder in which that folder is; paths in what is written are relative to it.
        out: folder of text, tokenizers and blocks.

    Raises:
        TextError: text cannot be read, or there is too little of it.
    """
    out = out.resolve()
    with contextlib.chdir(corpus):
        for language in recipe.languages:
            jobs = language_jobs(recipe, language, LanguageDirs.under(out, language), records_failure=True)
            for job in runner.run_jobs([*jobs]):
                if reason := failure_reason(job.made):
                    raise TextError(f"{job.title}: {reason}")


def measured(given: Given, keep: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Run jobs until time is up; the tables are beside the results."""
    if given.text is None:
        return {"missing": "no text: give a folder that `--pack` has made by --text"}
    out, recipe = given.out / _RESULTS, recipe_of(given.tiny)
    shutil.copytree(given.text / PREPARED, out, dirs_exist_ok=True)
    # The text has been read already, where its path was that of the recipe.
    recipe = on_data(recipe, given.text.resolve(), out.resolve()).model_copy(update={"text": recipe.text})
    comparison = plan_comparison(recipe)
    planned = [*runner.comparison_jobs(comparison, out)]
    done = 0
    with contextlib.suppress(Interruption):
        for done in _until(given.ends_at, runner.run_jobs(planned)):
            records = merge_records(comparison, [*runner.existing_results(planned).values()])
            write_text(out / TABLES, report.markdown(records))
            keep({"done": done, "jobs": len(planned)})
    if done < len(planned):
        raise SystemExit(f"{done} of {len(planned)} jobs are done; the same again goes on")
    return {"done": done, "jobs": len(planned), "tables": (out / TABLES).read_text(encoding="utf-8")}


def _until(ends_at: float, jobs: Iterator[Any]) -> Iterator[int]:
    """Count jobs as they end, and ask for no more once time is up."""
    for number, _ in enumerate(jobs, start=1):
        yield number
        if time.time() > ends_at:
            return
