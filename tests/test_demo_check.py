"""The demo's check passes good results, and fails each kind of bad one."""

from pathlib import Path

import pytest

from benchmarks.demo_check import checks, only_task
from lingraft.artifact import Cost
from lingraft.config import Recipe
from lingraft.errors import LingraftError
from lingraft.results import LanguageResult, MaskedScores, SeedScores, TaskScores


def _seeds(score: float) -> SeedScores:
    return SeedScores(by_seed={1: score - 0.01, 2: score, 3: score + 0.01})


def _scores(name: str, score: SeedScores, examples: int) -> TaskScores:
    return TaskScores(
        name=name,
        metric="accuracy",
        labels=["a", "b"],
        examples=examples,
        truncated=0,
        baseline=0.33,
        score=score,
        initial=_seeds(0.3),
        confusion=[[1, 0], [0, 1]],
    )


def _row(
    depth: int, topic: float = 0.5, primary: float = 0.13, flops: float = 1e12, documents: int = 450
) -> LanguageResult:
    return LanguageResult(
        language="de",
        primary="p",
        embeddings=f"e{depth}",
        system="MINIJOINT",
        depth=depth,
        layers=6,
        vocabulary=100,
        overlap=10,
        masked=MaskedScores(mini=0.13, primary=primary, mini_initial=0.07, primary_initial=0.07),
        tasks=(_scores("other", _seeds(0.01), documents), _scores("topic", _seeds(topic), documents)),
        cost=Cost(steps=10, tokens=100, flops=flops, elapsed_s=10.0),
        whole_flops=3e12,
        history=[],
        precision="bf16",
    )


STANDARD = _row(6, topic=0.51, primary=0.135, flops=3e12)


def _failed(mini: LanguageResult) -> list[str]:
    return [check.what for check in checks([mini, STANDARD], ["de"], 2, "topic") if not check.holds]


def test_good_results_pass() -> None:
    assert _failed(_row(2)) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"topic": 0.42}, ["mean zero-shot accuracy, over majority", "beside standard adaptation"]),
        (
            {"topic": 0.34},
            [
                "2 layers: zero-shot accuracy, over majority",
                "over initialisation",
                "mean zero-shot accuracy, over majority",
                "beside standard adaptation",
            ],
        ),
        ({"primary": 0.09}, ["masked accuracy of the primary", "mean masked accuracy"]),
        ({"primary": 0.11}, ["mean masked accuracy"]),
        ({"flops": 1.6e12}, ["mean FLOPs"]),
        ({"documents": 399}, ["test pages"]),
    ],
)
def test_each_shortfall_fails_its_own_checks(changes: dict[str, float], words: list[str]) -> None:
    failed = _failed(_row(2, **changes))
    assert len(failed) == len(words)
    for word, what in zip(words, failed, strict=True):
        assert word in what


def test_a_single_seed_is_not_enough() -> None:
    one = _scores("topic", SeedScores(by_seed={1: 0.5}), 450)
    assert _failed(_row(2).model_copy(update={"tasks": (one,)})) == ["de over 2 layers: finetuning seeds"]


def test_without_standard_adaptation_it_says_what_to_run() -> None:
    with pytest.raises(LingraftError, match="demo-compare"):
        list(checks([_row(2)], ["de"], 2, "topic"))


def test_a_demo_by_itself_is_checked_but_for_the_comparison() -> None:
    alone = [check.what for check in checks([_row(2)], ["de"], 2, "topic", compared=False)]
    both = [check.what for check in checks([_row(2), STANDARD], ["de"], 2, "topic")]
    assert alone == both[: len(alone)]
    assert all("standard" in what for what in both[len(alone) :])
    assert len(both) - len(alone) == 3


def test_a_task_without_scores_is_named() -> None:
    with pytest.raises(LingraftError, match=r"no scores on 'help-topic' for 'de'.*Give the recipe"):
        list(checks([_row(2), STANDARD], ["de"], 2, "help-topic"))


def test_the_task_is_that_of_the_recipe() -> None:
    recipe = Recipe.load(Path(__file__).parents[1] / "recipes" / "demo.toml")
    assert only_task(recipe) == "help-topic"
    with pytest.raises(LingraftError, match=r"of one task, but recipe 'lingraft-demo' has \[\]"):
        only_task(recipe.model_copy(update={"tasks": ()}))
