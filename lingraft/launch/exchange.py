"""What a launcher and the step that it launched hand each other: folders on a claim that both have mounted."""

import hashlib
import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from lingraft.artifact import MANIFEST
from lingraft.files import new_folder, sha256_of, write_text
from lingraft.launch.calls import Answer, Call, Folders, listed


class Exchange:
    """One call's place: its inputs by their content, its outputs, what is asked and what was answered.

    The same call has the same place, so that a launcher which is started again finds what the one before it launched.
    """

    def __init__(self, root: Path, call: Call, inputs: Folders, outputs: Folders) -> None:
        """Name it.

        Args:
            root: of all exchanges.
            call: with files and folders here.
            inputs: those that it builds on.
            outputs: those that it fills.
        """
        self._inputs_root, self._call, self._inputs, self._outputs = root / "inputs", call, inputs, outputs
        marks = {name: [mark_of(Path(each)) for each in listed(folders)] for name, folders in inputs.items()}
        self._values = {name: call.arguments[name] for name in call.arguments if name not in {*inputs, *outputs}}
        decisive = json.dumps({"step": call.step, "inputs": marks, "values": self._values}, sort_keys=True)
        self.key = hashlib.sha256(decisive.encode()).hexdigest()[:20]
        self.folder = root / "calls" / self.key
        self.call_file, self._answer_file = self.folder / "call.json", self.folder / "answer.json"

    def command(self, module: str) -> list[str]:
        """What is to be run where the step runs, by the module that does it there."""
        return ["-m", f"lingraft.launch.{module}", str(self.call_file), str(self._answer_file)]

    @property
    def meeting(self) -> Path:
        """Where several machines find what to do."""
        return self.folder / "nodes"

    @property
    def answer(self) -> Answer | None:
        """What the step said, if it did."""
        return Answer.model_validate_json(self._answer_file.read_bytes()) if self._answer_file.exists() else None

    def forget_attempt(self) -> None:
        """Remove what an attempt has left, which was lost or failed; what it had trained is kept elsewhere."""
        self._answer_file.unlink(missing_ok=True)
        for folder in (self.meeting, self.folder / "out"):
            shutil.rmtree(folder, ignore_errors=True)

    def send(self) -> None:
        """Bring inputs and the call to where the step finds them.

        Raises:
            ArtifactError: they cannot be written.
        """
        inputs = {name: _like(folders, map(self._sent, listed(folders))) for name, folders in self._inputs.items()}
        theirs = {name: str(self.folder / "out" / name) for name in self._outputs}
        call = Call(step=self._call.step, arguments={**inputs, **theirs, **self._values})
        write_text(self.call_file, call.model_dump_json())

    def bring(self) -> None:
        """Bring what the step left to where it is wanted.

        Raises:
            ArtifactError: it cannot be written.
        """
        for name, here in self._outputs.items():
            there = self.folder / "out" / name
            if there.exists():
                _copy(there, Path(str(here)))

    def clear(self) -> None:
        """Remove the call with its outputs, when they have been brought; inputs stay for other calls."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _sent(self, name: str) -> str:
        here = Path(name)
        there = self._inputs_root / mark_of(here) / here.name
        if not there.exists():
            _copy(here, there)
        return str(there)


def mark_of(path: Path) -> str:
    """Equal marks, equal content: an artifact's manifest has the hashes of all else."""
    digest = hashlib.sha256()
    for name, file in _decisive_files(path):
        digest.update(f"{name} {sha256_of(file)}\n".encode())
    return digest.hexdigest()[:32]


def _decisive_files(path: Path) -> Iterator[tuple[str, Path]]:
    if path.is_file():
        yield "", path
    elif (path / MANIFEST).is_file():
        yield MANIFEST, path / MANIFEST
    elif path.is_dir():
        for child in sorted(path.iterdir()):
            for name, file in _decisive_files(child):
                yield f"{child.name}/{name}", file


def _copy(source: Path, out: Path) -> None:
    if source.is_file():
        write_text(out, source.read_text(encoding="utf-8"))
        return
    with new_folder(out) as coming:
        shutil.copytree(source, coming, dirs_exist_ok=True)


def _like(given: str | Sequence[str], made: Iterator[str]) -> str | list[str]:
    found = [*made]
    return found[0] if isinstance(given, str) else found
