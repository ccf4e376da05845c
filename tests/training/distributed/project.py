"""A pretraining of some seconds that writes a checkpoint after almost every step, to be killed at any of them."""

import math
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors.torch import load_file

from tests.training.distributed.launch import begun, children_of, kill_all, lingraft, torchrun
from tests.workshop import Workshop

STEPS = 120
_PACE = f"steps = {STEPS}\nkeep_every_s = 0.02\nlog_every_steps = 50\n"
_TINY = Path(__file__).parents[2] / "tiny.toml"
_PATIENCE_S = 60


class Project:
    """Commands that train into folders, and what is there."""

    def __init__(self, workshop: Workshop, folder: Path, precision: str = "fp32") -> None:
        self._workshop, self.folder, self._recipe = workshop, folder, folder / "recipe.toml"
        tiny = _TINY.read_text(encoding="utf-8").replace('"fp32"', f'"{precision}"')
        self._recipe.write_text(
            tiny.replace("[pretraining]\nsteps = 60\n", f"[pretraining]\n{_PACE}"), encoding="utf-8"
        )

    def pretraining(self, out: str) -> list[str]:
        """Arguments of lingraft."""
        given = {"recipe": self._recipe, "out": self.folder / out}
        given |= {"blocks": self._workshop.blocks["en"], "tokenizer": self._workshop.tokenizers["en"]}
        return ["pretrain", *(word for name, path in given.items() for word in (f"--{name}", str(path)))]

    def on_one(self, out: str) -> list[str]:
        return lingraft(*self.pretraining(out))

    def on_two(self, out: str, *options: str) -> list[str]:
        return torchrun("lingraft", *self.pretraining(out), options=options)

    def spread(self, out: str, processes: int = 2) -> list[str]:
        return lingraft("--processes", str(processes), *self.pretraining(out))

    @contextmanager
    def under_way(self, command: list[str], out: str, step: int = 0) -> Iterator[subprocess.Popen[str]]:
        """A training that has written a checkpoint after `step`; whatever of it is left in the end is killed."""
        with begun(command) as process:
            try:
                wait_for(lambda: process.poll() is not None or any(kept > step for kept in self.kept(out)))
                if process.poll() is not None:
                    raise AssertionError(f"ended with {process.returncode}: {process.communicate()[1]}")
                yield process
            finally:
                kill_all(process)

    def kept(self, out: str) -> list[int]:
        """Steps of the checkpoints that are there."""
        return sorted(int(place.name[5:]) for place in (self.folder / f"{out}.training").glob("step-*"))

    def weights(self, out: str) -> torch.Tensor:
        """All of them in one row."""
        parts = [load_file(path) for path in sorted((self.folder / out).glob("*.safetensors"))]
        return torch.cat([part[name].flatten() for part in parts for name in sorted(part)])

    def apart(self, one: str, other: str) -> float:
        """The norm of the difference of two results over that of one."""
        first, second = self.weights(one).double(), self.weights(other).double()
        return math.sqrt(float((first - second).square().sum() / first.square().sum()))


def wait_for(condition: Callable[[], bool]) -> None:
    """Until it holds, within a minute."""
    until = time.monotonic() + _PATIENCE_S
    while not condition():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.01)


def workers_of(process: subprocess.Popen[str]) -> dict[int, int]:
    """Ids of the processes that a launcher has started, by rank."""
    found = {}
    for child in children_of(process.pid):
        variables = dict(
            word.partition("=")[::2] for word in Path(f"/proc/{child}/environ").read_text().split("\0") if word
        )
        if "RANK" in variables:
            found[int(variables["RANK"])] = child
    return found


def alive(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
