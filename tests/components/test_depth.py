"""How deep the library is: what stands on the stack between a component and the optimizer."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest
from kfp import dsl

import lingraft
from components import data, language
from lingraft.training.optimizer import Optimizer
from tests.tracking_stores import quiet, sqlite_store
from tests.workshop import Workshop, changed

pytestmark = quiet
ROOT = Path(lingraft.__file__).parents[1]
MOST_FRAMES = 10


def ours(frame: FrameType | None) -> Iterator[str]:
    """Functions of ours on a stack, from the inside out; comprehensions belong to the function that they stand in."""
    while frame:
        path = Path(frame.f_code.co_filename)
        is_ours = any(path.is_relative_to(ROOT / package) for package in ("lingraft", "components"))
        if is_ours and not frame.f_code.co_name.startswith("<"):
            yield f"{path.relative_to(ROOT)}: {frame.f_code.co_name}"
        frame = frame.f_back


def test_a_component_trains_within_few_frames(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []
    step = Optimizer.step

    def watched(self: Optimizer, *given: object) -> object:
        seen.append([*ours(sys._getframe(1))])
        return step(self, *given)

    monkeypatch.setattr(Optimizer, "step", watched)
    recipe = dsl.Artifact(uri=str(tmp_path / "recipe.json"))
    Path(recipe.path).write_text(changed(workshop.recipe, "adaptation", steps=1, warmup_steps=0).to_json())
    nothing = tmp_path / "nothing"
    nothing.mkdir()
    folders = {
        "run": tmp_path / "run",
        "primary": workshop.primary,
        "mini": nothing,
        "blocks": workshop.blocks["de"],
        "tokenizer": workshop.tokenizers["de"],
        "initial": nothing,
        "depths": nothing,
        "embeddings": tmp_path / "embeddings",
    }
    artifacts = {name: dsl.Artifact(uri=str(folder)) for name, folder in folders.items()}
    with sqlite_store(tmp_path):
        data.open_run.python_func(recipe, "language", "run-1", artifacts["run"])
        language.adapt.python_func(recipe, depth=1, **artifacts, metrics=dsl.Metrics())
    [frames] = seen
    assert len(frames) <= MOST_FRAMES, "\n".join(frames)
