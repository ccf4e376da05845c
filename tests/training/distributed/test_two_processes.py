"""A run of two processes is the run of one with the same global batch, for every stage."""

import json
import math
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from safetensors.torch import load_file

from lingraft.artifacts.manifest import read_manifest
from lingraft.training.schedule import read_curve
from tests.fixtures import forked, once
from tests.training.distributed import jobs
from tests.training.distributed.launch import free_port
from tests.workshop import Workshop

STAGES = ("heads", "noisy", "ordinary", "mini", "adapted", "along/step-00000003", "tags")
STAGES += ("paired", "modern", "modern-tags")
RANKS = ("rank-0", "rank-1")
CLOSE = 1e-6
"""Sums are taken in another order; in float32 that changes the last digit or two, and AdamW keeps it there."""


class Trained(NamedTuple):
    folder: Path
    told: str


@pytest.fixture(scope="module")
def both(workshop: Workshop) -> Trained:
    """All stages trained by one process, in `one`, and by two, in `two`, once a run."""
    folder = once.folder("two-processes", lambda place: train_both(workshop, place))
    return Trained(folder, "".join((folder / f"{name}.log").read_text() for name in RANKS))


def train_both(workshop: Workshop, folder: Path) -> None:
    """Train on one process, then on two, which are forks and know each other as `torchrun` would have it."""
    jobs.write_tags(folder / "tags.txt")
    jobs.write_pairs(folder / "pairs.tsv")
    jobs.save(workshop, folder / jobs.WORKSHOP_FILE)
    forked.start(jobs.alone, folder, log=folder / "one.log").returns()
    port = free_port()
    both = [
        forked.start(jobs.together, folder, rank, 2, port, log=folder / f"{name}.log")
        for rank, name in enumerate(RANKS)
    ]
    assert [process.ends() for process in both] == [0, 0], "\n".join(process.said for process in both)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return {
        f"{path.stem}.{name}": tensor
        for path in sorted(folder.glob("*.safetensors"))
        for name, tensor in load_file(path).items()
    }


@pytest.mark.parametrize("stage", STAGES)
def test_two_processes_learn_what_one_does(both: Trained, stage: str) -> None:
    one, two = weights(both.folder / "one" / stage), weights(both.folder / "two" / stage)
    assert one.keys() == two.keys()
    apart = math.sqrt(sum(float((two[name] - one[name]).double().square().sum()) for name in one))
    size = math.sqrt(sum(float(tensor.double().square().sum()) for tensor in one.values()))
    assert apart / size < CLOSE
    for name in one:
        torch.testing.assert_close(two[name], one[name], rtol=0, atol=1e-5 * float(one[name].abs().max()))


@pytest.mark.parametrize("stage", STAGES)
def test_two_processes_have_the_learning_curve_and_cost_of_one(both: Trained, stage: str) -> None:
    one, two = read_curve(both.folder / "one" / stage), read_curve(both.folder / "two" / stage)
    assert [(point.step, point.tokens, point.flops) for point in one] == [
        (point.step, point.tokens, point.flops) for point in two
    ]
    assert [point.loss for point in two] == pytest.approx([point.loss for point in one], rel=CLOSE)
    records = [read_manifest(both.folder / who / stage).record for who in ("one", "two")]
    assert [found.pop("processes") for found in records] == [1, 2]
    assert records[0] == records[1]


def test_both_processes_have_the_same_weights_bit_for_bit_after_every_step(both: Trained) -> None:
    one, other = (json.loads((both.folder / f"weights-{rank}.json").read_text()) for rank in (0, 1))
    assert len(one) > 50
    assert one == other
