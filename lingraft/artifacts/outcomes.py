"""What became of each language of a run: one that failed is a value with its reason, and no end of the others."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import pydantic

from lingraft.artifacts.failures import failure_reason
from lingraft.artifacts.files import write_text
from lingraft.console import say
from lingraft.errors import LingraftError

OUTCOME_PREFIX = "outcome of "
"""Begins the line about what became of a language or a bundle, which is shown on the console."""
NO_REFUSALS: Mapping[str, str] = MappingProxyType({})


class LanguagesFailedError(LingraftError):
    """Some languages of a run failed, or a bundle was not promoted; the message says which, and why."""


class LanguageOutcome(pydantic.BaseModel, frozen=True, extra="forbid"):
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


def write_outcome(language: str, results: Path, out: Path, refused: str | None = None) -> None:
    """Write the outcome of a language to the file `out`: what the folder of its results says, and the gate.

    Args:
        language: which.
        results: folder of its evaluations, or of why there are none.
        out: the file.
        refused: why the gate did not promote it.
    """
    write_text(
        out, LanguageOutcome(language=language, failed=failure_reason(results), refused=refused).model_dump_json()
    )


def load_outcome(path: Path) -> LanguageOutcome:
    """What `conclude` wrote."""
    return LanguageOutcome.model_validate_json(path.read_bytes())


def require_success(outcomes: Sequence[LanguageOutcome], refused_bundles: Mapping[str, str] = NO_REFUSALS) -> None:
    """List every language's outcome, and the bundles that the gate did not let become champion.

    Args:
        outcomes: one a language.
        refused_bundles: why, by the bundle's registered name.

    Raises:
        LanguagesFailedError: some languages failed, or a bundle was refused.
    """
    failed = [each for each in outcomes if each.failed]
    for each in outcomes:
        say(f"{OUTCOME_PREFIX}{each.language}: {each.says}")
    for name, why_not in refused_bundles.items():
        say(f"{OUTCOME_PREFIX}{name}: {why_not}")
    problems = []
    if failed:
        reasons = "; ".join(f"{each.language}: {str(each.failed).rstrip('.')}" for each in failed)
        problems.append(
            f"{len(failed)} of {len(outcomes)} languages failed, the others are registered. {reasons}. Mend what is "
            "named, and run the same again: what was done is not done again."
        )
    if refused_bundles:
        reasons = " ".join(f"{name}: {why_not}" for name, why_not in refused_bundles.items())
        problems.append(
            f"What is in production stays as it is. {reasons} What is asked for by name may be given to this pipeline, "
            "or to `lingraft registry promote`."
        )
    if problems:
        raise LanguagesFailedError(" ".join(problems))
