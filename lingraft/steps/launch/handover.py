"""The exchange of files between a launcher and its step: folders on a claim that both have mounted."""

import hashlib
import os
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lingraft.artifacts.files import atomic_folder, sha256_of, write_text
from lingraft.artifacts.manifest import MANIFEST, json_fingerprint
from lingraft.errors import ArtifactError
from lingraft.jobs.launchable import Launchable, Role
from lingraft.steps.launch.calls import Call, StepAnswer

_INPUTS = "inputs"
_CALLS = "calls"


@dataclass(frozen=True)
class CallAttempt:
    """One attempt at a call, in a folder of its own, so that outputs of different attempts are never mixed."""

    folder: Path

    @property
    def name(self) -> str:
        """Name of the attempt, by which a restarted launcher finds it."""
        return self.folder.name

    @property
    def call_file(self) -> Path:
        """File of the call."""
        return self.folder / "call.json"

    @property
    def answer_file(self) -> Path:
        """File of the answer, which the step writes at its end."""
        return self.folder / "answer.json"

    @property
    def answer(self) -> StepAnswer | None:
        """Answer of the step; None if there is none."""
        file = self.answer_file
        return StepAnswer.model_validate_json(file.read_bytes()) if file.exists() else None

    @property
    def rendezvous(self) -> Path:
        """Folder in which several machines meet for their training."""
        return self.folder / "nodes"

    def command(self, module: str) -> list[str]:
        """Return the Python arguments that run the call, by a module of `lingraft.steps.launch`."""
        return ["-m", f"lingraft.steps.launch.{module}", str(self.call_file), str(self.answer_file)]

    def output(self, name: str) -> Path:
        """Return the folder of an output."""
        return self.folder / "out" / name


class Handover:
    """Folders of one call: its inputs by their content, and its attempts.

    The same call has the same folders, so that a restarted launcher finds what the previous one launched. The tracking
    run does not count, since a pipeline that is submitted again has another.
    """

    def __init__(self, root: Path, work: Launchable, run: Path | None) -> None:
        """Compute the key of the call from the work's class, its values, and the content of its inputs.

        Args:
            root: folder of all calls on the claim.
            work: work with the launcher's own files and folders.
            run: file with the id of the tracking run, if the step is tracked.
        """
        self._inputs_root = root / _INPUTS
        self._call = Call.of(work, run)
        self._inputs = work.folders(Role.INPUT)
        self._outputs = {name: folder for name, [folder] in work.folders(Role.OUTPUT).items()}
        hashes = {name: [content_hash(each) for each in folders] for name, folders in self._inputs.items()}
        arguments = self._call.arguments
        values = {name: arguments[name] for name in arguments if name not in {*self._inputs, *self._outputs}}
        self.key = json_fingerprint({"step": self._call.step, "inputs": hashes, "values": values})[:20]
        self._folder = root / _CALLS / self.key

    @property
    def tracking_run(self) -> str | None:
        """Id of the pipeline's tracking run, if the step is tracked."""
        return self._call.run.read_text(encoding="utf-8") if self._call.run else None

    def attempt(self, name: str | None = None) -> CallAttempt:
        """Return the attempt of this name; a new one if None."""
        return CallAttempt(self._folder / (name or uuid.uuid4().hex))

    def send(self, attempt: CallAttempt) -> None:
        """Copy the inputs and the call to the claim.

        Raises:
            ArtifactError: they cannot be written.
        """
        arguments = dict(self._call.arguments)
        for name, folders in self._inputs.items():
            sent = [self._send_input(folder) for folder in folders]
            arguments[name] = sent if isinstance(arguments[name], list) else sent[0]
        arguments |= {name: str(attempt.output(name)) for name in self._outputs}
        run = self._call.run and Path(self._send_input(self._call.run))
        call = Call(step=self._call.step, run=run, arguments=arguments)
        write_text(attempt.call_file, call.model_dump_json())

    def collect(self, attempt: CallAttempt) -> None:
        """Copy the outputs of an attempt to the launcher's folders.

        Raises:
            ArtifactError: they cannot be written.
        """
        for name, here in self._outputs.items():
            if attempt.output(name).exists():
                _copy(attempt.output(name), here)

    def clear(self) -> None:
        """Delete the call with its outputs after `collect`; inputs stay for other calls."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _send_input(self, here: Path) -> str:
        there = self._inputs_root / content_hash(here) / here.name
        if not there.exists():
            try:
                _copy(here, there)
            except ArtifactError:
                if not there.exists():  # another language's launcher was faster
                    raise
        os.utime(there.parent)  # it is in use: the CronJob `clean-claim` removes old folders
        return str(there)


def content_hash(path: Path) -> str:
    """Return a hash of the content of a file or folder; of an artifact only its manifest, which has all hashes."""
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
    with atomic_folder(out) as coming:
        if source.exists():  # an object store keeps no empty folder
            shutil.copytree(source, coming, dirs_exist_ok=True)
