"""Checkpoints on disk, each an artifact, the newest two of them kept, for an interrupted training to go on from."""

import itertools
import json
import math
import shutil
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor

from lingraft import ranks
from lingraft.artifacts import artifact
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.cache import list_differences
from lingraft.artifacts.files import make_folder, write_json
from lingraft.artifacts.manifest import Kind
from lingraft.console import say
from lingraft.errors import ArtifactError, LingraftError, TrainingError
from lingraft.training.distributed import process_group
from lingraft.training.training_state import TrainingState

_FORMAT = 1
"""Format of the files; a checkpoint of another format is not used."""
_KEPT = 2
_PART, _FACTS_FILE = "state", "state.json"
_NOT_WRITTEN = (LingraftError, OSError, SafetensorError)
"""Errors of a disk that cannot be written; safetensors reports some of them by an error of its own."""


class CheckpointManager:
    """Writes checkpoints into a folder while training goes on, and finds the newest one that is whole and fits."""

    def __init__(self, folder: Path, made_from: Mapping[str, Any], every_s: float) -> None:
        """Manage the checkpoints of one training.

        `made_from` is all that decides the training's result, as JSON can hold it; a checkpoint of another is not used.
        """
        self.folder = folder
        self.made_from = json.loads(json.dumps(made_from))
        self.every_s = every_s
        self.notes: dict[str, Any] = {}
        """Written beside the state, such as a choice that must not be made anew."""
        self.ended: TrainingState | None = None
        """State at the end of training; written only if the process is asked to stop before the result is on disk."""
        self._saved_at = time.monotonic()
        self._on_disk: int | None = None
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._written: Future[bool] | None = None

    def load_newest(self) -> TrainingState | None:
        """Return the newest state that is whole and of this training; `notes` is then what was written beside it.

        A checkpoint that is torn, cut short or edited is renamed, and so is one of other settings, inputs or shapes;
        none is deleted.

        Raises:
            ArtifactError: not all processes find the same.
            TrainingError: the disk cannot be read; nothing is renamed for it.
        """
        if ranks.is_rank_zero():
            found = self._load_newest()
            process_group.barrier()
        else:
            process_group.barrier()  # until what is of no use has been renamed
            found = self._load_newest()
        step = found.step if found else 0
        if (newest := process_group.all_reduce_max(step)) != step:
            raise ArtifactError(
                f"process {ranks.rank()} finds a checkpoint after step {step} in {self.folder}, and another "
                f"one after step {newest}. All machines must see the same folder."
            )
        return found

    def _load_newest(self) -> TrainingState | None:
        place = self.folder
        try:
            for torn in self._places(".step-") if ranks.is_rank_zero() else ():
                shutil.rmtree(torn, ignore_errors=True)
            for place in reversed(self._places()):
                try:
                    state, self.notes = self._read(place)
                    self._on_disk = state.step
                    return state
                except (ArtifactError, FileNotFoundError) as error:
                    if not ranks.is_rank_zero():
                        raise
                    _set_aside(place, error)
        except OSError as error:
            raise TrainingError(
                f"{place} cannot be read: {error}. It may be whole, and stays where it is. Run the same again when "
                "the disk can be read, or rename it to do without."
            ) from error
        return None

    def _read(self, place: Path) -> tuple[TrainingState, dict[str, Any]]:
        found = Artifact.load(place, Kind.TRAINING)
        facts = json.loads((place / _FACTS_FILE).read_bytes())
        if facts.get("format") != _FORMAT:
            raise ArtifactError(f"{place} has format {facts.get('format')}; this lingraft reads format {_FORMAT}.")
        if changed := list_differences(facts["made_from"], self.made_from):
            raise ArtifactError(f"{place} belongs to another training: {'; '.join(changed)}.")
        return TrainingState.of(found.tensors(_PART), facts["state"]), facts["noted"]

    def is_due(self) -> bool:
        """Return whether it is time for a checkpoint, and the one before is on disk; rank zero decides."""
        is_time = time.monotonic() - self._saved_at >= self.every_s
        return ranks.is_rank_zero() and is_time and not self._is_writing

    def save_soon(self) -> None:
        """Make a checkpoint due after this step already, however short ago the last one was."""
        self._saved_at = -math.inf

    @property
    def _is_writing(self) -> bool:
        return self._written is not None and not self._written.done()

    def save(self, state: TrainingState, last: bool = False) -> None:
        """Write a checkpoint beside training, which is held up only while the state is copied in memory.

        A checkpoint that cannot be written is reported; those before it stay. At the `last` one that is being written
        will do, if it is written in the end: whoever asks to stop may not wait for two.
        """
        if not ranks.is_rank_zero():
            return
        was_writing = self._is_writing
        if self.wait() and last and was_writing:
            return
        tensors = state.tensors()
        facts = {"format": _FORMAT, "state": state.facts(), "noted": dict(self.notes), "made_from": self.made_from}
        self._saved_at = time.monotonic()
        self._written = self._writer.submit(self._write, state.step, last, tensors, facts)

    def wait(self) -> bool:
        """Wait for the checkpoint being written; return whether there was one, and it is on disk."""
        written, self._written = self._written, None
        return written is not None and written.result()

    def resume_hint(self) -> str:
        """Return a sentence that says where training goes on from when it is started again."""
        if not ranks.is_rank_zero():
            return "the first process keeps the checkpoint."
        if self._on_disk is None:
            return "no checkpoint was written. Run the same again to begin anew."
        return f"step {self._on_disk} is kept in {self.folder}. Run the same again to go on after it."

    def remove(self) -> None:
        """Remove all checkpoints, when what was trained is on disk; those set aside stay."""
        self.wait()
        self.ended = None
        if ranks.is_rank_zero():
            try:
                for place in self._places():  # the newest one goes last
                    _discard(place)
            except OSError as error:
                say(f"the checkpoints in {self.folder} are of no use any more, but cannot be removed: {error}")

    def close(self, in_haste: bool = False) -> None:
        """Write the state at the end of training, if the result is not on disk yet, and wait for it.

        In haste a checkpoint that is being written will do in its place.
        """
        if not in_haste:
            self.wait()
        ended, self.ended = self.ended, None
        if ended is not None:
            self.save(ended, last=True)
        self.wait()

    def _places(self, prefix: str = "step-") -> list[Path]:
        """Return the folders of all checkpoints, the oldest first; unlike a glob, not none where the disk is lost."""
        try:
            return sorted(place for place in self.folder.iterdir() if place.name.startswith(prefix))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _write(self, step: int, last: bool, tensors: dict[str, Tensor], facts: dict[str, Any]) -> bool:
        """Write a checkpoint and return whether it is on disk; where it is not, nothing else has changed."""
        place = self.folder / f"step-{step:08d}"

        def write() -> None:
            with artifact.create(place, Kind.TRAINING) as draft:
                draft.tensors(_PART, tensors)
                write_json(draft.folder / _FACTS_FILE, facts)  # a file, for manifests have no hash of their own

        try:
            _require_finite(tensors, step)
            make_folder(self.folder)
            if not place.exists():
                write()
        except _NOT_WRITTEN as error:
            say(f"no checkpoint after step {step}: {error}{'' if last else ' Training goes on.'}")
            return False
        self._on_disk = step
        try:
            for old in self._places()[:-_KEPT]:
                _discard(old)
        except OSError as error:
            say(f"the checkpoints before the newest {_KEPT} in {self.folder} cannot be removed: {error}")
        return True


def _discard(place: Path) -> None:
    """Remove a checkpoint. It is renamed first, so that a kill leaves no part of it under its name."""
    doomed = place.with_name(f".{place.name}-doomed")
    place.rename(doomed)
    shutil.rmtree(doomed)


def _set_aside(place: Path, reason: Exception) -> None:
    names = (f"set-aside-{place.name}{f'-{number}' if number else ''}" for number in itertools.count())
    aside = next(place.with_name(name) for name in names if not place.with_name(name).exists())
    try:
        place.rename(aside)
    except OSError as error:
        say(f"checkpoint {place.name} is not used: {reason} It cannot be set aside: {error}")
    else:
        say(f"a checkpoint is set aside as {aside.name}: {reason}")


def _require_finite(tensors: Mapping[str, Tensor], step: int) -> None:
    broken = [name for name, tensor in tensors.items() if name != "losses" and not torch.isfinite(tensor).all()]
    if broken:
        raise TrainingError(f"{broken[0]} is not finite after step {step}, and is not kept. Use precision = 'fp32'.")
