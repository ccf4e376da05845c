import errno
import json
import os
from pathlib import Path

import pytest

from lingraft.artifacts.files import (
    atomic_folder,
    make_folder,
    require_new,
    require_writable,
    write_json,
    write_text,
)
from lingraft.errors import ArtifactError
from tests.full_disk import LIMIT_BYTES, full_disk


def write_in_place(folder: Path, content: str) -> None:
    with atomic_folder(folder) as temporary:
        (temporary / "file").write_text(content)


def test_a_folder_appears_whole_and_readable_by_others(tmp_path: Path) -> None:
    with atomic_folder(tmp_path / "deep/out") as temporary:
        assert not (tmp_path / "deep/out").exists()
        (temporary / "inner").mkdir()
        (temporary / "inner/file").write_text("x")
    assert (tmp_path / "deep/out/inner/file").read_text() == "x"
    assert (tmp_path / "deep/out").stat().st_mode & 0o777 == 0o755
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["out"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_a_failure_while_writing_leaves_nothing_behind(tmp_path: Path, error: type[BaseException]) -> None:
    def fail() -> None:
        with atomic_folder(tmp_path / "out") as temporary:
            (temporary / "file").write_text("half")
            raise error

    with pytest.raises(error):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_an_empty_folder_is_filled_but_a_full_one_is_kept(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    write_in_place(tmp_path / "empty", "mine")
    with pytest.raises(ArtifactError, match="empty exists already"):
        write_in_place(tmp_path / "empty", "theirs")
    assert (tmp_path / "empty/file").read_text() == "mine"
    for target in (tmp_path / "empty/file", tmp_path / "empty/file/out", tmp_path):
        with pytest.raises(ArtifactError, match=str(target)):
            require_new(target)
    require_new(tmp_path / "deep/out")
    assert not (tmp_path / "deep").exists()


def test_a_parent_that_is_a_file_is_refused_with_the_path(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for target in (tmp_path / "file/out", tmp_path / "file/deep/out"):
        with pytest.raises(ArtifactError) as caught:
            write_in_place(target, "x")
        assert f"cannot write {target}" in str(caught.value)
        for write in (make_folder, lambda out: write_text(out, "x")):
            with pytest.raises(ArtifactError, match=f"cannot write {target}.* Choose another output") as caught:
                write(target)
            assert "Free space" not in str(caught.value)


def test_a_file_that_does_not_fit_leaves_the_old_one(tmp_path: Path) -> None:
    write_text(tmp_path / "file", "old")
    with full_disk(), pytest.raises(ArtifactError, match=r"cannot write .*file"):
        write_text(tmp_path / "file", "x" * (LIMIT_BYTES + 1))
    assert (tmp_path / "file").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_new_file_can_be_read_by_others_and_an_old_one_keeps_its_permissions(tmp_path: Path) -> None:
    write_text(tmp_path / "file", "new")
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o644
    (tmp_path / "file").chmod(0o600)
    write_text(tmp_path / "file", "newer")
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600


def test_a_disk_that_fills_up_at_the_last_moment_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ArtifactError, match="No space left"):
        write_in_place(tmp_path / "out", "x")
    with pytest.raises(ArtifactError, match="No space left"):
        write_text(tmp_path / "file", "x")
    assert list(tmp_path.iterdir()) == []


def test_json_is_the_same_bytes_for_the_same_content(tmp_path: Path) -> None:
    write_json(tmp_path / "one", {"b": [1, 2.5, None], "a": "größer"})
    write_json(tmp_path / "two", {"a": "größer", "b": [1, 2.5, None]})
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert json.loads((tmp_path / "one").read_text(encoding="utf-8")) == {"a": "größer", "b": [1, 2.5, None]}
    assert "größer" in (tmp_path / "one").read_text(encoding="utf-8")


def test_a_folder_that_cannot_be_is_refused_and_one_that_can_is_not_made(tmp_path: Path) -> None:
    require_writable(tmp_path / "deep" / "out")
    assert not [*tmp_path.iterdir()]
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "out", Path("/proc/x")):
        with pytest.raises(ArtifactError, match=f"^cannot write {folder}: .*Choose another output"):
            require_writable(folder)
