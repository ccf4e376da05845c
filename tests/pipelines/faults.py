"""Python runs this before anything else where it lies on the path as `sitecustomize`: faults in a step, one a language.

'de' is killed once in its first updates, 'tr' gets losses that are no numbers, 'el' asks for more memory than there is.
"""

import json
import os
import signal
import sys
from pathlib import Path


def _language_of_adaptation() -> str | None:
    """Of the step that this process is to do, if it adapts."""
    if "lingraft.launch.step" not in sys.orig_argv:
        return None
    call = json.loads(Path(sys.orig_argv[-2]).read_bytes())
    if call["step"] != "language.adapt":
        return None
    return str(json.loads((Path(call["arguments"]["blocks_folder"]) / "manifest.json").read_bytes())["language"])


def _kill_once(loss):
    killed = Path(__file__).with_name("killed")
    if not killed.exists():
        killed.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return loss


def _ask_for_too_much(_):
    import torch

    return torch.empty(1 << 50).sum()


_FAULTS = {"de": _kill_once, "tr": lambda loss: loss * float("nan"), "el": _ask_for_too_much}


def _put_in(language: str) -> None:
    from lingraft.masked_lm import MaskedLmLoss

    whole = MaskedLmLoss.forward
    MaskedLmLoss.forward = lambda self, drawn: _FAULTS[language](whole(self, drawn))


if language := _language_of_adaptation():
    _put_in(language)
