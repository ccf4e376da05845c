"""A tiny project whose trainings last long enough to be interrupted often, and keep checkpoints all the time."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fixtures import once
from tests.fixtures.forked import Child
from tests.interrupted.commands import Limits, run, start
from tests.workshop import Workshop

STAGES = ("pretrain", "mini", "adapt", "finetune")
TENSORS = {
    "pretrain": ("body", "vocabulary"),
    "mini": ("layers",),
    "adapt": ("vocabulary",),
    "finetune": ("body", "head"),
}
_RECIPE = """
name = "interrupted"
source = "en"
targets = ["de"]
precision = "fp32"
system = "MINIPOST"

[text]
kind = "folder"
path = "text"

[tokenizer]
vocabulary = 120

[encoder]
width = 32
layers = 2
attention_heads = 2
mlm_heads = [2]
block_tokens = 32
dropout = 0.1

[pretraining]
steps = {steps}
batch_blocks = 6
micro_batch_blocks = 3
learning_rate = {rate}
warmup_steps = 5
{pace}

[mini]
steps = {steps}
batch_blocks = 6
fresh_layers = 1
learning_rate = {mini_rate}
{pace}

[adaptation]
depth = 1
steps = {steps}
batch_blocks = 6
learning_rate = {rate}
checkpoint_every_steps = 25
early_checkpoints = [3]
{pace}

[[tasks]]
name = "topic"
kind = "documents"

[tasks.finetuning]
epochs = {epochs}
batch_examples = 13
learning_rate = {task_rate}
{pace}
"""
PACE = {"log_every_steps": 7, "keep_every_s": 0.02}


def recipe(
    folder: Path,
    steps: int = 80,
    epochs: float = 4,
    rate: float = 3e-3,
    mini_rate: float = 3e-3,
    task_rate: float = 1e-3,
    **pace: Any,
) -> Path:
    lines = "\n".join(f"{key} = {value}" for key, value in (PACE | pace).items())
    settings = {"steps": steps, "epochs": epochs, "rate": rate, "mini_rate": mini_rate, "task_rate": task_rate}
    path = folder / "recipe.toml"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(_RECIPE.format(**settings, pace=lines), encoding="utf-8")
    return path


@dataclass
class Project:
    """Command lines of the stages, and what they give where nothing interrupts them."""

    shop: Workshop
    folder: Path

    @property
    def recipe(self) -> Path:
        return self.folder / "recipe.toml"

    def whole(self, stage: str) -> Path:
        """Result of a stage that nothing interrupted, made once a run of the tests."""

        def make(folder: Path) -> None:
            run(self.arguments(stage, folder / stage), folder / "log")

        return once.folder(f"whole-{stage}", make, _RECIPE) / stage

    def arguments(self, stage: str, out: Path, recipe: Path | None = None) -> list[str]:
        """A command line; inputs from other stages are the results of the runs without a stop."""
        blocks, shop = self.shop.blocks, self.shop
        given = {
            "pretrain": {"blocks": blocks["en"], "tokenizer": shop.tokenizers["en"]},
            "mini": {"blocks": blocks["en"]},
            "adapt": {"blocks": blocks["de"], "tokenizer": shop.tokenizers["de"], "checkpoints": curve(out)},
            "finetune": {"text": shop.texts["en"]},
        }[stage] | {"recipe": recipe or self.recipe, "out": out}
        if stage != "pretrain":
            given["primary"] = self.whole("pretrain")
        if stage == "adapt":
            given["mini"] = self.whole("mini")
        return [stage, *(word for name, folder in given.items() for word in (f"--{name}", str(folder)))]

    def start(self, stage: str, out: Path, limits: Limits | None = None, recipe: Path | None = None) -> Child:
        return start(self.arguments(stage, out, recipe), out.with_name(f"{out.name}.log"), limits)

    def goes_on_to_the_same(self, stage: str, out: Path, limits: Limits | None = None) -> Child:
        """Go on with a stage to its end, and compare the result with that of the run without a stop."""
        command = self.start(stage, out, limits)
        assert command.ends() == 0, command.said
        require_same(stage, out, self.whole(stage))
        return command


def curve(out: Path) -> Path:
    return out.with_name(f"{out.name}-curve")


def training(out: Path) -> Path:
    return out.with_name(f"{out.name}.training")


def checkpoints(out: Path) -> list[Path]:
    return sorted(training(out).glob("step-*"))


def being_written(out: Path) -> bool:
    return any(training(out).glob(".step-*"))


def steps_kept(out: Path) -> int:
    return max((int(place.name.removeprefix("step-")) for place in checkpoints(out)), default=0)


def require_same(stage: str, out: Path, whole: Path) -> None:
    """Weights are equal to the byte, curves but for the time they took, and so is all that was kept on the way."""
    for part in TENSORS[stage]:
        assert (out / f"{part}.safetensors").read_bytes() == (whole / f"{part}.safetensors").read_bytes()
    assert history(out) == history(whole)
    assert facts(out) == facts(whole)
    assert not training(out).exists()
    # A process that was killed leaves the file of its lock, which the next one takes.
    assert [left for left in out.parent.glob(".*") if left.suffix != ".lock"] == []
    if stage == "adapt":
        along, along_whole = sorted(curve(out).iterdir()), sorted(curve(whole).iterdir())
        assert [place.name for place in along] == [place.name for place in along_whole]
        for place, place_whole in zip(along, along_whole, strict=True):
            found, wanted = (each / "vocabulary.safetensors" for each in (place, place_whole))
            assert found.read_bytes() == wanted.read_bytes()
            assert history(place) == history(place_whole)


def history(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "history.jsonl").read_text(encoding="utf-8").splitlines()
    return [{key: value for key, value in json.loads(line).items() if key != "elapsed_s"} for line in lines]


def facts(folder: Path) -> dict[str, Any]:
    found = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    found["cost"].pop("elapsed_s")
    found["logs"].pop("history.jsonl", None)
    return found
