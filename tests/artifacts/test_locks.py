import multiprocessing
from pathlib import Path

import pytest

from lingraft.artifacts.locks import folder_lock, remove_partial_writes
from lingraft.errors import ArtifactError


def test_a_folder_is_held_by_one_at_a_time_and_is_gone_if_nothing_came_into_it(tmp_path: Path) -> None:
    folder = tmp_path / "deep/out.training"
    with folder_lock(folder):
        folder.mkdir()
        with pytest.raises(ArtifactError, match=r"out\.training is in use by another process"), folder_lock(folder):
            pass
    assert not folder.exists()
    with folder_lock(folder):
        folder.mkdir()
        (folder / "mine").write_text("mine")
    assert (folder / "mine").read_text() == "mine"
    with folder_lock(folder):
        pass


def _hold(folder: Path, held: "multiprocessing.synchronize.Event") -> None:
    with folder_lock(folder):
        held.set()
        while True:
            pass


def test_a_process_that_is_killed_holds_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("forkserver")
    held = context.Event()
    process = context.Process(target=_hold, args=(tmp_path / "out", held))
    process.start()
    assert held.wait(60)
    with pytest.raises(ArtifactError), folder_lock(tmp_path / "out"):
        pass
    process.kill()
    process.join()
    with folder_lock(tmp_path / "out"):
        pass


def test_where_there_can_be_no_folder_there_is_nothing_to_hold(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("mine")
    with folder_lock(tmp_path / "file/out"):
        pass
    assert "is not locked, and nothing can be kept there: cannot write" in capsys.readouterr().err


def test_only_what_a_killed_writer_left_of_this_very_folder_is_removed(tmp_path: Path) -> None:
    for name in (".out-abcdefgh", ".out-2-abcdefgh", ".out-abcdefghi", "out-abcdefgh", ".other-abcdefgh", "out"):
        (tmp_path / name).mkdir()
    remove_partial_writes(tmp_path / "out")
    left = {".out-2-abcdefgh", ".out-abcdefghi", "out-abcdefgh", ".other-abcdefgh", "out"}
    assert {place.name for place in tmp_path.iterdir()} == left
