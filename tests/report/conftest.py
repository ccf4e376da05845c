"""Made-up results: no number here was measured."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from lingraft.artifact import Artifact, Cost
from lingraft.report import write
from lingraft.results import (
    LanguageResult,
    MaskedScores,
    Point,
    SearchResult,
    SeedScores,
    SourceResult,
    TaskScores,
    Trial,
)

_LAYERS, _PRIMARY = 6, "a1" * 32
_LABELS = ["sbasic", "scalc", "schart", "sdatabase", "sdraw", "shared", "simpress", "smath", "swriter"]


def _curve(steps: int, flops_per_step: float, start: float, end: float) -> list[Point]:
    losses = [end + (start - end) * 0.93**n for n in range(steps // 20)]
    return [
        Point(
            step=20 * n,
            tokens=20 * n * 2048,
            flops=20 * n * flops_per_step,
            elapsed_s=20 * n * 0.05,
            loss=loss,
            learning_rate=1e-3,
        )
        for n, loss in enumerate(losses, start=1)
    ]


def _confusion(labels: Sequence[str]) -> list[list[int]]:
    places = range(len(labels))
    return [[40 + row if row == column else (row * 7 + column * 3) % 11 for column in places] for row in places]


def _task(accuracy: float, seeds: int = 3, labels: Sequence[str] = _LABELS) -> TaskScores:
    return TaskScores(
        name="help-topic",
        labels=list(labels),
        documents=512,
        truncated=487,
        majority=0.3213,
        accuracy=SeedScores(by_seed={seed: accuracy + 0.01 * (seed - 1) for seed in range(1, seeds + 1)}),
        initial=SeedScores(by_seed=dict.fromkeys(range(1, seeds + 1), accuracy / 1.7)),
        confusion=_confusion(labels),
    )


def _source(task: TaskScores | None = None, **changes: Any) -> SourceResult:
    pretraining = _curve(2400, 4.5e10, 8.7, 4.1)
    runs = {seed: _curve(240, 9e9, 2.2, 0.5 + 0.1 * seed) for seed in (task.accuracy.by_seed if task else {})}
    fields = {
        "language": "en",
        "primary": _PRIMARY,
        "layers": _LAYERS,
        "vocabulary": 8000,
        "masked_by_depth": {2: 0.1234, 4: 0.1399, 6: 0.1461},
        "task": task,
        "pretraining": Cost(steps=2400, tokens=4_915_200, flops=1.08e14, elapsed_s=361.4),
        "finetuning": Cost(steps=720, tokens=1_474_560, flops=6.5e12, elapsed_s=93.2) if task else Cost(),
        "pretraining_history": pretraining,
        "finetuning_history": runs,
        "precision": "bf16",
    }
    return SourceResult.model_validate(fields | changes)


def _language(language: str, depth: int, task: TaskScores | None = None, **changes: Any) -> LanguageResult:
    flops_per_step = 4e9 + 4.1e9 * depth
    own = sum(map(ord, language)) % 31
    fields = {
        "language": language,
        "primary": _PRIMARY,
        "embeddings": f"{own:02d}{depth}".ljust(64, "e"),
        "depth": depth,
        "layers": _LAYERS,
        "vocabulary": 6000,
        "overlap": 1873 + 11 * own,
        "masked": MaskedScores(
            mini=0.101 + depth / 1000 + own / 2000,
            primary=0.11 + depth / 500 + own / 2000,
            mini_initial=0.051 + own / 1500,
            primary_initial=0.0673 + own / 1500,
        ),
        "task": task,
        "cost": Cost(steps=1600, tokens=3_276_800, flops=1600 * flops_per_step, elapsed_s=22.4 + 9.3 * depth + own),
        "whole_flops": 1600 * (4e9 + 4.1e9 * _LAYERS),
        "history": _curve(1600, flops_per_step, 7.9, 4.6 - depth / 20),
        "precision": "fp32",
    }
    return LanguageResult.model_validate(fields | changes)


def _search() -> SearchResult:
    trials = [
        Trial(
            depth=depth,
            steps=2400 // depth,
            flops=8e12,
            elapsed_s=30.0 + depth,
            score=score,
            pruned=depth == 6,
            scores_by_flops=[(8e12 * n / 5, score * (1 - 0.5**n)) for n in range(1, 4 if depth == 6 else 6)],
        )
        for depth, score in ((2, 0.1121), (4, 0.1187), (6, 0.0954))
    ]
    return SearchResult(language="tr", primary=_PRIMARY, chosen=4, trials=trials)


def _languages(task: Callable[[float], TaskScores | None] = _task) -> list[LanguageResult]:
    fixed = [_language(name, 2, task(0.45 + 0.02 * n)) for n, name in enumerate(("de", "tr", "el"))]
    standard = [_language(name, 6, task(0.46 + 0.02 * n)) for n, name in enumerate(("de", "tr", "el"))]
    return [*fixed, _language("tr", 4, task(0.4777)), *standard]


@pytest.fixture(scope="session")
def made_up() -> SimpleNamespace:
    """Makers of results, and what they put in."""
    return SimpleNamespace(
        task=_task,
        source=_source,
        language=_language,
        languages=_languages,
        search=_search,
        confusion=_confusion(_LABELS),
        primary=_PRIMARY,
    )


@pytest.fixture(scope="session")
def report(made_up: SimpleNamespace, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """A report with everything in it."""
    out = tmp_path_factory.mktemp("report") / "out"
    return write(made_up.source(made_up.task(0.715)), made_up.languages(), made_up.search(), out)
