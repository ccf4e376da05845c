"""`python -m benchmarks.initialisation --out DIR`: how much compute each system needs from each start.

Languages are learned by BL_BASE, BL_SMALL, MINIPOST and MINIJOINT, with rows that start as the paper's, or
aligned by text alone, by FreeDict's dictionaries or by sentence pairs. Everything is made under `--out`, once: stopped
at any moment, the same command goes on, also with more languages, starts, systems or seeds. The JSON is
written anew twice a minute, the page at the end. What the JSON of `--json` already holds of other languages, starts,
systems or seeds stays in it, so that a table may be gathered on several machines.

Without `--data`, the text is the recipe's: LibreOffice's help, of which parallel paragraphs of the training split are
the sentence pairs. `--data` has the text and examples that a recipe of kind 'folder' names, such as
recipes/transfer.toml.
"""

import argparse
import os
import sys
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.initialisation import facts, table
from benchmarks.initialisation.arms import SYSTEMS, WHOLE, WITHOUT_CURVES, Resources, Start, compared
from benchmarks.initialisation.ceilings import ceilings
from benchmarks.initialisation.data import on_data
from benchmarks.initialisation.overview import sections
from benchmarks.initialisation.page import write as write_page
from benchmarks.initialisation.resources import dictionary, write_lines, write_pairs
from benchmarks.pages import RECORD_SUFFIX, command_line, read_record, write_record
from benchmarks.quick import quick
from benchmarks.speed.machine import commit, described
from lingraft.artifacts import cache
from lingraft.artifacts.manifest import Kind
from lingraft.comparison.plan import Comparison
from lingraft.comparison.runner import comparison_jobs, run_jobs
from lingraft.config.recipe import Recipe
from lingraft.config.text import Folder
from lingraft.console import say
from lingraft.data.text import load_text
from lingraft.errors import LingraftError, RecipeError
from lingraft.jobs.data import LanguageDirs, language_jobs

RECIPE = Path(__file__).parents[2] / "recipes" / "demo-scratch.toml"
STARTS = (Start.OVERLAP, Start.TEXT, Start.DICTIONARY, Start.PAIRS)
_FINETUNING_SEEDS = 1
"""Seeds of finetuning per seed of pretraining, over which tables take means: evaluations are most of the time."""
_WRITTEN_EVERY_S = 30
_HIDDEN = {f"--{name}": name.upper() for name in ("data", "out", "dictionaries", "pairs", "labels", "json", "page")}
"""Words in place of paths, which are of one machine only, by option."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is missing."""
    given = _parser().parse_args(arguments)
    os.environ.pop(cache.RESULTS_VARIABLE, None)  # what was made for something else would cost nothing here
    out = given.out.resolve()
    recipe = _recipe(given, out)
    comparison = compared(
        recipe=recipe,
        starts=given.starts,
        systems=given.systems,
        seeds=given.seeds,
        resources=_resources(recipe, given, out),
        without_curves=given.without_curves,
        depths=given.depths,
    )
    json, markdown = given.json or out / f"initialisation{RECORD_SUFFIX}", given.page or out / "initialisation.md"
    sizes = _sizes(comparison, given.lines)
    earlier = table.read(json, sizes)
    items = given.items or any("items" in record for record in earlier["records"])  # else its records would lose theirs
    run = {
        "command": command_line("benchmarks.initialisation", sys.argv[1:] if arguments is None else arguments, _HIDDEN),
        "device": described()["device"],
        "precision": recipe.precision,
        "commit": commit(),
    }

    facts_at_end: dict[str, Any] = {"cut": {}, "ceilings": []}

    def write_results() -> None:
        new = {
            "records": [*table.records(comparison, out, items)],
            "primaries": [*facts.primaries(comparison, out)],
            "settings": facts.settings(comparison),
            **facts_at_end,
        }
        write_record(json, table.merge(earlier, run, new, sizes))

    write_results()
    written_at = time.monotonic()
    for job in run_jobs([*comparison_jobs(comparison, out)]):
        if job.kind is Kind.EVALUATION and time.monotonic() - written_at > _WRITTEN_EVERY_S:
            write_results()
            written_at = time.monotonic()
    facts_at_end |= {"cut": facts.cut_shares(comparison, out)}
    if given.labels:
        facts_at_end["ceilings"] = [*ceilings(comparison, out, given.labels.resolve())]
    write_results()
    found = read_record(json)
    write_page(found, sections(found), markdown)
    print(markdown)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.initialisation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of everything that is made")
    parser.add_argument(
        "--recipe", type=Path, default=RECIPE, help="sizes and text; recipes/demo-scratch.toml if absent"
    )
    parser.add_argument(
        "--set",
        nargs="+",
        default=[],
        metavar="LINE",
        help="lines that change the recipe, such as 'encoder.family = \"roberta\"'",
    )
    parser.add_argument("--data", type=Path, help="folder of text, and of examples that the recipe names")
    parser.add_argument("--languages", nargs="+", help="targets; the recipe's if absent")
    parser.add_argument(
        "--starts",
        nargs="+",
        type=Start,
        choices=[*Start],
        default=STARTS,
        metavar="START",
        help=f"some of {', '.join(Start)}",
    )
    parser.add_argument(
        "--systems",
        nargs="+",
        choices=SYSTEMS,
        default=[system for system in SYSTEMS if system != WHOLE],
        metavar="SYSTEM",
        help=f"some of {'; '.join(SYSTEMS)}; all but the last if absent",
    )
    parser.add_argument(
        "--depths",
        nargs="+",
        type=int,
        default=[],
        metavar="LAYERS",
        help="further depths of MINIJOINT, each over a primary with its lower head there (figure 4)",
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3], help="of pretraining and adaptation")
    parser.add_argument("--steps", type=int, help="updates from aligned rows; the recipe's if absent")
    parser.add_argument(
        "--dictionaries",
        type=Path,
        help="folder of unpacked packages dict-freedict-*, downloaded there if missing; OUT/dictionaries if absent",
    )
    parser.add_argument(
        "--pairs",
        type=Path,
        help="folder of <source>-<language>.tsv, written there from parallel documents if missing; OUT/pairs if absent",
    )
    parser.add_argument(
        "--lines",
        metavar="TASK",
        help="a task whose test examples are translations row by row, as XNLI's are: alignment is measured over their "
        "first texts; absent: over paragraphs, or shared pieces",
    )
    parser.add_argument(
        "--without-curves",
        nargs="*",
        default=WITHOUT_CURVES,
        metavar="TASK",
        help=f"tasks judged before and after adaptation only; {', '.join(WITHOUT_CURVES)} if absent",
    )
    parser.add_argument(
        "--labels",
        type=Path,
        help="folder of <task>-train-<language>.* and <task>-test-<language>.*: BL_BASE's primaries also learn these",
    )
    parser.add_argument("--quick", action="store_true", help="models of a few thousand parameters, to try the command")
    parser.add_argument("--json", type=Path, help="OUT/initialisation.json.xz if absent")
    parser.add_argument("--page", type=Path, help="OUT/initialisation.md if absent")
    parser.add_argument(
        "--items",
        action="store_true",
        help="also keep the counts of all test items, for the intervals of benchmarks.initialisation.summary",
    )
    return parser


