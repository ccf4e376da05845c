"""Trainings of every stage, small: done by one process, and by two together."""

import hashlib
import json
import os
import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import TypeAdapter

from lingraft import ranks
from lingraft.config.recipe import Recipe
from lingraft.config.systems import System
from lingraft.stages import build_mini, finetune, pretrain
from lingraft.stages.adapt import adapt
from lingraft.training.distributed import process_group as lingraft_processes
from lingraft.training.optimizer import Optimizer
from lingraft.training.schedule import ignore_metrics
from tests.made_up import documents
from tests.workshop import Workshop

WORKSHOP_FILE = "workshop.json"
_STEPS = {"steps": 12, "batch_blocks": 16, "learning_rate": 3e-3, "warmup_steps": 2}


def recipe_for(recipe: Recipe, tags: Path) -> Recipe:
    """The workshop's recipe with short trainings, micro-batches, dropout, and a task of tags."""
    raw = recipe.model_dump(mode="json")
    raw["pretraining"] |= _STEPS
    raw["adaptation"] |= _STEPS | {"early_checkpoints": [3]}
    data = {split: {"kind": "file", "path": str(tags)} for split in ("train", "dev", "test")}
    paced = {"batch_examples": 10, "epochs": 2, "learning_rate": 1e-3, "log_every_steps": 1}
    raw["tasks"].append({"name": "tags", "kind": "tags", "finetuning": paced} | data)
    return Recipe.parse(raw)


def write_tags(path: Path) -> Path:
    """Five sentences of very different lengths: three micro-batches of two, of which two processes have one too few."""
    draw = random.Random(1)
    words = " ".join(document["text"] for document in documents("en", 8)).split()
    sentences = [
        "".join(f"{draw.choice(words)}\t{draw.choice(('O', 'B-PER', 'I-PER'))}\n" for _ in range(length))
        for length in (1, 9, 2, 14, 5)
    ]
    path.write_text("\n".join(sentences), encoding="utf-8")
    return path


def write_pairs(path: Path) -> Path:
    """Made-up lines in English and German."""
    texts = ([document["text"].split("\n")[0] for document in documents(name, 40)] for name in ("en", "de"))
    path.write_text("".join(f"{one}\t{other}\n" for one, other in zip(*texts, strict=True)), encoding="utf-8")
    return path


def train_all(shop: Workshop, out: Path, primaries: Path) -> None:
    """Every stage once, into folders of `out`; what is made from a primary takes it from `primaries`."""
    recipe, english = recipe_for(shop.recipe, out.parent / "tags.txt"), (shop.blocks["en"], shop.tokenizers["en"])
    german = shop.blocks["de"], shop.tokenizers["de"]
    pretrain.pretrain(recipe, *english, out / "heads", ignore_metrics)
    pretrain.pretrain(_noisy(recipe), *english, out / "noisy", ignore_metrics)
    pretrain.pretrain(_minipost(recipe), *english, out / "ordinary", ignore_metrics)
    pretrain.pretrain(_modern(recipe), *english, out / "modern", ignore_metrics)
    adapt(recipe, shop.primary, *german, 2, out / "adapted", ignore_metrics, checkpoints=out / "along")
    os.environ["LINGRAFT_CACHE"] = str(out.parent / "cache")  # of the source's vectors
    adapt(_paired(recipe, out.parent / "pairs.tsv"), shop.primary, *german, 1, out / "paired", ignore_metrics)
    finetune.finetune(recipe, "tags", primaries / "heads", None, 1, out / "tags", ignore_metrics)
    finetune.finetune(_modern(recipe), "tags", primaries / "modern", None, 1, out / "modern-tags", ignore_metrics)
    build_mini.build_mini(_minipost(recipe), primaries / "ordinary", shop.blocks["en"], out / "mini", ignore_metrics)


def _noisy(recipe: Recipe) -> Recipe:
    """With dropout and micro-batches."""
    raw = recipe.model_dump(mode="json")
    raw["encoder"]["dropout"] = 0.1
    raw["pretraining"] |= {"micro_batch_blocks": 4}
    return Recipe.parse(raw)


def _modern(recipe: Recipe) -> Recipe:
    """With pre-norm layers, of which the second has local attention shorter than a block."""
    raw = recipe.model_dump(mode="json")
    raw["encoder"]["family"] = {"separators": 1, "pre_norm": {"global_every": 2, "local_tokens": 8}}
    return Recipe.parse(raw)


def _paired(recipe: Recipe, pairs: Path) -> Recipe:
    """By pairs, of which a batch has few."""
    raw = recipe.model_dump(mode="json") | {"search": None, "targets": ["de"], "gate": {"metric": "alignment"}}
    raw["alignment"] = {"parallel": {"de": str(pairs)}}
    raw["adaptation"] |= {"depth": 1, "early_checkpoints": [], "pairs": {"batch_tokens": 96}}
    return Recipe.parse(raw)


def _minipost(recipe: Recipe) -> Recipe:
    raw = recipe.model_dump(mode="json") | {"search": None, "mini": _STEPS | {"fresh_layers": 2}}
    return Recipe.parse(raw).for_system(System.MINIPOST)


def save(shop: Workshop, path: Path) -> None:
    """Tell another process where everything is."""
    fields: dict[str, Any] = vars(shop) | {"curves": {}}
    path.write_text(TypeAdapter(Workshop).dump_json(Workshop(**fields)).decode(), encoding="utf-8")


@contextmanager
def weights_noted(path: Path) -> Iterator[None]:
    """Write hashes of what is trained, after every step, into a file."""
    hashes: list[str] = []
    step = Optimizer.step

    def noted(optimizer: Optimizer, learning_rate: float) -> None:
        step(optimizer, learning_rate)
        hashes.append(_hash(optimizer.parameters))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Optimizer, "step", noted)
        yield
    path.write_text(json.dumps(hashes), encoding="utf-8")


def _hash(tensors: Iterable[torch.Tensor]) -> str:
    return hashlib.sha256(b"".join(tensor.detach().numpy().tobytes() for tensor in tensors)).hexdigest()


def alone(folder: Path) -> None:
    """Train all in this process."""
    torch.set_num_threads(1)
    train_all(_told(folder), folder / "one", folder / "one")


def together(folder: Path, rank: int, processes: int, port: int) -> None:
    """Train all as one of several processes that `torchrun` has started, and note this one's weights."""
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": processes, "LOCAL_WORLD_SIZE": processes}
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in {**place, **meeting}.items()})
    vars(lingraft_processes)["_PARENT"] = os.getppid()  # of this process, not of the one that has made the import
    torch.set_num_threads(1)
    with weights_noted(folder / f"weights-{ranks.rank()}.json"):
        train_all(_told(folder), folder / "two", folder / "one")


def _told(folder: Path) -> Workshop:
    return TypeAdapter(Workshop).validate_json((folder / WORKSHOP_FILE).read_bytes())
