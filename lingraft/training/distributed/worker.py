"""One of the processes of `lingraft.training.distributed.launch`: runs a stage, and reports how it goes."""

import importlib
import json
import os
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, get_type_hints

import torch
from pydantic import TypeAdapter

from lingraft import errors, ranks
from lingraft.artifacts.failures import EXPECTED_ERRORS, explain_device_errors, format_error
from lingraft.console import say
from lingraft.data.pool import available_cores
from lingraft.errors import LingraftError
from lingraft.signals import Interruption
from lingraft.training.distributed.launch import CALL_FILE, EVENTS_FILE
from lingraft.training.metrics import on_skipped_step
from lingraft.training.schedule import TrainingMetrics


def main(folder: Path) -> int:
    """Run the stage that a folder tells of; returns the exit code."""
    call = json.loads((folder / CALL_FILE).read_bytes())
    _share_threads()
    stage = getattr(importlib.import_module(call["module"]), call["stage"])
    hints = get_type_hints(stage)
    given = {name: TypeAdapter(hints[name]).validate_python(value) for name, value in call["arguments"].items()}

    def watch(point: TrainingMetrics) -> None:
        _send(folder, {"point": point})

    on_skipped_step(partial(_send, folder, {"left_out": True}))
    try:
        with explain_device_errors():
            stage(**given, watch=watch)
    except EXPECTED_ERRORS as error:
        kind = next((kind for kind in type(error).__mro__ if kind.__module__ == errors.__name__), LingraftError)
        _send(folder, {"error": kind.__name__, "message": format_error(error)})
        return 1
    except Interruption as interruption:
        say(str(interruption))
        return interruption.exit_code
    return 0


def _share_threads() -> None:
    """As many CPU threads as there are for each process, unless somebody has decided on them."""
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, available_cores() // int(os.environ["LOCAL_WORLD_SIZE"])))


def _send(folder: Path, news: Mapping[str, Any]) -> None:
    """What others than the leader see is the same; but whoever fails first is the last to speak."""
    if ranks.is_rank_zero() or "error" in news:
        with (folder / EVENTS_FILE).open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(news) + "\n")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
