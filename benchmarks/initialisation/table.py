"""Results as numbers: one record a language, start, system and seed, with its learning curve."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.initialisation.arms import in_order, system_of
from benchmarks.pages import read_record
from lingraft.artifacts.manifest import read_manifest
from lingraft.comparison.plan import ALIGNMENT, MASKED, Arm, Comparison
from lingraft.comparison.records import EvalResult, load_eval_result
from lingraft.comparison.runner import evaluation_dir, initial_dir, vectors_dir
from lingraft.errors import ArtifactError, LingraftError
from lingraft.reports.paper.records import Cell
from lingraft.stages.results import ITEMS_FILE
from lingraft.tasks import item_counts

_DIGITS = 4


def records(comparison: Comparison, out: Path, items: bool = False) -> Iterator[dict[str, Any]]:
    """Every adaptation that was judged on masked tokens, with the further scores that are there.

    With `items`, records have the counts of every test item at the end, for intervals.
    """
    for arm in comparison.arms:
        for language in arm.recipe.targets:
            tasks = [MASKED, ALIGNMENT, *(task.name for task in arm.recipe.tasks if task.covers(language))]
            judged = {task: found for task in tasks if (found := _judged(arm, language, task, out))}
            cells = {task: cell for task, found in judged.items() if (cell := _cell(found, task))}
            if MASKED not in cells:
                continue
            record = _record(arm, system_of(arm, comparison), language, cells, out)
            record["trivial"] = {task: round(judged[task].baselines[task], _DIGITS) for task in cells}
            if items:
                record["items"] = {task: _items(evaluation_dir(arm, language, task, out)) for task in cells}
            yield record


def _judged(arm: Arm, language: str, task: str, out: Path) -> EvalResult | None:
    try:
        return load_eval_result(evaluation_dir(arm, language, task, out))
    except ArtifactError:
        return None


def _cell(judged: EvalResult, task: str) -> Cell | None:
    return next((cell for cell in judged.cells if cell.task == task and cell.failed is None), None)


def _items(folder: Path) -> dict[str, list[int]]:
    """Counts of each test item, over all finetuning seeds."""
    counts = [*item_counts.load(folder / ITEMS_FILE).values()]
    found_N, out_of_N = sum(each.found_N for each in counts), sum(each.out_of_N for each in counts)
    return {"found": np.asarray(found_N, int).tolist(), "out_of": np.asarray(out_of_N, int).tolist()}


def _record(arm: Arm, system: str, language: str, cells: dict[str, Cell], out: Path) -> dict[str, Any]:
    points = max((cell.points for cell in cells.values()), key=len)
    record: dict[str, Any] = {"language": language, "start": str(arm.start), "system": system, "seed": arm.seed}
    record |= {"depth": arm.depth, "steps": [point.step for point in points]}
    record |= {"flops": [round(point.flops) for point in points]}
    record |= {"elapsed_s": [round(point.elapsed_s, 1) for point in points]}
    record["scores"] = {
        task: [round(point.scores.mean, _DIGITS) for point in cell.points] for task, cell in cells.items()
    }
    return record | _alignment(arm, language, out)


def _alignment(arm: Arm, language: str, out: Path) -> dict[str, Any]:
    """Return what the initial embeddings took, with the source's static vectors, and how well their alignment went."""
    if not arm.recipe.adaptation.initialisation.needs_text:
        return {"alignment_s": 0.0}
    initial, vectors = read_manifest(initial_dir(arm, language, out)), read_manifest(vectors_dir(out))
    elapsed_s = sum(manifest.recorded("elapsed_s", float) for manifest in (initial, vectors))
    quality = initial.details["alignment"]
    kept = {name: quality[name] for name in ("resource", "start", "agreement", "succeeded", "mapped", "translated")}
    return {"alignment_s": round(elapsed_s, 1), "quality": kept}


def read(path: Path, sizes: dict[str, Any]) -> dict[str, Any]:
    """Read what earlier runs have found; nothing if there is no file.

    Raises:
        LingraftError: those runs were of other sizes, so that their records cannot stand in one table with new ones.
    """
    if not path.exists():
        return {"runs": [], "sizes": sizes, "records": []}
    found: dict[str, Any] = read_record(path)
    there, now = found["sizes"], sizes
    other = {name: (there.get(name), now.get(name)) for name in ({**there, **now}).keys() - {"adaptation"}}
    # A start that only one has is a part of the table of its own.
    starts = there["adaptation"].keys() & now["adaptation"].keys()
    other |= {f"adaptation from {start}": (there["adaptation"][start], now["adaptation"][start]) for start in starts}
    if other := {name: pair for name, pair in other.items() if pair[0] != pair[1]}:
        raise LingraftError(f"{path} has results of other sizes: {other} (there, now). Give another file as --json.")
    return found


def merge(earlier: dict[str, Any], run: dict[str, Any], new: dict[str, Any], sizes: dict[str, Any]) -> dict[str, Any]:
    """Add a run to what earlier runs found; a new record replaces the earlier one of its adaptation, or primary.

    Args:
        earlier: runs, sizes, records and facts, as the JSON has them.
        run: command, device, precision and commit.
        new: `records`, `primaries` and `ceilings`; `settings` by name, and `cut` by task and language, whose new values
            replace earlier ones.
        sizes: of the comparison.
    """
    primaries, cut = earlier.get("primaries", []), earlier.get("cut", {})
    schedules = earlier["sizes"]["adaptation"] | sizes["adaptation"]
    return {
        "runs": [*(one for one in earlier["runs"] if one != run), run],
        "sizes": sizes | {"adaptation": schedules},
        "records": _replaced(earlier["records"], new["records"], _adaptation),
        "primaries": _replaced(primaries, _with_systems_of(primaries, new["primaries"]), lambda one: one["name"]),
        "settings": earlier.get("settings", {}) | new["settings"],
        "cut": cut | {task: cut.get(task, {}) | shares for task, shares in new["cut"].items()},
        "ceilings": _replaced(
            earlier.get("ceilings", []),
            new["ceilings"],
            lambda one: (one["language"], one["start"], one["seed"], one["task"]),
        ),
    }


def _replaced(
    earlier: list[dict[str, Any]], new: list[dict[str, Any]], key: Callable[[dict[str, Any]], Any]
) -> list[dict[str, Any]]:
    """Records with the new ones in place of earlier ones of equal key, sorted by it."""
    replaced = {key(one) for one in new}
    return sorted([*(one for one in earlier if key(one) not in replaced), *new], key=key)


def _with_systems_of(earlier: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Primaries with all systems that have them, of which a run may leave some out."""
    known = {one["name"]: one["systems"] for one in earlier}
    return [one | {"systems": in_order([*known.get(one["name"], ()), *one["systems"]])} for one in new]


def _adaptation(record: dict[str, Any]) -> tuple[Any, ...]:
    """Return what identifies an adaptation: language, start, system and seed."""
    return record["language"], record["start"], record["system"], record["seed"]
