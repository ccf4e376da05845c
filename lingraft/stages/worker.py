"""`python -m lingraft.stages.worker FOLDER`: one of the processes that train a stage together.

`lingraft.training.distributed.launch` starts them, and hands the call over in the folder.
"""

import json
import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from pydantic import validate_call

from lingraft import errors, ranks
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.failures import EXPECTED_ERRORS, explain_device_errors, format_error
from lingraft.console import say
from lingraft.errors import LingraftError
from lingraft.signals import Interruption
from lingraft.stages.adapt import adapt
from lingraft.stages.build_mini import build_mini
from lingraft.stages.finetune import finetune
from lingraft.stages.pretrain import pretrain
from lingraft.training.distributed.launch import CALL_FILE, EVENTS_FILE
from lingraft.training.metrics import on_skipped_step
from lingraft.training.schedule import TrainingMetrics

_STAGES: dict[str, Callable[..., Artifact]] = {
    "pretrain": pretrain,
    "build_mini": build_mini,
    "adapt": adapt,
    "finetune": finetune,
}


def main(folder: Path) -> int:
    """Run the stage whose call is in a folder, report its metrics and errors there, and return the exit code."""
    call = json.loads((folder / CALL_FILE).read_bytes())
    _share_threads()

    def watch(point: TrainingMetrics) -> None:
        _report(folder, {"point": point})

    on_skipped_step(partial(_report, folder, {"skipped": True}))
    try:
        with explain_device_errors():
            validate_call(_STAGES[call["stage"]])(**call["arguments"], watch=watch)
    except EXPECTED_ERRORS as error:
        kind = next((kind for kind in type(error).__mro__ if kind.__module__ == errors.__name__), LingraftError)
        _report(folder, {"error": kind.__name__, "message": format_error(error)})
        return 1
    except Interruption as interruption:
        say(str(interruption))
        return interruption.exit_code
    return 0


def _share_threads() -> None:
    """Give each process its share of the CPU threads, unless somebody has decided on them."""
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, ranks.available_cores() // int(os.environ["LOCAL_WORLD_SIZE"])))


def _report(folder: Path, event: Mapping[str, Any]) -> None:
    """Append an event. All processes have the same metrics, and rank zero reports them; an error anyone reports."""
    if ranks.is_rank_zero() or "error" in event:
        with (folder / EVENTS_FILE).open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(event) + "\n")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
