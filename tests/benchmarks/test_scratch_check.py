"""The demo's check passes good results, and fails each kind of bad one."""

import sys
from pathlib import Path

import pytest

from benchmarks import scratch_check
from benchmarks.scratch_check import RIGHT_ANSWER, answer_checks, checks, only_task
from lingraft.artifacts import artifact
from lingraft.artifacts.manifest import Cost, Kind
from lingraft.config.recipe import Recipe
from lingraft.errors import LingraftError
from lingraft.reports.run.records import RECORDS_FILE, RunRecords, SampleAnswer
from lingraft.stages.results import LanguageResult, MaskedScores, SeedScores, SourceResult, TaskScores


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
    depth: int, topic: float = 0.61, primary: float = 0.13, flops: float = 1e12, documents: int = 450
) -> LanguageResult:
    return LanguageResult(
        language="de",
        primary="p",
        embeddings=f"e{depth}",
        system="MINIJOINT",
        depth=depth,
        learned_over=depth,
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


STANDARD = _row(6, topic=0.62, primary=0.135, flops=3e12)


def _failed(mini: LanguageResult) -> list[str]:
    return [check.what for check in checks([mini, STANDARD], ["de"], 2, "topic") if not check.holds]


def test_good_results_pass() -> None:
    assert _failed(_row(2)) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"topic": 0.56},
            ["2 layers: zero-shot accuracy", "mean zero-shot accuracy", "beside standard adaptation"],
        ),
        ({"primary": 0.09}, ["masked accuracy of the primary", "mean masked accuracy"]),
        ({"primary": 0.11}, ["mean masked accuracy"]),
        ({"flops": 2.2e12}, ["mean FLOPs"]),
        ({"documents": 399}, ["test pages"]),
    ],
)
def test_each_shortfall_fails_its_own_checks(changes: dict[str, float], words: list[str]) -> None:
    failed = _failed(_row(2, **changes))
    assert len(failed) == len(words)
    for word, what in zip(words, failed, strict=True):
        assert word in what


def test_a_demo_by_itself_is_checked_but_for_the_comparison() -> None:
    alone = [check.what for check in checks([_row(2)], ["de"], 2, "topic", compared=False)]
    both = [check.what for check in checks([_row(2), STANDARD], ["de"], 2, "topic")]
    assert alone == both[: len(alone)]
    assert all("standard" in what for what in both[len(alone) :])
    assert len(both) - len(alone) == 3


def test_a_language_searched_over_all_layers_is_no_comparison() -> None:
    rows = [_row(2), STANDARD, _row(2).model_copy(update={"language": "tr"})]
    assert not scratch_check.is_compared(rows, ["de", "tr"])
    assert scratch_check.is_compared([*rows, STANDARD.model_copy(update={"language": "tr"})], ["de", "tr"])


def test_a_task_without_scores_is_named() -> None:
    with pytest.raises(LingraftError, match=r"no scores on 'help-topic' for 'de'.*Give the recipe"):
        list(checks([_row(2), STANDARD], ["de"], 2, "help-topic"))


def test_the_task_is_that_of_the_recipe() -> None:
    recipe = Recipe.load(Path(__file__).parents[2] / "recipes" / "demo-scratch.toml")
    assert only_task(recipe) == "help-topic"
    with pytest.raises(LingraftError, match=r"of one task, but recipe 'lingraft-scratch' has \[\]"):
        only_task(recipe.model_copy(update={"tasks": ()}))


def _answer(language: str, label: str) -> SampleAnswer:
    return SampleAnswer(task="topic", language=language, texts={"text": "?"}, found=((label, 0.6),))


def test_a_wrong_answer_and_a_missing_one_fail() -> None:
    answers = [_answer("en", RIGHT_ANSWER), _answer("de", "smath")]
    found = {check.what: check.holds for check in answer_checks(answers, ["en", "de", "tr"], "topic")}
    assert found == {
        f"en: answer is {RIGHT_ANSWER} (60%)": True,
        "de: answer is smath (60%)": False,
        "tr: answer is no answer (0%)": False,
    }


def test_a_demo_is_checked_by_itself_and_beside_standard_adaptation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for depths in ([2], [2, 6]):
        out = _reported(tmp_path / str(len(depths)), depths)
        monkeypatch.setattr(sys, "argv", ["scratch_check", "--out", str(out)])
        scratch_check.main()
        said = capsys.readouterr().out
        assert "mean zero-shot accuracy" in said
        assert ("beside standard adaptation" in said) == (depths == [2, 6])


def _reported(out: Path, depths: list[int]) -> Path:
    """Write the report of a demo whose languages are learned over these layers."""
    cost = Cost(steps=10, tokens=100, flops=3e12, elapsed_s=10.0)
    source = SourceResult(
        language="en",
        primary="p",
        layers=6,
        vocabulary=100,
        masked_by_depth={6: 0.2},
        tasks=(_scores("help-topic", _seeds(0.7), 450),),
        pretraining=cost,
        finetuning={},
        pretraining_history=[],
        finetuning_history={},
        precision="bf16",
    )
    rows = [
        _row(depth, flops=1e12 if depth == 2 else 3e12).model_copy(
            update={"language": each, "tasks": (_scores("help-topic", _seeds(0.61), 450),)}
        )
        for each in ("de", "tr", "el")
        for depth in depths
    ]
    answered = [_answer(each, RIGHT_ANSWER) for each in ("en", "de", "tr", "el")]
    answers = [each.model_copy(update={"task": "help-topic"}) for each in answered]
    records = RunRecords.of(source, rows).model_copy(update={"answers": tuple(answers)})
    with artifact.create(out / "report", Kind.REPORT) as draft:
        (draft.folder / RECORDS_FILE).write_text(records.model_dump_json(), encoding="utf-8")
        draft.facts = {"language": "en", "aligned_with": "p"}
    return out
