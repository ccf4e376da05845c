"""The demo's check passes good results, and fails each kind of bad one."""

import pytest

from benchmarks.demo_check import answer_checks, checks
from lingraft.artifacts.manifest import Cost
from lingraft.errors import LingraftError
from lingraft.reports.run.records import RunRecords, SampleAnswer
from lingraft.stages.results import SOURCE_TOKENIZER, LanguageResult, SeedScores, TaskScores
from pipelines.page_index import IN_TEN


def _seeds(score: float) -> SeedScores:
    return SeedScores(by_seed={1: score})


def _task(name: str, first: float, ten: float = 0.0, as_is: float = 0.1, before: float = 0.7) -> TaskScores:
    return TaskScores(
        name=name,
        metric="accuracy",
        labels=[],
        examples=499,
        truncated=0,
        baseline=0.34,
        score=_seeds(first),
        others={IN_TEN: _seeds(ten)},
        initial=_seeds(0.3),
        initial_others={IN_TEN: _seeds(before)},
        baselines={SOURCE_TOKENIZER: _seeds(as_is)},
    )


def _records(**search: float) -> RunRecords:
    scores = {"first": 0.5, "ten": 0.8, "topic": 0.6} | search
    topic = _task("help-topic", scores.pop("topic"))
    result = LanguageResult(
        language="de",
        primary="p",
        embeddings="e",
        system="MINIPOST",
        depth=2,
        learned_over=2,
        layers=6,
        vocabulary=100,
        overlap=10,
        tasks=(_task("retrieval", **scores), topic),
        cost=Cost(steps=10, tokens=100, flops=1e12, elapsed_s=10.0),
        whole_flops=3e12,
        history=[],
        precision="fp32",
    )
    return RunRecords.model_construct(languages=(result,))


@pytest.mark.parametrize(
    ("scores", "failed"),
    [
        ({}, []),
        ({"first": 0.39}, ["de: first"]),
        ({"ten": 0.69, "before": 0.6}, ["de: among ten"]),
        ({"as_is": 0.21}, ["mean first, beside the language as the model reads it"]),
        ({"before": 0.83}, ["mean among ten, beside that before learning"]),
        ({"topic": 0.53}, ["de: topics"]),
    ],
)
def test_each_shortfall_fails_its_own_check(scores: dict[str, float], failed: list[str]) -> None:
    assert [each.what for each in checks(_records(**scores), ["de"]) if not each.holds] == failed


def test_a_language_without_scores_is_named() -> None:
    with pytest.raises(LingraftError, match=r"no scores on 'retrieval' for 'tr'"):
        [*checks(_records(), ["tr"])]


def test_a_question_has_to_find_what_it_finds_in_english() -> None:
    def answer(task: str, language: str, said: str) -> SampleAnswer:
        return SampleAnswer(task=task, language=language, texts={"text": "?"}, found=((said, 0.6),))

    answers = [answer("retrieval", "en", "Sorting"), answer("retrieval", "de", "Sorting")]
    answers += [answer("help-topic", "en", "scalc"), answer("help-topic", "de", "swriter")]
    assert [each.holds for each in answer_checks(answers, "en", ["de", "tr"])] == [True, False, False, False]
