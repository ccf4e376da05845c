"""Artifacts on a disk that is full or not ours to write to: an error that names path and way out, and nothing left."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lingraft.artifact import Artifact, Kind, create
from lingraft.errors import ArtifactError
from lingraft.files import require_new, write_json, write_text
from tests.workshop import Workshop

NOBODY = 65534
_NEXT_TIME = re.compile(r"out\.made-from\.json|out\.training(/[^.][^/]*)*")
"""Left on purpose, and whole: what is to be made, and the training that the next attempt goes on from."""

Attempts = dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def attempts(tmp_path_factory: pytest.TempPathFactory) -> Attempts:
    """What every writer did on every disk that was too small, in a process of its own."""
    command = [sys.executable, "-m", "tests.faults.disk_writers", str(tmp_path_factory.mktemp("disks"))]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    found: Attempts = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.integration
def test_every_writer_was_tried_on_disks_of_several_sizes(attempts: Attempts) -> None:
    assert len(attempts) >= 17
    assert {name: len(tried) for name, tried in attempts.items() if len(tried) < 2} == {}


@pytest.mark.integration
def test_a_full_disk_is_named_with_the_path_and_the_way_out(attempts: Attempts) -> None:
    wrong = [
        (name, attempt["largest_file"], attempt["error"], attempt["message"])
        for name, tried in attempts.items()
        for attempt in tried
        if attempt["error"] != "ArtifactError"
        or not re.search(r"^cannot write /.*File too large.*Free space there, or choose", attempt["message"])
    ]
    assert wrong == []


@pytest.mark.integration
def test_a_full_disk_leaves_no_half_output_and_no_litter(attempts: Attempts) -> None:
    left = [
        (name, attempt["largest_file"], path)
        for name, tried in attempts.items()
        for attempt in tried
        for path in attempt["left"]
        if not _NEXT_TIME.fullmatch(path)
    ]
    assert left == []


@pytest.mark.integration
def test_a_limit_of_the_shell_is_a_full_disk(workshop: Workshop, tmp_path: Path) -> None:
    """The shell's own limit, in units of 1,024 bytes, for a user who knows no Python."""
    program = (
        "from pathlib import Path; import sys; from lingraft.artifact import Artifact, Kind\n"
        "Artifact.load(Path(sys.argv[1]), Kind.PRIMARY).copy_to(Path(sys.argv[2]))\n"
    )
    command = 'ulimit -f 8; exec "$0" -c "$1" "$2" "$3"'
    arguments = ["bash", "-c", command, sys.executable, program, str(workshop.primary), str(tmp_path / "out")]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"ArtifactError: cannot write {tmp_path / 'out'}: " in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_dev_full_is_a_full_disk(tmp_path: Path) -> None:
    def write() -> None:
        with create(tmp_path / "out", Kind.TEXT) as draft:
            (draft.folder / "train.jsonl").symlink_to("/dev/full")
            (draft.folder / "train.jsonl").write_text("x")

    with pytest.raises(ArtifactError, match=r"cannot write .*out: .*No space left.*Free space there"):
        write()
    assert list(tmp_path.iterdir()) == []


def _write_as_others(folder: Path) -> str:
    """What a user who may only read a folder is told by each way to write into it, in a process of that user."""
    program = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from lingraft.artifact import Kind, create\n"
        "from lingraft.errors import ArtifactError\n"
        "from lingraft.files import make_folder, require_new, write_json\n"
        "folder, user = Path(sys.argv[1]), int(sys.argv[2])\n"
        "if os.geteuid() == 0: os.setgid(user); os.setuid(user)\n"
        "def made(out):\n"
        "    with create(out, Kind.TEXT): pass\n"
        "for write in (made, require_new, make_folder, lambda out: write_json(out, 1)):\n"
        "    try: write(folder / 'out')\n"
        "    except ArtifactError as error: print(error)\n"
    )
    command = [sys.executable, "-c", program, str(folder), str(NOBODY)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_read_only_folder_is_named_with_the_way_out(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir(mode=0o555)
    for parent in (tmp_path, *tmp_path.parents):
        if parent.stat().st_uid == os.geteuid() and not parent.stat().st_mode & 0o001:
            parent.chmod(parent.stat().st_mode | 0o011)
    lines = _write_as_others(folder).splitlines()
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
