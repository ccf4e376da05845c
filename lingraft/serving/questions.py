"""What the endpoint is asked and answers; how a request of the Open Inference Protocol is read, and its limits."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from lingraft.errors import RequestError

MAX_TEXTS = 64
MAX_CHARACTERS = 20_000
MAX_BODY_BYTES = 8 * 2**20
"""Holds MAX_TEXTS texts of MAX_CHARACTERS characters, also where JSON escapes each one as six bytes."""
TEXT, LANGUAGE, TRUNCATE = "text", "language", "truncate"
LABEL, PROBABILITY, PROBABILITIES = "label", "probability", "probabilities"
_SHAPES = {TEXT: "[N]", LANGUAGE: "[N], or [1] for all texts"}


class Question(NamedTuple):
    """A text, and the language that it is in."""

    language: str
    text: str


class Answer(NamedTuple):
    """The most probable label of a text."""

    language: str
    text: str
    label: str
    probability: float


class Asked(NamedTuple):
    """A request that is well formed; whether its languages are served, and its texts fit, is for the bundle to say."""

    questions: list[Question]
    truncate: bool


def read(request: Any) -> Asked:
    """Read a kserve.InferRequest.

    Raises:
        RequestError: an input is missing, unknown or of the wrong type or shape, a text is empty or too long, there
            are too many texts, or something is asked for that the endpoint does not know.
    """
    names = [given.name for given in request.inputs]
    if sorted(names) != sorted(_SHAPES):
        raise RequestError(f"inputs are {_shown(names)}; send one {TEXT!r} and one {LANGUAGE!r}.")
    given = dict(zip(names, request.inputs, strict=True))
    texts, languages = (_strings(given[name]) for name in (TEXT, LANGUAGE))
    if len(texts) > MAX_TEXTS:
        raise RequestError(f"the request has {len(texts)} texts; send at most {MAX_TEXTS} at once.")
    if len(languages) not in (1, len(texts)):
        raise RequestError(
            f"{len(languages)} languages for {len(texts)} texts: send one for all, or one for each text."
        )
    for place, text in enumerate(texts):
        _require_text(place, text)
    _require_unicode("id", request.id or "")
    _require_outputs(request.request_outputs or [])
    languages = languages * len(texts) if len(languages) == 1 else languages
    return Asked([Question(*pair) for pair in zip(languages, texts, strict=True)], _truncate(request.parameters or {}))


def _strings(given: Any) -> list[str]:
    """Data of a BYTES input of shape [N]: strings in JSON."""
    expected = f"input {given.name!r} must have datatype BYTES and shape {_SHAPES[given.name]}"
    if given.datatype != "BYTES":
        raise RequestError(f"{expected}; its datatype is {_shown(given.datatype)}.")
    if given.parameters:
        raise RequestError(f"input {given.name!r} has parameters {_shown(sorted(given.parameters))}; it knows none.")
    values: list[Any] = given.data
    kinds = sorted({type(value).__name__ for value in values} - {"str"})
    if kinds:
        raise RequestError(f"{expected}, with strings as data; there are values of type {', '.join(kinds)} among them.")
    if list(given.shape) != [len(values)] or not values:
        raise RequestError(f"{expected}; its shape is {_shown(given.shape)} and its data has {len(values)} strings.")
    return values


def _require_text(place: int, text: str) -> None:
    if len(text) > MAX_CHARACTERS:
        raise RequestError(f"text {place} has {len(text)} characters; send at most {MAX_CHARACTERS} in one text.")
    if not text.strip():
        raise RequestError(f"text {place} is empty. Send text.")
    _require_unicode(f"text {place}", text)


def _require_unicode(what: str, text: str) -> None:
    """JSON can spell half a surrogate pair, which is no character; tokenizers and answers cannot hold it."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise RequestError(f"{what} has half a surrogate pair at character {error.start}. Send Unicode.") from error


def _truncate(parameters: Mapping[str, Any]) -> bool:
    if unknown := sorted(set(parameters) - {TRUNCATE}):
        raise RequestError(f"parameters {_shown(unknown)} are unknown; the only one is {TRUNCATE!r}, true or false.")
    truncate = parameters.get(TRUNCATE, False)
    if not isinstance(truncate, bool):
        raise RequestError(f"parameter {TRUNCATE!r} is {_shown(truncate)}; it must be true or false.")
    return truncate


def _require_outputs(outputs: Sequence[Any]) -> None:
    known = [LABEL, PROBABILITY, PROBABILITIES]
    for output in outputs:
        if output.name not in known:
            raise RequestError(f"output {_shown(output.name)} is unknown; there are {known}.")
        if output.parameters:
            raise RequestError(
                f"output {output.name!r} has parameters {_shown(sorted(output.parameters))}; it knows none."
            )


def _shown(value: object) -> str:
    """A client's value in a message: ASCII, and not long."""
    shown = ascii(value)
    return shown if len(shown) <= 80 else f"{shown[:80]}..."
