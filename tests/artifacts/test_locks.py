import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lingraft.artifacts.files import require_new
from lingraft.artifacts.locks import folder_lock, remove_partial_writes
from lingraft.errors import ArtifactError
from tests.fixtures import forked


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


def test_an_output_can_be_tried_while_another_process_clears_up_beside_it(tmp_path: Path) -> None:
    tried = threading.Event()

    def clear_up() -> None:
        while not tried.is_set():
            remove_partial_writes(tmp_path / "out")

    with ThreadPoolExecutor() as pool:
        cleared = pool.submit(clear_up)
        try:
            for _ in range(2000):  # of a named file or folder, about one in 150 was cleared up
                require_new(tmp_path / "out")
        finally:
            tried.set()
        cleared.result()


def hold(folder: Path) -> None:
    with folder_lock(folder):
        print("held", flush=True)
        time.sleep(600)


def test_a_process_that_is_killed_holds_nothing(tmp_path: Path) -> None:
    with forked.start(hold, tmp_path / "out", log=tmp_path / "log") as child:
        child.wait_for_word("held")
        with pytest.raises(ArtifactError), folder_lock(tmp_path / "out"):
            pass
    with folder_lock(tmp_path / "out"):
        pass
