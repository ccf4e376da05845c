"""How a job fails among others: its folder says why, what builds on it passes that on, and all else goes on."""

import contextlib
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from lingraft.artifacts.artifact import MANIFEST
from lingraft.artifacts.cache import ProvenanceMismatchError
from lingraft.artifacts.files import write_text
from lingraft.console import say
from lingraft.errors import LingraftError

FAILED_FILE = "failed.txt"
"""Stands alone in a folder where an artifact would be, and says why there is none."""
EXPECTED_ERRORS = (LingraftError, OSError, MemoryError)
"""Errors by which a job may fail: bad input, a full disk, a device (in `explain_device_errors`). Others are bugs."""
_NO_CPU_MEMORY = "DefaultCPUAllocator: can't allocate memory"
"""By these words alone can torch's lack of memory on the CPU be told from its other runtime errors."""


class DeviceFailedError(LingraftError):
    """A device is out of memory, or broken; the message is what torch says of it."""


class InputFailedError(LingraftError):
    """What a job builds on has failed; the message is why."""


def failure_reason(folder: Path) -> str | None:
    """Why a job failed that was to fill a folder; None if it did not."""
    note = folder / FAILED_FILE
    return note.read_text(encoding="utf-8").strip() if note.is_file() else None


def require_inputs_made(folders: Iterable[Path]) -> None:
    """Refuse inputs that failed.

    Raises:
        InputFailedError: one did; the message is why, in the words of the job that failed first.
    """
    for folder in folders:
        if reason := failure_reason(folder):
            raise InputFailedError(reason)


def clear_failure(out: Path) -> None:
    """Remove what a failed job left, so that it can be tried again."""
    if failure_reason(out):
        shutil.rmtree(out)


def format_error(error: BaseException) -> str:
    """An error in one line."""
    return " ".join(str(error).split()) or type(error).__name__


@contextlib.contextmanager
def explain_device_errors() -> Iterator[None]:
    """Tell failures of a device from mistakes of ours, such as shapes that do not fit: torch's errors are all one kind.

    Raises:
        DeviceFailedError: a device is out of memory, or broken.
    """
    try:
        yield
    except RuntimeError as error:
        import torch  # whoever only asks why something failed does not wait for it

        if not (isinstance(error, torch.OutOfMemoryError | torch.AcceleratorError) or _NO_CPU_MEMORY in str(error)):
            raise
        raise DeviceFailedError(format_error(error)) from error


@contextlib.contextmanager
def record_failure(out: Path, title: str) -> Iterator[None]:
    """Do a job's work; if it fails, say so, leave in its folder why, and go on.

    Args:
        out: the job's folder.
        title: what the job does.

    Raises:
        ProvenanceMismatchError: results of other settings are in the way, which concerns the whole run.
        ArtifactError: not even the reason can be written.
    """
    try:
        with explain_device_errors():
            yield
    except ProvenanceMismatchError:
        raise
    except InputFailedError as error:
        say(f"left out: {title}: an input failed")
        write_failure(out, str(error))
    except EXPECTED_ERRORS as error:
        say(f"failed: {title}: {format_error(error)}")
        write_failure(out, f"{title}: {format_error(error)}")


def write_failure(out: Path, reason: str) -> None:
    """Leave in a folder why it is not what it was to be.

    A damaged artifact stays for its owner to look at; whatever builds on it fails by itself.
    """
    if (out / MANIFEST).exists():
        return
    shutil.rmtree(out, ignore_errors=True)
    write_text(out / FAILED_FILE, reason + "\n")
