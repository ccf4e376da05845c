"""What an interrupted training goes on from: checkpoints on disk, each an artifact, the newest two of them kept.

They hold no state of random numbers and no reader's place in the data: both follow from the step alone.
"""

import contextlib
import itertools
import json
import shutil
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lingraft import artifact, processes
from lingraft.artifact import Artifact, Kind
from lingraft.early_stop import Best
from lingraft.errors import ArtifactError, LingraftError, TrainingError
from lingraft.files import make_folder, write_json
from lingraft.plan import Progress
from lingraft.progress import say
from lingraft.resumed import differences

_KEPT = 2
_PART, _FACTS_FILE = "state", "state.json"
_BEST = "best."


@dataclass
class TrainingState:
    """Where a training stands after a step."""

    step: int = 0
    elapsed_s: float = 0.0
    points: list[Progress] = field(default_factory=list)
    """The learning curve so far."""
    losses: list[Tensor] = field(default_factory=list)
    """Of the steps since the last point, scalars."""
    left_out: list[int] = field(default_factory=list)
    """Steps that were left out because they were not finite."""
    best: Best = field(default_factory=Best)
    optimizer: dict[str, Tensor] = field(default_factory=dict)
    """Weights and moments."""

    def tensors(self) -> dict[str, Tensor]:
        """All tensors, copied to the CPU, so that training may go on."""
        losses_S = torch.stack(self.losses) if self.losses else torch.empty(0)
        best = {f"{_BEST}{number:04d}": weight for number, weight in enumerate(self.best.weights)}
        every = self.optimizer | best | {"losses": losses_S}
        return {name: tensor.detach().to("cpu", copy=True) for name, tensor in every.items()}

    def facts(self) -> dict[str, Any]:
        """All numbers."""
        best = {"score": self.best.score, "step": self.best.step, "looks_since": self.best.looks_since}
        facts = {"step": self.step, "elapsed_s": self.elapsed_s, "left_out": self.left_out, "best": best}
        return facts | {"points": [list(point) for point in self.points]}

    @classmethod
    def of(cls, tensors: dict[str, Tensor], facts: Mapping[str, Any]) -> "TrainingState":
        """The state that `tensors` and `facts` gave."""
        best = Best(**facts["best"], weights=[tensors[name] for name in sorted(tensors) if name.startswith(_BEST)])
        optimizer = {name: tensor for name, tensor in tensors.items() if name[0].isdigit()}
        points = [Progress(*point) for point in facts["points"]]
        losses = list(tensors["losses"])
        return cls(facts["step"], facts["elapsed_s"], points, losses, facts["left_out"], best, optimizer)


