"""A progressive adaptation that is stopped at any step goes on to the same bits, also where it switches."""

from pathlib import Path
from typing import Any

import pytest

from lingraft.signals import Interruption
from lingraft.training.schedule import TrainingMetrics
from tests.interrupted.project import facts, history
from tests.training.progressive.project import SWITCHES, by_switch, learned, phases, progressive, vocabulary
from tests.workshop import Workshop, stopping_after

LOOKED_AT: dict[str, Any] = {"judge_every_steps": 3, "weight_decay": 0.1}


def same(out: Path, whole: Path) -> bool:
    return (vocabulary(out), history(out), facts(out)) == (vocabulary(whole), history(whole), facts(whole))


@pytest.fixture(scope="module")
def whole(workshop: Workshop) -> dict[str, Path]:
    return by_switch(workshop, **LOOKED_AT)


@pytest.mark.parametrize("name", SWITCHES)
def test_stopped_before_at_and_after_a_switch_it_ends_with_the_same_bits(
    workshop: Workshop, whole: dict[str, Path], tmp_path: Path, name: str
) -> None:
    recipe = progressive(workshop.recipe, SWITCHES[name], **LOOKED_AT)
    switch, out = phases_end(whole[name])[0], tmp_path / "out"
    for step in range(switch - 1, switch + 2):
        with pytest.raises(Interruption, match=r"asked to stop"):
            learned(workshop, recipe, out, stopping_after(step))
    learned(workshop, recipe, out)
    assert same(out, whole[name])


def phases_end(folder: Path) -> list[int]:
    """Last step of each phase."""
    counts = [phase["steps"] for phase in phases(folder)]
    return [sum(counts[: number + 1]) for number in range(len(counts))]


@pytest.mark.parametrize("name", SWITCHES)
def test_what_goes_wrong_after_a_switch_leaves_no_checkpoint_of_before_it_as_if_of_now(
    workshop: Workshop, whole: dict[str, Path], tmp_path: Path, name: str
) -> None:
    recipe, out = progressive(workshop.recipe, SWITCHES[name], **LOOKED_AT), tmp_path / "out"
    first = phases_end(whole[name])[0]

    def failing(point: TrainingMetrics) -> None:
        if point.step == first + 1:
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        learned(workshop, recipe, out, failing)
    learned(workshop, recipe, out)
    assert same(out, whole[name])
