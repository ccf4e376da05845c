"""Processes that share a comparison: none does what another is at, or what builds on something still to come."""

from pathlib import Path

from lingraft.artifacts.manifest import Kind
from lingraft.comparison.runner import claim_in_turn
from lingraft.jobs.job import Job
from tests.workshop import TINY, Recipe

INPUTS = {"a": "", "b": "a", "c": "a", "d": "bc", "e": ""}


class PlannedJob(Job, frozen=True):
    """A job that depends on others by their names."""

    kind = Kind.TEXT

    @property
    def inputs(self) -> dict[str, Path]:
        return {each: self.out.with_name(each) for each in INPUTS[self.name]}


def planned(out: Path) -> list[Job]:
    recipe = Recipe.load(TINY)
    return [PlannedJob(recipe=recipe, own_name=name, out=out / "made" / name) for name in INPUTS]


def test_one_process_does_all_as_planned_and_leaves_nothing_behind(tmp_path: Path) -> None:
    assert [job.name for job in claim_in_turn(planned(tmp_path))] == [*"abcde"]
    assert [*(tmp_path / "made").iterdir()] == []


def test_what_another_is_at_is_left_to_it_and_what_builds_on_it_waits(tmp_path: Path) -> None:
    one, other = (claim_in_turn(planned(tmp_path)) for _ in range(2))
    assert (next(one).name, next(other).name) == ("a", "e")
    assert (next(one).name, next(other).name) == ("b", "a")  # done by the one, seen by the other
    assert next(other).name == "c"
    other.close()  # as its death does
    assert [job.name for job in one] == [*"cde"]
