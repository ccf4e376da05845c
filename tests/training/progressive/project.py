"""Progressive adaptations of the workshop's German, short enough to be run many times."""

from pathlib import Path
from typing import Any

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import read_manifest
from lingraft.config.recipe import Recipe
from lingraft.config.systems import Stage
from lingraft.model.flops import step_flops
from lingraft.stages.adapt import adapt
from lingraft.training.schedule import MetricsCallback, ignore_metrics
from tests.fixtures import once
from tests.workshop import Workshop

DEPTHS = [1, 2, 3]
FIXED: dict[str, Any] = {"kind": "fixed", "depths": DEPTHS, "shares": [0.25, 0.25, 0.5]}
DEV_LOSS: dict[str, Any] = {
    "kind": "dev_loss",
    "depths": DEPTHS,
    "look_every_steps": 2,
    "window_looks": 1,
    "threshold": 0.9,
}
SWITCHES = {"fixed": FIXED, "dev_loss": DEV_LOSS}
_PACE = {"steps": 8, "batch_blocks": 4, "log_every_steps": 1, "warmup_steps": 2, "judged_blocks": 16}


def progressive(recipe: Recipe, switch: dict[str, Any] | None, depth: int = 3, **adaptation: Any) -> Recipe:
    """The recipe with a short adaptation that switches as it is told; on one thread, so that bits repeat."""
    raw = recipe.model_dump(mode="json") | {"search": None, "threads": 1}
    raw["adaptation"] |= _PACE | {"depth": depth, "progressive": switch} | adaptation
    return Recipe.parse(raw)


def learned(
    shop: Workshop, recipe: Recipe, out: Path, watch: MetricsCallback = ignore_metrics, **given: Any
) -> Artifact:
    """German embeddings by a recipe over its own depth."""
    german = shop.blocks["de"], shop.tokenizers["de"]
    return adapt(recipe, shop.primary, *german, recipe.adaptation.depth, out, watch, **given)


def by_switch(shop: Workshop, **adaptation: Any) -> dict[str, Path]:
    """German learned once a run by each kind of switch."""
    recipes = {name: progressive(shop.recipe, switch, **adaptation) for name, switch in SWITCHES.items()}

    def make(folder: Path) -> None:
        for name, recipe in recipes.items():
            learned(shop, recipe, folder / name)

    folder = once.folder("progressive", make, *(recipe.to_json() for recipe in recipes.values()))
    return {name: folder / name for name in recipes}


def flops_at(recipe: Recipe, depth: int) -> float:
    """Of one update over a depth, by equation A3."""
    return step_flops(recipe, recipe.steps_over(depth)[Stage.ADAPT], recipe.adaptation, recipe.tokenizer.vocabulary)


def phases(folder: Path) -> list[dict[str, Any]]:
    """What a manifest says of phases."""
    return list(read_manifest(folder).details["phases"])


def vocabulary(folder: Path) -> bytes:
    """The tensors as they are on disk."""
    return (folder / "vocabulary.safetensors").read_bytes()