class Keeper:
    """Writes checkpoints into a folder while training goes on, and finds the newest one that is whole and fits."""

    def __init__(self, folder: Path, made_from: Mapping[str, Any], every_s: float) -> None:
        """Say where, and of what training.

        Args:
            folder: one training's own.
            made_from: all that decides the training's result, as JSON can hold it; a checkpoint of another is not used.
            every_s: seconds between two checkpoints.
        """
        self.folder, self.made_from, self.every_s = folder, json.loads(json.dumps(made_from)), every_s
        self.noted: dict[str, Any] = {}
        """What else to write beside the state, such as a choice that must not be made anew."""
        self.stalled_s: list[float] = []
        """Seconds for which each checkpoint held training up."""
        self._kept_at = time.monotonic()
        self._writer: threading.Thread | None = None

    def newest(self) -> TrainingState | None:
        """The newest state that is whole and of this training; `noted` is then what was noted beside it.

        A checkpoint that is torn, cut short or edited is renamed, and so is one of other settings, inputs or shapes;
        none is deleted.

        Raises:
            ArtifactError: not all processes find the same.
        """
        if processes.leads():
            for torn in self.folder.glob(".step-*"):
                shutil.rmtree(torn)
            found = self._newest()
            processes.wait()
        else:
            processes.wait()  # until what is of no use has been renamed
            found = self._newest()
        step = found.step if found else 0
        if (newest := processes.highest(step)) != step:
            raise ArtifactError(
                f"process {processes.rank()} finds a checkpoint after step {step} in {self.folder}, and another one "
                f"after step {newest}. All machines must see the same folder."
            )
        return found

    def _newest(self) -> TrainingState | None:
        for place in sorted(self.folder.glob("step-*"), reverse=True):
            try:
                found = Artifact.load(place, Kind.TRAINING)
                facts = json.loads((place / _FACTS_FILE).read_bytes())
                self._require_ours(place, facts["made_from"])
                state = TrainingState.of(found.tensors(_PART), facts["state"])
                self.noted = facts["noted"]
                return state
            except ArtifactError as error:
                if not processes.leads():
                    raise
                self._set_aside(place, error)
        return None

    def due(self) -> bool:
        """Whether it is time for a checkpoint, and the one before is on disk; the leader knows."""
        if not processes.leads():
            return False
        writing = self._writer is not None and self._writer.is_alive()
        return not writing and time.monotonic() - self._kept_at >= self.every_s

    def keep(self, state: TrainingState) -> None:
        """Write a checkpoint beside training, which is held up only while the state is copied in memory.

        A checkpoint that cannot be written is reported, and training goes on; those before it stay.
        """
        if not processes.leads():
            return
        self.settle()
        started = time.perf_counter()
        facts = {"state": state.facts(), "noted": dict(self.noted), "made_from": self.made_from}
        content = state.tensors(), facts
        self.stalled_s.append(time.perf_counter() - started)
        self._kept_at = time.monotonic()
        self._writer = threading.Thread(target=self._write, args=(state.step, *content), name="checkpoint")
        self._writer.start()

    def keep_batch(self, step: int, micro_batches: Sequence[tuple[float, Any]]) -> Path:
        """Write the tensors of a step's micro-batches, those of this process, to look into; returns the folder."""
        place = self.folder / f"not-finite-step-{step:08d}-process-{processes.rank()}"
        tensors = {
            f"{number:04d}.{name}": value
            for number, (_, batch) in enumerate(micro_batches)
            for name, value in _fields(batch).items()
            if isinstance(value, Tensor)
        }
        if not place.exists():
            with artifact.create(place, Kind.TRAINING) as draft:
                draft.tensors("batch", tensors)
        return place

    def settle(self) -> None:
        """Until the checkpoint being written is on disk."""
        if self._writer is not None:
            self._writer.join()
            self._writer = None

    def remove(self) -> None:
        """Remove all checkpoints, when what was trained is on disk; those set aside stay."""
        self.settle()
        if processes.leads():
            for place in self.folder.glob("step-*"):
                shutil.rmtree(place)
            with contextlib.suppress(OSError):  # not empty: something was set aside, or is not there at all
                self.folder.rmdir()

    def _write(self, step: int, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        place = self.folder / f"step-{step:08d}"
        try:
            _require_finite(tensors, step)
            make_folder(self.folder)
            if not place.exists():
                with artifact.create(place, Kind.TRAINING) as draft:
                    draft.tensors(_PART, tensors)
                    write_json(draft.folder / _FACTS_FILE, facts)  # a file, for manifests have no hash of their own
            for old in sorted(self.folder.glob("step-*"))[:-_KEPT]:
                shutil.rmtree(old)
        except LingraftError as error:
            say(f"no checkpoint after step {step}: {error} Training goes on.")

    def _require_ours(self, place: Path, made_from: Any) -> None:
        if changed := differences(made_from, self.made_from):
            raise ArtifactError(f"{place} belongs to another training: {'; '.join(changed)}.")

    def _set_aside(self, place: Path, reason: ArtifactError) -> None:
        names = (f"set-aside-{place.name}{f'-{number}' if number else ''}" for number in itertools.count())
        aside = next(self.folder / name for name in names if not (self.folder / name).exists())
        place.rename(aside)
        say(f"a checkpoint is set aside as {aside.name}: {reason}")


def _fields(batch: Any) -> dict[str, Any]:
    named: Any = batch
    return dict(named._asdict()) if isinstance(batch, tuple) else dict(vars(batch))


def _require_finite(tensors: Mapping[str, Tensor], step: int) -> None:
    broken = [name for name, tensor in tensors.items() if name != "losses" and not torch.isfinite(tensor).all()]
    if broken:
        raise TrainingError(f"{broken[0]} is not finite after step {step}, and is not kept. Use precision = 'fp32'.")
