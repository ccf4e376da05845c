"""What the stages refuse, and that they refuse it before any training."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from lingraft.artifacts.artifact import Artifact
from lingraft.config.tasks import Task
from lingraft.data.blocks import build
from lingraft.data.text import SplitName
from lingraft.errors import ArtifactError, DepthError, RecipeError, TextError, TokenizerError, TrainingError
from lingraft.stages import finetune, pretrain
from lingraft.training.schedule import TrainingMetrics, ignore_metrics
from tests.workshop import Workshop, changed


def test_a_depth_without_a_head_is_refused_with_those_that_have_one(workshop: Workshop, tmp_path: Path) -> None:
    with pytest.raises(DepthError, match=r"depth 4 must be from 1 to the primary's 3 layers"):
        workshop.adapt("de", 4, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_pretraining_on_another_language_is_refused(workshop: Workshop, tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="the tokenizer of 'de', not of 'en'"):
        pretrain.pretrain(
            workshop.recipe, workshop.blocks["de"], workshop.tokenizers["de"], tmp_path / "out", ignore_metrics
        )


def test_blocks_of_another_tokenizer_are_refused_before_training(workshop: Workshop, tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="was made with tokenizer"):
        dataclasses.replace(workshop, blocks={"de": workshop.blocks["tr"]}).adapt("de", 1, tmp_path / "out")


def test_a_recipe_of_another_model_is_refused(workshop: Workshop, tmp_path: Path) -> None:
    other = changed(workshop.recipe, "encoder", layers=4, mlm_heads=(1, 4))
    with pytest.raises(RecipeError, match=r"\[encoder\] is not that of the primary"):
        dataclasses.replace(workshop, recipe=other).adapt("de", 1, tmp_path / "out")
    with pytest.raises(RecipeError, match=r"\[encoder\] is not that of the primary"):
        finetune.finetune(other, "topic", workshop.primary, workshop.texts["en"], 1, tmp_path / "out", ignore_metrics)


def test_blocks_of_another_length_are_refused(workshop: Workshop, tmp_path: Path) -> None:
    longer = changed(workshop.recipe, "encoder", block_tokens=48)
    build(longer, workshop.texts["en"], workshop.tokenizers["en"], tmp_path / "blocks")
    with pytest.raises(ArtifactError, match="blocks of 48 tokens, but the recipe says 32"):
        pretrain.pretrain(
            workshop.recipe, tmp_path / "blocks", workshop.tokenizers["en"], tmp_path / "out", ignore_metrics
        )


def test_finetuning_on_text_of_another_language_is_refused(workshop: Workshop, tmp_path: Path) -> None:
    with pytest.raises(TextError, match="text in 'de', but text in 'en' is needed"):
        finetune.finetune(
            workshop.recipe, "topic", workshop.primary, workshop.texts["de"], 1, tmp_path / "out", ignore_metrics
        )


def test_a_recipe_without_a_task_is_not_finetuned(workshop: Workshop, tmp_path: Path) -> None:
    recipe = workshop.recipe.model_copy(update={"tasks": ()})
    with pytest.raises(RecipeError, match=r"does not have a task 'topic': its \[\[tasks\]\] are \[\]"):
        finetune.finetune(recipe, "topic", workshop.primary, workshop.texts["en"], 1, tmp_path / "out", ignore_metrics)


def test_a_training_that_runs_away_leaves_no_artifact(workshop: Workshop, tmp_path: Path) -> None:
    wild = changed(workshop.recipe, "adaptation", learning_rate=1e38)
    with pytest.raises(TrainingError, match=r"the loss or a gradient is not finite .* Lower the learning rate"):
        dataclasses.replace(workshop, recipe=wild).adapt("de", 1, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["out.training"]


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
        pretrain.pretrain(
            workshop.recipe, workshop.blocks["en"], workshop.tokenizers["en"], tmp_path / out, seen.append
        )
    with pytest.raises(ArtifactError, match=words):
        finetune.finetune(
            workshop.recipe, "topic", workshop.primary, workshop.texts["en"], 1, tmp_path / out, seen.append
        )
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
        finetune.finetune(
            workshop.recipe, "topic", workshop.primary, workshop.texts["en"], 1, tmp_path / "out", seen.append
        )
    assert seen == []
