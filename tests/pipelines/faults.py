"""Faults in the adaptation of languages: a local run's forkserver imports this before it forks steps.

While a file of a language's name lies in the folder of faults, 'de' is killed in its first updates, once, and 'tr'
gets losses that are no numbers.
"""

import functools
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from torch import Tensor

from lingraft.training.masked_lm import MaskedLmLoss

FOLDER = "LINGRAFT_TESTS_FAULTS"
"""Environment variable: the folder of faults."""


def _killed_once(loss: Tensor) -> Tensor:
    (Path(os.environ[FOLDER]) / "de").unlink()
    os.kill(os.getpid(), signal.SIGKILL)
    return loss


FAULTS: dict[str, Callable[[Tensor], Tensor]] = {
    "de": _killed_once,
    "tr": lambda loss: loss * float("nan"),
}


@functools.cache
def _adapted() -> str | None:
    """The language that this process's step adapts to, if it does so."""
    if "adapt" not in sys.argv:
        return None
    told = json.loads(sys.argv[sys.argv.index("--executor_input") + 1])
    blocks = Path(told["inputs"]["artifacts"]["blocks"]["artifacts"][0]["uri"])
    return str(json.loads((blocks / "manifest.json").read_bytes())["language"])


def _with_faults(whole: Callable[..., Tensor]) -> Callable[..., Tensor]:
    @functools.wraps(whole)
    def forward(self: MaskedLmLoss, *drawn: object) -> Tensor:
        loss = whole(self, *drawn)
        language = _adapted()
        wanted = language is not None and FOLDER in os.environ and (Path(os.environ[FOLDER]) / language).exists()
        return FAULTS[str(language)](loss) if wanted else loss

    return forward


MaskedLmLoss.forward = _with_faults(MaskedLmLoss.forward)  # type: ignore[method-assign]
