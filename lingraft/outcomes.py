"""What became of each language of a run: one that failed is a value with its reason, and no end of the others."""

from collections.abc import Sequence
from pathlib import Path

import pydantic

from lingraft.errors import LingraftError
from lingraft.failures import why
from lingraft.files import write_text
from lingraft.progress import say


class LanguagesFailedError(LingraftError):
    """Some languages of a run failed; the message says which, and why."""


class Outcome(pydantic.BaseModel, frozen=True, extra="forbid"):
    """Of one language."""

    language: str
    failed: str | None = None
    """Why there is nothing of it; None if it succeeded."""
    refused: str | None = None
    """Why the gate did not let its new embeddings become champion; they are registered all the same."""

    @property
    def says(self) -> str:
        """What became of it."""
        if self.failed:
            return self.failed
        return f"registered, and not promoted: {self.refused}" if self.refused else "learned, judged and registered"


def conclude(language: str, results: Path, out: Path, refused: str | None = None) -> None:
    """Write the outcome of a language to the file `out`: what the folder of its results says, and the gate.

    Args:
        language: which.
        results: folder of its evaluations, or of why there are none.
        out: the file.
        refused: why the gate did not promote it.
    """
    write_text(out, Outcome(language=language, failed=why(results), refused=refused).model_dump_json())


def load_outcome(path: Path) -> Outcome:
    """What `conclude` wrote."""
    return Outcome.model_validate_json(path.read_bytes())


def require_all(outcomes: Sequence[Outcome]) -> None:
    """List every language's outcome.

    Raises:
        LanguagesFailedError: some failed.
    """
    failed = [each for each in outcomes if each.failed]
    for each in outcomes:
        say(f"{each.language}: {each.says}")
    if failed:
        reasons = "; ".join(f"{each.language}: {str(each.failed).rstrip('.')}" for each in failed)
        raise LanguagesFailedError(
            f"{len(failed)} of {len(outcomes)} languages failed, the others are registered. {reasons}. Mend what is "
            "named, and run the same again: what was done is not done again."
        )
