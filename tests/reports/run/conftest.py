"""Made-up results: no number here was measured."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Cost, Kind
from lingraft.model.initialisation.alignment_quality import AlignmentQuality, AlignmentResource
from lingraft.reports.run.page import write
from lingraft.reports.run.records import GateVerdict, RunRecords, SampleAnswer, TrackedRun
from lingraft.stages.results import (
    LanguageResult,
    MaskedScores,
    NearestWords,
    Neighbour,
    SeedScores,
    SourceResult,
    TaskScores,
)
from lingraft.training.schedule import TrainingMetrics
from tests.fixtures import once

_LAYERS, _PRIMARY = 6, "a1" * 32
_LABELS = ["sbasic", "scalc", "schart", "sdatabase", "sdraw", "shared", "simpress", "smath", "swriter"]


def _curve(steps: int, flops_per_step: float, start: float, end: float) -> list[TrainingMetrics]:
    losses = [end + (start - end) * 0.93**n for n in range(steps // 20)]
    return [
        TrainingMetrics(
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
    """Examples of the class "sdraw" are all taken for the next class."""
    places = range(len(labels))
    counts = [[40 + row if row == column else (row * 7 + column * 3) % 11 for column in places] for row in places]
    if "sdraw" in labels:
        place = labels.index("sdraw")
        counts[place] = [21 if column == place + 1 else 0 for column in places]
    return counts


def _seeds(score: float, seeds: int = 3) -> SeedScores:
    return SeedScores(by_seed={seed: score + 0.01 * (seed - 1) for seed in range(1, seeds + 1)})


def _task(accuracy: float, seeds: int = 3, labels: Sequence[str] = _LABELS) -> TaskScores:
    return TaskScores(
        name="help-topic",
        metric="accuracy",
        labels=list(labels),
        examples=512,
        truncated=487,
        baseline=0.3213,
        score=_seeds(accuracy, seeds),
        others={"macro_F1": _seeds(accuracy / 1.25, seeds)},
        initial=SeedScores(by_seed=dict.fromkeys(range(1, seeds + 1), accuracy / 1.7)),
        confusion=_confusion(labels),
    )


def _questions(f1: float, seeds: int = 2) -> TaskScores:
    return TaskScores(
        name="help-questions",
        metric="F1",
        labels=[],
        examples=1190,
        truncated=0,
        baseline=0.0444,
        score=_seeds(f1, seeds),
        others={"exact_match": _seeds(f1 / 1.5, seeds)},
        initial=_seeds(0.0817, seeds),
    )


def _source(*tasks: TaskScores, **changes: Any) -> SourceResult:
    pretraining = _curve(2400, 4.5e10, 8.7, 4.1)
    fields = {
        "language": "en",
        "primary": _PRIMARY,
        "layers": _LAYERS,
        "vocabulary": 8000,
        "masked_by_depth": {2: 0.1234, 4: 0.1399, 6: 0.1461},
        "tasks": tasks,
        "pretraining": Cost(steps=2400, tokens=4_915_200, flops=1.08e14, elapsed_s=361.4),
        "finetuning": {
            task.name: Cost(steps=720, tokens=1_474_560, flops=6.5e12, elapsed_s=93.2 + n)
            for n, task in enumerate(tasks)
        },
        "pretraining_history": pretraining,
        "finetuning_history": {
            task.name: {seed: _curve(240, 9e9, 2.2, 0.5 + 0.1 * seed) for seed in task.score.by_seed} for task in tasks
        },
        "precision": "bf16",
    }
    return SourceResult.model_validate(fields | changes)


def _language(language: str, depth: int, *tasks: TaskScores, **changes: Any) -> LanguageResult:
    flops_per_step = 4e9 + 4.1e9 * depth
    own = sum(map(ord, language)) % 31
    fields = {
        "language": language,
        "primary": _PRIMARY,
        "embeddings": f"{own:02d}{depth}".ljust(64, "e"),
        "system": "MINIJOINT",
        "depth": depth,
        "learned_over": depth,
        "layers": _LAYERS,
        "vocabulary": 6000,
        "overlap": 1873 + 11 * own,
        "masked": MaskedScores(
            mini=0.101 + depth / 1000 + own / 2000,
            primary=0.11 + depth / 500 + own / 2000,
            mini_initial=0.051 + own / 1500,
            primary_initial=0.0673 + own / 1500,
        ),
        "tasks": tasks,
        "cost": Cost(steps=1600, tokens=3_276_800, flops=1600 * flops_per_step, elapsed_s=22.4 + 9.3 * depth + own),
        "whole_flops": 1600 * (4e9 + 4.1e9 * _LAYERS),
        "history": _curve(1600, flops_per_step, 7.9, 4.6 - depth / 20),
        "precision": "fp32",
    }
    return LanguageResult.model_validate(fields | changes)


def _verdict(language: str, run: str, promoted: bool = True) -> GateVerdict:
    beside = "+4.21 points beside its untrained initialisation (95% interval +3.90 to +4.52 points)"
    says = f"masked accuracy on the primary is 12.24%, {beside}." if promoted else "it finds less than the champion."
    return GateVerdict(model=f"made-up-embeddings-{language}", version=3, promoted=promoted, reason=says, run=run)


def _quality(**changes: Any) -> AlignmentQuality:
    fields = {"resource": AlignmentResource.TEXT, "start": "shared pieces", "known_pairs": 923, "agreement": 0.72}
    fields |= {"similarity": 0.7, "chance_similarity": 0.37, "succeeded": True, "translated": 0, "mapped": 5891}
    return AlignmentQuality(**fields | {"copied_of_shared": 730, "shared": 966} | changes)


def _nearest(word: str, before: str, after: str, shared: bool = False) -> NearestWords:
    both = (
        tuple(Neighbour(piece=piece, cosine=cosine / place) for place, piece in enumerate((first, "of", "the"), 1))
        for first, cosine in ((before, 0.3125), (after, 0.8125))
    )
    return NearestWords(word=word, shared=shared, before=next(both), after=next(both))


def _with_words(result: LanguageResult) -> LanguageResult:
    """German was aligned, Turkish was not, Greek could not be."""
    own, qualities = {"de": "Datei", "tr": "dosya", "el": "αρχείο"}, {"de": _quality(), "el": _quality(succeeded=False)}
    words = [_nearest(own[result.language], "<rule>", "file"), _nearest("ملف", "file", "file")]
    words.append(_nearest("Writer", "Writer", "Writer", shared=True))
    changes = {"nearest_words": tuple(words), "initial_alignment": qualities.get(result.language)}
    return result.model_copy(update=changes)


def _records() -> RunRecords:
    """Everything that a report can show."""
    records = RunRecords.of(
        _source(_task(0.715)),
        [*map(_with_words, _languages())],
        failed={"sw": "its text holds no document"},
        verdicts={"de": _verdict("de", "c" * 32), "el": _verdict("el", "d" * 32, promoted=False)},
        tracked=TrackedRun(uri="sqlite:////data/mlflow.db", experiment="7", run="a" * 32),
    )
    questions = {"en": "How do I add up a column?", "de": "Wie addiere ich eine Spalte?"}
    answers = [
        SampleAnswer(task="help-topic", language=language, texts={"text": text}, found=(("Calc [scalc]", 0.9312),))
        for language, text in questions.items()
    ]
    return records.model_copy(update={"answers": tuple(answers)})


def _languages(task: Callable[[float], TaskScores] | None = _task) -> list[LanguageResult]:
    def row(language: str, depth: int, score: float) -> LanguageResult:
        return _language(language, depth, *([task(score)] if task else []))

    fixed = [row(name, 2, 0.45 + 0.02 * n) for n, name in enumerate(("de", "tr", "el"))]
    standard = [row(name, 6, 0.46 + 0.02 * n) for n, name in enumerate(("de", "tr", "el"))]
    return [*fixed, row("tr", 4, 0.4777), *standard]


def _two_tasks() -> tuple[SourceResult, list[LanguageResult]]:
    """Topics in all languages; questions in all but Turkish; mini-models of MINIPOST."""
    post = {"system": "MINIPOST", "fresh_layers": 2}
    rows = [
        _language("de", 2, _task(0.45), _questions(0.41), **post),
        _language("tr", 2, _task(0.47), **post),
        _language("el", 2, _task(0.49), _questions(0.31), **post),
        _language("de", 6, _task(0.46), _questions(0.43)),
        _language("tr", 6, _task(0.48)),
        _language("el", 6, _task(0.50), _questions(0.34)),
    ]
    return _source(_task(0.715), _questions(0.6), masked_by_depth={6: 0.1461}), rows


@pytest.fixture(scope="session")
def made_up() -> SimpleNamespace:
    """Makers of results, and what they put in."""
    return SimpleNamespace(
        task=_task,
        questions=_questions,
        two_tasks=_two_tasks,
        source=_source,
        language=_language,
        languages=_languages,
        records=_records,
        primary=_PRIMARY,
    )


@pytest.fixture(scope="session")
def report(made_up: SimpleNamespace) -> Artifact:
    """A report with everything in it."""
    return _written("report", made_up.records())


@pytest.fixture(scope="session")
def report_of_two(made_up: SimpleNamespace) -> Artifact:
    """A report on two tasks, of which one has no test examples in one of the languages."""
    source, languages = made_up.two_tasks()
    return _written("report-of-two", RunRecords.of(source, languages))


def _written(name: str, records: RunRecords) -> Artifact:
    """The report that `write` makes of records, written once a run of the tests."""
    return Artifact.load(once.folder(name, lambda folder: write(records, folder / "out")) / "out", Kind.REPORT)
