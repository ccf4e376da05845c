"""Processes that share a comparison: none does what another is at, or what builds on something still to come."""

from pathlib import Path

from lingraft.artifacts.artifact import Kind
from lingraft.comparison.shared_jobs import claim_in_turn, exclusive
from lingraft.jobs.job import Job


def planned(out: Path) -> list[Job]:
    inputs = {"a": "", "b": "a", "c": "a", "d": "bc", "e": ""}

    def job(name: str) -> Job:
        needs = {each: out / "made" / each for each in inputs[name]}
        return Job(name, name, Kind.TEXT, out / "made" / name, needs, {}, lambda folder, _: NotImplemented)

    return [job(name) for name in inputs]


def test_one_process_does_all_as_planned(tmp_path: Path) -> None:
    assert [job.name for job in claim_in_turn(planned(tmp_path), tmp_path)] == [*"abcde"]


def test_what_another_is_at_is_left_to_it_and_what_builds_on_it_waits(tmp_path: Path) -> None:
    one, other = (claim_in_turn(planned(tmp_path), tmp_path) for _ in range(2))
    assert (next(one).name, next(other).name) == ("a", "e")
    assert (next(one).name, next(other).name) == ("b", "a")  # done by the one, seen by the other
    assert next(other).name == "c"
    other.close()  # as its death does
    assert [job.name for job in one] == [*"cde"]


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    [*claim_in_turn(planned(tmp_path), tmp_path)]
    with exclusive(tmp_path / "report", tmp_path):
        pass
    assert [*(tmp_path / ".held").iterdir()] == []