def _recipe(given: argparse.Namespace, out: Path) -> Recipe:
    """The recipe with what the command line changes."""
    raw = Recipe.load(given.recipe).model_dump(mode="json")
    for line in given.set:
        raw = _changed(raw, _as_toml(line))
    if given.languages:
        raw["targets"] = given.languages
    for finetuning in (task["finetuning"] for task in raw["tasks"]):
        finetuning["seeds"] = finetuning["seeds"][:_FINETUNING_SEEDS]
    if given.quick:
        raw = quick(raw)
    if given.steps:
        raw["adaptation"]["steps"] = given.steps
    recipe = Recipe.parse(raw | {"search": None, "paper": None})
    if given.data:
        data = given.data.resolve()
        recipe = on_data(recipe, data, out) if isinstance(recipe.text, Folder) else recipe.with_folder(data)
    return _with_lines(recipe, given.lines, out) if given.lines else recipe


def _as_toml(line: str) -> dict[str, Any]:
    try:
        return tomllib.loads(line)
    except tomllib.TOMLDecodeError as error:
        raise RecipeError(
            f"--set {line!r} is no TOML: {error}. Quote text, as in 'encoder.family = \"roberta\"'."
        ) from None


def _changed(settings: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Settings with changes, section by section."""
    found = settings | changes
    for key, value in changes.items():
        if isinstance(value, dict) and isinstance(settings.get(key), dict):
            found[key] = _changed(settings[key], value)
    return found


def _with_lines(recipe: Recipe, task: str, out: Path) -> Recipe:
    """The recipe with lines that alignment is measured over."""
    places = {
        language: out / "lines" / f"{task}-{recipe.source.language}-{language}.tsv" for language in recipe.targets
    }
    for language, place in places.items():
        write_lines(recipe.task(task), recipe.source.language, language, place)
    judged = {language: str(place) for language, place in places.items()}
    alignment = recipe.alignment.model_copy(update={"judged": judged})
    return recipe.model_copy(update={"alignment": alignment})


def _resources(recipe: Recipe, given: argparse.Namespace, out: Path) -> Resources:
    """Dictionaries and sentence pairs of the languages that have them; text is read first, to find its pairs."""
    source, resources = recipe.source.language, {}
    if Start.DICTIONARY in given.starts:
        folder = (given.dictionaries or out / "dictionaries").resolve()
        words = {language: dictionary(source, language, folder) for language in recipe.targets}
        resources[Start.DICTIONARY] = {language: path for language, path in words.items() if path}
    if Start.PAIRS in given.starts:
        for one in recipe.languages:
            for _ in run_jobs(language_jobs(recipe, one, LanguageDirs.under(out, one))):
                pass
        folder = (given.pairs or out / "pairs").resolve()
        places = {language: folder / f"{source}-{language}.tsv" for language in recipe.targets}
        texts = {language: load_text(LanguageDirs.under(out, language).text, language) for language in recipe.languages}
        resources[Start.PAIRS] = {
            language: path for language, path in places.items() if write_pairs(texts[source], texts[language], path)
        }
    for start, files in resources.items():
        if missing := sorted({*recipe.targets} - {*files}):
            say(f"no start from {start} for {', '.join(missing)}: there are no files")
    return resources


def _sizes(comparison: Comparison, lines: str | None) -> dict[str, Any]:
    recipe = comparison.recipe
    shape, schedules = recipe.encoder, {arm.start: arm.recipe.adaptation for arm in comparison.arms}
    return {
        "family": "modern" if shape.family.pre_norm else "roberta",
        "layers": shape.layers,
        "width": shape.width,
        "heads": list(shape.mlm_heads),
        "depth": recipe.adaptation.depth,
        "pretraining_steps": recipe.pretraining.steps,
        "mini_steps": recipe.mini.steps if recipe.mini else 0,
        "adaptation": {start: [one.steps, one.learning_rate] for start, one in schedules.items()},
        "text": recipe.text.kind,
        **({"lines": lines} if lines else {}),
    }


if __name__ == "__main__":
    try:
        main()
    except LingraftError as error:
        sys.exit(f"error: {error}")
