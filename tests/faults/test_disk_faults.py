"""Artifacts on a disk that is full or not ours to write to: an error that names path and way out, and nothing left."""

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lingraft.artifacts.artifact import Artifact, create
from lingraft.artifacts.files import make_folder, require_new, write_json, write_text
from lingraft.artifacts.manifest import Kind
from lingraft.errors import ArtifactError
from tests.fixtures import forked
from tests.workshop import Workshop

if TYPE_CHECKING:
    from tests.faults.disk_writers import Attempt

NOBODY = 65534
_NEXT_TIME = re.compile(r"out\.made-from\.json|out\.training(/[^.][^/]*)*")
"""Left on purpose, and whole: what is to be made, and the training that the next attempt goes on from."""

Attempts = dict[str, list["Attempt"]]


@pytest.fixture(scope="module")
def attempts(workshop: Workshop, tmp_path_factory: pytest.TempPathFactory) -> Attempts:
    """What every writer did on every disk that was too small, in a process of its own, which looks at the workshop."""
    from tests.faults.disk_writers import everything  # takes seconds, and the tests that are fast need none of it

    folder = tmp_path_factory.mktemp("disks")
    found: Attempts = forked.start(everything, folder, log=folder / "log").returns()
    return found


@pytest.mark.integration
def test_every_writer_names_a_full_disk_with_the_way_out_and_leaves_no_litter(attempts: Attempts) -> None:
    assert len(attempts) == 9
    assert {name: len(tried) for name, tried in attempts.items() if len(tried) < 2} == {}
    told = re.compile(r"^cannot write /.*File too large.*Free space there, or choose")
    wrong = [
        (name, attempt)
        for name, tried in attempts.items()
        for attempt in tried
        if attempt.error != "ArtifactError" or not told.search(attempt.message)
    ]
    assert wrong == []
    left = [
        (name, attempt.largest_file, path)
        for name, tried in attempts.items()
        for attempt in tried
        for path in attempt.left
        if not _NEXT_TIME.fullmatch(path)
    ]
    assert left == []


def test_dev_full_is_a_full_disk(tmp_path: Path) -> None:
    def write() -> None:
        with create(tmp_path / "out", Kind.TEXT) as draft:
            (draft.folder / "train.jsonl").symlink_to("/dev/full")
            (draft.folder / "train.jsonl").write_text("x")

    with pytest.raises(ArtifactError, match=r"cannot write .*out: .*No space left.*Free space there"):
        write()
    assert list(tmp_path.iterdir()) == []


def write_as(user: int, folder: Path) -> list[str]:
    """What a user who may only read a folder is told by each way to write into it."""
    if os.geteuid() == 0:
        os.setgid(user)
        os.setuid(user)

    def made(out: Path) -> None:
        with create(out, Kind.TEXT):
            pass

    told = []
    for write in (made, require_new, make_folder, lambda out: write_json(out, 1)):
        try:
            write(folder / "out")
        except ArtifactError as error:
            told.append(str(error))
    return told


def test_a_read_only_folder_is_named_with_the_way_out(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir(mode=0o555)
    for parent in (tmp_path, *tmp_path.parents):
        if parent.stat().st_uid == os.geteuid() and not parent.stat().st_mode & 0o001:
            parent.chmod(parent.stat().st_mode | 0o011)
    lines = forked.start(write_as, NOBODY, folder, log=tmp_path / "log").returns()
    assert len(lines) == 4
    for line in lines:
        assert re.search(rf"^cannot write {folder}/out: .*Permission denied.* Choose another output", line)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("place", ["/proc/out", "/sys/out"])
def test_a_file_system_that_even_root_cannot_write_to_is_named(place: str, workshop: Workshop) -> None:
    out = Path(place)
    source = Artifact.load(workshop.primary, Kind.PRIMARY)
    writers = (source.copy_to, require_new, lambda out: write_json(out, 1), lambda out: write_text(out, "x"))
    for write in (*writers, lambda out: workshop.adapt("de", 1, out)):
        with pytest.raises(ArtifactError, match=f"cannot write {place}.* Choose another output"):
            write(out)
