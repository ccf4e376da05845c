"""`kill -9` of a progressive adaptation, also where it switches: the same command goes on to the same bits."""

import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.forked import Child
from tests.interrupted.commands import run, start
from tests.interrupted.project import curve, require_same, steps_kept
from tests.training.progressive.project import SWITCHES, phases
from tests.workshop import Workshop

pytestmark = pytest.mark.integration
_TINY = Path(__file__).parents[1] / "tiny.toml"
_LENGTH = """depth = 3
steps = 60
log_every_steps = 7
keep_every_s = 0.001
judge_every_steps = 20
early_checkpoints = [3]"""


def recipe_of(workshop: Workshop, folder: Path, switch: dict[str, Any]) -> Path:
    before, after = _TINY.read_text(encoding="utf-8").split("[search]")
    assert "depth = 1\nsteps = 30" in before
    text = before.replace("depth = 1\nsteps = 30", _LENGTH).replace(
        'precision = "fp32"', 'precision = "fp32"\nthreads = 1'
    )
    values = "\n".join(f"{name} = {value!r}" for name, value in switch.items())
    cluster = after.partition("[cluster]")[2]
    path = folder / "recipe.toml"
    path.write_text(f"{text}\n[cluster]{cluster}\n[adaptation.progressive]\n{values}\n", encoding="utf-8")
    return path


@dataclass
class Progressive:
    arguments: list[str]
    folder: Path

    @property
    def whole(self) -> Path:
        return self.folder / "whole"

    def line(self, out: Path) -> list[str]:
        return [*self.arguments, "--out", str(out), "--checkpoints", str(curve(out))]

    def start(self, out: Path) -> Child:
        return start(self.line(out), out.with_name(f"{out.name}.log"))

    def ends(self) -> list[int]:
        counts = [phase["steps"] for phase in phases(self.whole)]
        return [sum(counts[: number + 1]) for number in range(len(counts))]


@pytest.fixture(scope="module", params=[pytest.param("fixed", marks=pytest.mark.nightly), "dev_loss"])
def progressive(
    workshop: Workshop, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Progressive:
    folder = tmp_path_factory.mktemp(request.param)
    switch = SWITCHES[request.param] | ({"look_every_steps": 7} if request.param == "dev_loss" else {})
    given = {
        "recipe": recipe_of(workshop, folder, switch),
        "primary": workshop.primary,
        "blocks": workshop.blocks["de"],
        "tokenizer": workshop.tokenizers["de"],
    }
    arguments = ["adapt", *(word for name, path in given.items() for word in (f"--{name}", str(path)))]
    made = Progressive(arguments, folder)
    run(made.line(made.whole), folder / "whole.log")
    assert len(made.ends()) == 3
    return made


def test_killed_before_at_and_after_every_switch_it_goes_on_to_the_same_weights(
    progressive: Progressive, tmp_path: Path
) -> None:
    for attempt in range(5):  # on a busy machine, all steps may be over before the first kill
        out = tmp_path / f"out-{attempt}"
        reached = killed_at_switches(progressive, out)
        if len(reached) > 2:
            break
    assert len(reached) > 2
    command = progressive.start(out)
    assert command.ends() == 0, command.said
    assert f"going on after step {reached[-1]} of" in command.said
    require_same("adapt", out, progressive.whole)


def killed_at_switches(progressive: Progressive, out: Path) -> list[int]:
    """Kill an adaptation before, at and after every switch; returns the steps that its checkpoints had reached."""
    reached = [0]
    for aim in [step + beside for step in progressive.ends()[:-1] for beside in (-2, 0, 2)]:
        if aim <= reached[-1]:
            continue  # a checkpoint was written meanwhile that is beyond it
        command = progressive.start(out)
        ended = command.signalled_when(signal.SIGKILL, lambda: steps_kept(out) >= aim)  # noqa: B023
        if ended != -signal.SIGKILL:
            assert ended == 0, command.said
            return []
        reached.append(steps_kept(out))
    return reached
