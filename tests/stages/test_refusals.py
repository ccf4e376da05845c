"""What the stages refuse, and that they refuse it before any training."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lingraft.artifacts.artifact import Artifact
from lingraft.config.tasks import Task
from lingraft.data.text import SplitName
from lingraft.errors import (
    ArtifactError,
    DepthError,
    LingraftError,
    RecipeError,
    TextError,
    TokenizerError,
    TrainingError,
)
from lingraft.stages import finetune, pretrain
from lingraft.training.schedule import MetricsCallback, TrainingMetrics, ignore_metrics
from tests.workshop import Workshop, changed


def changed_shop(shop: Workshop, section: str, **values: Any) -> Workshop:
    return dataclasses.replace(shop, recipe=changed(shop.recipe, section, **values))


def pretrained(shop: Workshop, out: Path, language: str = "en", watch: MetricsCallback = ignore_metrics) -> Artifact:
    return pretrain.pretrain(shop.recipe, shop.blocks[language], shop.tokenizers[language], out, watch)


def finetuned(shop: Workshop, out: Path, language: str = "en", watch: MetricsCallback = ignore_metrics) -> Artifact:
    return finetune.finetune(shop.recipe, "topic", shop.primary, shop.texts[language], 1, out, watch)


def test_inputs_that_do_not_belong_together_are_refused(workshop: Workshop, tmp_path: Path) -> None:
    out, deeper = tmp_path / "out", changed_shop(workshop, "encoder", layers=4, mlm_heads=(1, 4))
    longer = changed_shop(workshop, "encoder", block_tokens=48)
    turkish = dataclasses.replace(workshop, blocks={"de": workshop.blocks["tr"]})
    idle = dataclasses.replace(workshop, recipe=workshop.recipe.model_copy(update={"tasks": ()}))
    of_another, no_task = r"\[encoder\] is not that of the primary", r"a task 'topic': its \[\[tasks\]\] are \[\]"
    attempts: list[tuple[Callable[[], object], type[LingraftError], str]] = [
        (lambda: pretrained(workshop, out, "de"), TokenizerError, "the tokenizer of 'de', not of 'en'"),
        (lambda: pretrained(longer, out), ArtifactError, "blocks of 32 tokens, but the recipe says 48"),
        (lambda: turkish.adapt("de", 1, out), TokenizerError, "was made with tokenizer"),
        (lambda: deeper.adapt("de", 1, out), RecipeError, of_another),
        (lambda: workshop.adapt("de", 4, out), DepthError, "depth 4 must be from 1 to the primary's 3 layers"),
        (lambda: finetuned(deeper, out), RecipeError, of_another),
        (lambda: finetuned(workshop, out, "de"), TextError, "text in 'de', but text in 'en' is needed"),
        (lambda: finetuned(idle, out), RecipeError, no_task),
    ]
    for attempt, error, words in attempts:
        with pytest.raises(error, match=words):
            attempt()
    assert [*tmp_path.iterdir()] == []


def test_a_training_that_runs_away_leaves_no_artifact(workshop: Workshop, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"the loss or a gradient is not finite .* Lower the learning rate"):
        changed_shop(workshop, "adaptation", learning_rate=1e38).adapt("de", 1, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("out", "words"), [("file/out", "cannot write"), ("full", "exists already")])
def test_an_output_that_cannot_be_written_is_named_before_training(
    workshop: Workshop, tmp_path: Path, out: str, words: str
) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full/mine").write_text("mine")
    seen: list[TrainingMetrics] = []
    with pytest.raises(ArtifactError, match=rf"({words} .*{out}|{out} {words})"):
        workshop.adapt("de", 1, tmp_path / out, watch=seen.append)
    with pytest.raises(ArtifactError, match=words):
        pretrained(workshop, tmp_path / out, watch=seen.append)
    with pytest.raises(ArtifactError, match=words):
        finetuned(workshop, tmp_path / out, watch=seen.append)
    assert seen == []


def test_bad_dev_examples_are_found_before_any_training(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = finetune.load_examples

    def bad_dev(task: Task, split: SplitName, language: str, text: Artifact | None) -> list[Any]:
        found = given(task, split, language, text)
        return [dataclasses.replace(example, label="moon") for example in found] if split == "dev" else found

    monkeypatch.setattr(finetune, "load_examples", bad_dev)
    seen: list[TrainingMetrics] = []
    with pytest.raises(TextError, match="moon"):
        finetuned(workshop, tmp_path / "out", watch=seen.append)
    assert seen == []
