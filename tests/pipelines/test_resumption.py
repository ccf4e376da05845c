"""A pipeline on this machine that is killed in the middle and run again: it goes on and arrives where it would have."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lingraft import tracking
from lingraft.artifacts.manifest import Kind
from lingraft.artifacts.names import embeddings_name
from lingraft.config.progressive import FixedSwitch
from lingraft.config.recipe import Recipe
from lingraft.stages import pretrain
from lingraft.stages.adapt import adapt
from lingraft.training.schedule import ignore_metrics, read_curve
from tests.pipelines.finished import tiny
from tests.pipelines.killed import Pipeline, same_tensors
from tests.steps.sources import register
from tests.tracking_stores import quiet, sqlite_store
from tests.training.progressive.project import flops_at
from tests.workshop import Workshop, changed

pytestmark = [quiet, pytest.mark.integration]


def test_a_pipeline_that_is_killed_goes_on_when_it_is_run_again(tmp_path: Path) -> None:
    recipe = tiny(tmp_path, tasks=(), search=None, threads=1)
    recipe = changed(recipe, "pretraining", steps=600, keep_every_s=0.1, log_every_steps=50)
    Pipeline("source", Kind.PRIMARY, recipe, tmp_path / "killed").kill_after_step(10)
    again = Pipeline("source", Kind.PRIMARY, recipe, tmp_path / "killed").ends_well()
    log = next((tmp_path / "killed").glob("*source.log")).read_text(encoding="utf-8")
    assert "going on after step " in log
    assert (
        log.count("made before from the same") >= 2
    )  # tokenizer and blocks; text is read to know whether it is the same
    blocks, tokenizer = (_of_language(tmp_path / "killed", kind) for kind in (Kind.BLOCKS, Kind.TOKENIZER))
    whole = pretrain.pretrain(recipe, blocks, tokenizer, tmp_path / "whole", ignore_metrics)
    assert again.fingerprint == whole.fingerprint
    assert same_tensors(again, whole)


@pytest.fixture
def tracked(workshop: Workshop, tmp_path: Path) -> Iterator[Path]:
    """Where pipelines keep what they make; the workshop's primary is registered in its store."""
    out = tmp_path / "out"
    out.mkdir()
    with sqlite_store(out):
        register(workshop, german(workshop.recipe), workshop.primary, tmp_path / "source")
        yield out


def german(recipe: Recipe) -> Recipe:
    """The recipe for German alone, without tasks or a search."""
    return recipe.model_copy(update={"tasks": (), "targets": ("de",), "search": None, "threads": 1})


@pytest.mark.nightly
def test_a_progressive_language_that_is_killed_goes_on_through_its_switch(
    workshop: Workshop, tracked: Path, tmp_path: Path
) -> None:
    switch = FixedSwitch(kind="fixed", depths=(1, 2), shares=(0.7, 0.3))
    length: dict[str, Any] = {"depth": 2, "steps": 1000, "keep_every_s": 0.1, "log_every_steps": 50}
    recipe = changed(german(workshop.recipe), "adaptation", progressive=switch, **length)
    recipe = Recipe.parse(recipe.to_json())
    first, _ = switch.updates(1000, [flops_at(recipe, 1), flops_at(recipe, 2)])

    reached = Pipeline("language", Kind.EMBEDDINGS, recipe, tracked).kill_after_step(20)
    assert 20 <= reached < first, "it is to be killed before the switch"
    made = Pipeline("language", Kind.EMBEDDINGS, recipe, tracked).ends_well()

    assert f"going on after step {reached}" in next(tracked.glob("*language.log")).read_text(encoding="utf-8")
    given = [_of_language(tracked, kind) for kind in (Kind.BLOCKS, Kind.TOKENIZER)]
    whole = adapt(recipe, workshop.primary, *given, 2, tmp_path / "whole", ignore_metrics)
    assert same_tensors(made, whole)
    assert [phase["depth"] for phase in made.manifest.details["phases"]] == [1, 2]
    assert made.manifest.details["phases"] == whole.manifest.details["phases"]
    assert [point.loss for point in read_curve(made.folder)] == [point.loss for point in read_curve(whole.folder)]
    tags = tracking.tags_of(embeddings_name(recipe, "de"))
    assert tags["fingerprint"] == made.fingerprint
    assert tags["progressive"].startswith(f"{first} over 1, ")


def _of_language(out: Path, kind: Kind) -> Path:
    (found,) = out.glob(f"results/{kind}-*/result")
    return found
