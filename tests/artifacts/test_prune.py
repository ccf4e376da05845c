"""Shared results that nobody has used for long are removed; those that are in use, or were, stay."""

import os
import threading
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lingraft.artifacts import artifact
from lingraft.artifacts.cache import shared_result
from lingraft.artifacts.manifest import Kind
from lingraft.artifacts.prune import prune_results
from lingraft.cli import app
from lingraft.errors import ArtifactError

DAY = 86_400
OLD = {"seed": 1}


def _use(results: Path, provenance: dict[str, int], part: str = "") -> Path:
    """Make a shared result or take it, as a step does; returns its folder."""
    with shared_result(str(results), Kind.TEXT, provenance, part) as (result, found):
        if not found:
            with artifact.create(result / part, Kind.TEXT) as draft:
                (draft.folder / "train.jsonl").write_text("{}")
                draft.facts = {"language": "de"}
    return result.parent


def _age(folder: Path, days: float) -> None:
    for path in (folder, *folder.rglob("*")):
        os.utime(path, (time.time() - days * DAY,) * 2)


@pytest.mark.parametrize("part", ["", "de"])
def test_a_result_that_a_process_holds_stays_however_old_it_is(tmp_path: Path, part: str) -> None:
    old = _use(tmp_path, OLD, part)
    with shared_result(str(tmp_path), Kind.TEXT, OLD, part):
        _age(old, 31)
        found: list[Path] = []
        # The lock is a thread's own, as it is a process'.
        other = threading.Thread(target=lambda: found.extend(prune_results(tmp_path, 30 * DAY)))
        other.start()
        other.join()
    assert found == []
    assert old.exists()


def test_the_command_lists_first_and_deletes_when_it_is_told_to(tmp_path: Path) -> None:
    old = _use(tmp_path, OLD)
    _age(old, 31)
    listed = CliRunner().invoke(app, ["prune", str(tmp_path)])
    assert listed.stdout == f"would delete {old}\n"
    assert old.exists()
    deleted = CliRunner().invoke(app, ["prune", str(tmp_path), "--yes"])
    assert deleted.stdout == f"deleted {old}\n"
    assert CliRunner().invoke(app, ["prune", str(tmp_path), "--yes"]).stdout == "nothing to delete\n"


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="is no folder"):
        next(prune_results(tmp_path / "absent", DAY))


def test_a_result_goes_when_no_run_has_asked_for_it_for_long(tmp_path: Path) -> None:
    old, new, taken, training = (_use(tmp_path, {"seed": seed}) for seed in range(4))
    (tmp_path / "mine").mkdir()
    for folder in (old, taken, training, tmp_path / "mine"):
        _age(folder, 31)
    _age(new, 29)
    _use(tmp_path, {"seed": 2})
    (training / "result.training" / "step-10").mkdir(parents=True)
    (training / "result.training" / "step-10" / "state").write_text("x")
    assert [*prune_results(tmp_path, 30 * DAY)] == [old]
    assert {*tmp_path.iterdir()} == {new, taken, training, tmp_path / "mine"}
    assert _use(tmp_path, {"seed": 0}) == old
