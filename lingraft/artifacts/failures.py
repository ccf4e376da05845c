"""Failures as values: the folder of a failed job says why, jobs that depend on it pass that on, and others go on."""

import contextlib
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pydantic

from lingraft.artifacts.cache import ProvenanceMismatchError
from lingraft.artifacts.files import write_text
from lingraft.artifacts.manifest import MANIFEST
from lingraft.console import say
from lingraft.errors import LingraftError

FAILED_FILE = "failed.txt"
"""File that stands alone in a folder in place of an artifact, with the reason why there is none."""
EXPECTED_ERRORS = (LingraftError, OSError, MemoryError)
"""Errors by which a job may fail: bad input, a full disk, a device (in `explain_device_errors`). Others are bugs."""
OUTCOME_PREFIX = "outcome of "
"""Prefix of lines about the outcome of a language or a bundle, which a local run shows on the console."""
_NO_CPU_MEMORY = "DefaultCPUAllocator: can't allocate memory"
"""Words that alone tell torch's lack of memory on the CPU from its other runtime errors."""


class DeviceFailedError(LingraftError):
    """A device is out of memory, or broken; the message is torch's."""


class InputFailedError(LingraftError):
    """An input of a job has failed; the message is the reason."""


class LanguagesFailedError(LingraftError):
    """Some languages of a run failed, or a bundle was not promoted; the message says which, and why."""


def failure_reason(folder: Path) -> str | None:
    """Return why the job failed that was to fill a folder; None if it did not fail."""
    note = folder / FAILED_FILE
    return note.read_text(encoding="utf-8").strip() if note.is_file() else None


def require_inputs_made(folders: Iterable[Path]) -> None:
    """Refuse failed inputs.

    Raises:
        InputFailedError: an input failed; the message is that of the job that failed first.
    """
    for folder in folders:
        if reason := failure_reason(folder):
            raise InputFailedError(reason)


def clear_failure(out: Path) -> None:
    """Remove the folder of a failed job, so that the job can be tried again."""
    if failure_reason(out):
        shutil.rmtree(out)


def format_error(error: BaseException) -> str:
    """Return an error in one line."""
    return " ".join(str(error).split()) or type(error).__name__


@contextlib.contextmanager
def explain_device_errors() -> Iterator[None]:
    """Tell failures of a device from bugs such as mismatched shapes: torch raises the same error for all."""
    try:
        yield
    except RuntimeError as error:
        import torch  # takes seconds, which callers of `failure_reason` alone do not wait

        if not (isinstance(error, torch.OutOfMemoryError | torch.AcceleratorError) or _NO_CPU_MEMORY in str(error)):
            raise
        raise DeviceFailedError(format_error(error)) from error


@contextlib.contextmanager
def record_failure(out: Path, title: str) -> Iterator[None]:
    """Write the reason to a job's folder if the body fails, print it, and go on."""
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
    """Write to a folder why its artifact does not exist; an artifact that does exist stays."""
    if (out / MANIFEST).exists():
        return
    shutil.rmtree(out, ignore_errors=True)
    write_text(out / FAILED_FILE, reason + "\n")


class LanguageOutcome(pydantic.BaseModel, frozen=True, extra="forbid"):
    """Outcome of one language of a run."""

    language: str
    failed: str | None = None
    """Reason of its failure; None if it succeeded."""
    refused: str | None = None
    """Reason of the gate against its new embeddings, which are registered all the same."""

    @property
    def summary(self) -> str:
        """Outcome for people."""
        if self.failed:
            return self.failed
        return f"registered, and not promoted: {self.refused}" if self.refused else "learned, judged and registered"


def write_outcome(language: str, results: Path, out: Path, refused: str | None = None) -> None:
    """Write the outcome of a language to a file.

    Args:
        results: folder of its evaluations, or of the reason why it failed.
        refused: why the gate did not promote it.
    """
    outcome = LanguageOutcome(language=language, failed=failure_reason(results), refused=refused)
    write_text(out, outcome.model_dump_json())


def load_outcome(path: Path) -> LanguageOutcome:
    """Load an outcome that `write_outcome` wrote."""
    return LanguageOutcome.model_validate_json(path.read_bytes())


def require_success(outcomes: Sequence[LanguageOutcome], refused_bundles: Mapping[str, str] | None = None) -> None:
    """Print the outcome of every language, and of every bundle that was not promoted.

    Args:
        refused_bundles: registered names of bundles that the gate refused, with the reasons.
    """
    refused = refused_bundles or {}
    failed = [each for each in outcomes if each.failed]
    for each in outcomes:
        say(f"{OUTCOME_PREFIX}{each.language}: {each.summary}")
    for name, reason in refused.items():
        say(f"{OUTCOME_PREFIX}{name}: {reason}")
    problems = []
    if failed:
        reasons = "; ".join(f"{each.language}: {str(each.failed).rstrip('.')}" for each in failed)
        problems.append(
            f"{len(failed)} of {len(outcomes)} languages failed, the others are registered. {reasons}. Mend what is "
            "named, and run the same again: what was done is not done again."
        )
    if refused:
        reasons = " ".join(f"{name}: {reason}" for name, reason in refused.items())
        problems.append(
            f"What is in production stays as it is. {reasons} What is asked for by name may be given to this pipeline, "
            "or to `lingraft registry promote`."
        )
    if problems:
        raise LanguagesFailedError(" ".join(problems))
