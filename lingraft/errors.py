"""Errors that a user can fix: each message says what was wrong, the actual value, and what to do."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")


class LingraftError(ValueError):
    """Root of all errors that lingraft raises on bad input."""

    heals = False
    """Whether the same call may succeed later without a fix."""


def raise_errors(items: "Iterable[Item | LingraftError]") -> Iterator[Item]:
    """Yield items until the first error among them, which is raised.

    Raises:
        LingraftError: the first error that stands in place of an item.
    """
    for item in items:
        if isinstance(item, LingraftError):
            raise item
        yield item


class RecipeError(LingraftError):
    """A recipe has an unknown key or an impossible value; the message names the key's path."""


class TextError(LingraftError):
    """Text is missing, empty, undecodable or without the labels that a task needs."""


class TokenizerError(LingraftError):
    """A tokenizer cannot be trained on the text given, or does not fit the language asked for."""


class ArtifactError(LingraftError):
    """An artifact folder is missing, of the wrong kind, truncated, edited or cannot be written."""


class InUseError(ArtifactError):
    """Another process writes the same folder; it may end later."""

    heals = True


class AlignmentError(LingraftError):
    """Two artifacts that were not trained against the same primary were combined."""


class DepthError(LingraftError):
    """A mini-model depth was asked for at which the primary has no MLM head."""


class TrainingError(LingraftError):
    """Training cannot go on: too little data for one batch, or a loss or vectors that are not finite."""


class TrackingError(LingraftError):
    """The tracking server or registry lacks what was asked for, or cannot be reached."""


class NotRegisteredError(TrackingError):
    """The registry has no such model or alias."""


class NoStoreError(NotRegisteredError):
    """There is no MLflow store at the address that the environment names, so nothing is registered there."""


class GateError(LingraftError):
    """The gate lacks evidence, or its evidence cannot be compared."""


class PromotionError(LingraftError):
    """A version cannot be promoted, or taken back; the message says which, and what stands against it."""


class SupersededError(PromotionError):
    """Somebody else promoted a version of the same model at the same time, and was first."""

    heals = True


class ExportError(LingraftError):
    """An exported model does not compute what the PyTorch model computes."""


class RequestError(LingraftError):
    """A request to the endpoint is not one it can answer; the message says what is allowed."""


class UnknownModelError(RequestError):
    """A request names a model that the endpoint does not have."""


class OverloadedError(RequestError):
    """The endpoint's queue is full."""

    heals = True


class ServingError(LingraftError):
    """The endpoint cannot start, or did not come up: its port, its runtime, its bundle."""


class MissingExtraError(LingraftError):
    """An optional part is not installed; the message names the extra that brings it."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"{package} is not installed, and this step needs it. Install it with: pip install 'lingraft[{extra}]'"
        )
