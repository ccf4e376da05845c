"""Made-up runs: curves that rise the faster, and to a lower end, the shallower the mini-model. Nothing was measured."""

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from lingraft.config.systems import System
from lingraft.reports.paper.published import DISTANCES
from lingraft.reports.paper.records import Cell, CurvePoint, LanguageFacts, PaperRecords, SourceCell, TaskFacts
from lingraft.stages.results import SeedScores

LAYERS, DEPTH, SEED = 12, 4, 1
DEPTHS = (2, 4, 8, 12)
STEPS = tuple(range(0, 125_001, 12_500))
_EFLOPS = {2: 12.82, 4: 21.07, 6: 29.32, 8: 37.56, 10: 45.81, 12: 54.05}
_SPEED = {System.BL_BASE: 1.0, System.BL_SMALL: 1.0, System.MINIPOST: 1.1, System.MINIJOINT: 1.4}
_TITLES = {"xnli": "XNLI", "mlqa": "MLQA", "paws-x": "PAWS-X", "xquad": "XQuAD"}
_LANGUAGES = ("ar", "de", "tr", "zh")


def _layers(system: System, depth: int) -> int:
    """Layers that tokens pass through in adaptation."""
    return depth + 2 if system is System.MINIPOST else depth


def _scores(mean: float, seeds: int) -> SeedScores:
    return SeedScores(by_seed={seed: mean + 0.004 * (seed - (seeds + 1) / 2) for seed in range(1, seeds + 1)})


def _end(system: System, depth: int, language: str, task: str) -> float:
    """Score at the end of training."""
    top = 0.55 + 0.04 * list(_TITLES).index(task) + 0.03 * _LANGUAGES.index(language)
    loss = {System.BL_BASE: 0.0, System.BL_SMALL: 0.08, System.MINIPOST: 0.008, System.MINIJOINT: 0.012}[system]
    return top - loss - (0.05 / depth if system is System.MINIJOINT else 0.0)


def _cell(
    system: System, depth: int, language: str, task: str = "xnli", seeds: int = 3, seed: int = SEED, **changes: Any
) -> Cell:
    end, flops = _end(system, depth, language, task), 1e18 * _EFLOPS[_layers(system, depth)]
    half = 9_000 * (1 + 0.6 * _LANGUAGES.index(language)) / _SPEED[system]
    points = tuple(
        CurvePoint(
            step=step,
            flops=flops * step / STEPS[-1],
            elapsed_s=1.3 * flops * step / STEPS[-1] / 30e12,
            scores=_scores(0.34 + (end - 0.34) * (1 - math.exp(-step / half)), seeds),
        )
        for step in STEPS
    )
    fields = {
        "system": system,
        "depth": depth,
        "language": language,
        "task": task,
        "pretraining_seed": seed,
        "points": points,
    }
    return Cell.model_validate(fields | changes)


def _failed(system: System, depth: int, language: str, task: str = "xnli", why: str = "out of memory") -> Cell:
    return _cell(system, depth, language, task, points=(), failed=why)


def _task(name: str, languages: Iterable[str] = _LANGUAGES, **changes: Any) -> TaskFacts:
    fields = {
        "name": name,
        "title": _TITLES[name],
        "metric": "F1" if name in {"mlqa", "xquad"} else "accuracy",
        "languages": tuple(languages),
        "trivial": "most frequent class",
        "baselines": dict.fromkeys(languages, 0.34),
        "appendix": name == "xquad",
    }
    return TaskFacts.model_validate(fields | changes)


def _cells(tasks: Iterable[TaskFacts], seeds: int = 3) -> dict[tuple[System, int, str, str], Cell]:
    """One cell per system, and MINIJOINT's other depths in three languages."""
    usual = {system: LAYERS if system is System.BL_BASE else DEPTH for system in System}
    keys = [
        (system, depth, lang, task.name) for task in tasks for lang in task.languages for system, depth in usual.items()
    ]
    keys += [
        (System.MINIJOINT, depth, lang, task.name)
        for task in tasks
        for lang in task.languages
        for depth in DEPTHS
        if lang != "zh" and depth != DEPTH
    ]
    return {(system, depth, lang, task): _cell(system, depth, lang, task, seeds) for system, depth, lang, task in keys}


def _records(
    *changed: Cell,
    tasks: Iterable[TaskFacts] | None = None,
    seeds: int = 3,
    without: Iterable[Any] = (),
    **changes: Any,
) -> PaperRecords:
    """A whole run, with some cells changed or added, and some left out."""
    tasks = tuple(tasks or (_task("xnli"), _task("paws-x", ("de", "zh"))))
    cells = _cells(tasks, seeds)
    for key in without:
        del cells[key]
    cells |= {
        (cell.system, cell.depth, cell.language, cell.task): cell for cell in changed if cell.pretraining_seed == SEED
    }
    others = [cell for cell in changed if cell.pretraining_seed != SEED]
    fields = {
        "title": "A made-up comparison",
        "source": "en",
        "layers": LAYERS,
        "depth": DEPTH,
        "pretraining_seed": SEED,
        "systems": tuple(System),
        "tasks": tasks,
        "cells": (*cells.values(), *others),
        "languages": [
            LanguageFacts(
                language=name,
                text_bytes=10_000_000 if name != "zh" else None,
                word_order=DISTANCES[name].word_order,
                syntactic=DISTANCES[name].syntactic,
                phylogenetic=DISTANCES[name].phylogenetic,
            )
            for name in ("en", *_LANGUAGES)
        ],
        "source_cells": (
            _source(System.BL_BASE, LAYERS, 0.864, tasks[0].name),
            _source(System.MINIJOINT, LAYERS, 0.862, tasks[0].name),
            _source(System.MINIJOINT, DEPTH, 0.792, tasks[0].name),
        ),
        "machine": "a made-up machine",
        "notes": ("Nothing here was measured.",),
    }
    return PaperRecords.model_validate(fields | changes)


def _source(system: System, depth: int, mean: float, task: str = "xnli", seeds: int = 3, **changes: Any) -> SourceCell:
    fields = {"system": system, "depth": depth, "task": task, "pretraining_seed": SEED, "scores": _scores(mean, seeds)}
    return SourceCell.model_validate(fields | changes)


class MadeUp(NamedTuple):
    """Makers of records."""

    records: Callable[..., PaperRecords] = _records
    cell: Callable[..., Cell] = _cell
    failed: Callable[..., Cell] = _failed
    task: Callable[..., TaskFacts] = _task
    source: Callable[..., SourceCell] = _source
