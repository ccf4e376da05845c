"""A request of the Open Inference Protocol, by whatever transport it came, and what is refused of it."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import pydantic

from lingraft.errors import RequestError
from lingraft.serving.settings import ServingSettings
from lingraft.serving.tasks.handler import LANGUAGE, RequestParameter
from lingraft.tasks.squad_windows import is_blank

_SHOWN_PROBLEMS = 5
_LONGEST_ID = 256
_SHAPES = {LANGUAGE: "[N], or [1] for all texts"}
MAX_PARTS = 16
"""Inputs, outputs and dimensions that a request may name, more than any model has. Without it one of some megabytes
could name a million wrong ones, and telling what is wrong with each would take more memory than there is."""


class _Part(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True, frozen=True)

    name: str
    parameters: dict[str, Any] | None = None


class InputTensor(_Part):
    """Texts, or their languages."""

    datatype: str
    shape: Annotated[list[int], pydantic.Field(max_length=MAX_PARTS)]
    data: list[Any]


class OutputTensor(_Part):
    """A tensor that the response is to have."""


class InferRequest(pydantic.BaseModel):
    """The protocol's inference request."""

    model_config = pydantic.ConfigDict(strict=True, frozen=True)

    id: str | None = None
    parameters: dict[str, Any] | None = None
    inputs: Annotated[list[InputTensor], pydantic.Field(max_length=MAX_PARTS)]
    outputs: Annotated[list[OutputTensor], pydantic.Field(max_length=MAX_PARTS)] | None = None


class ParsedRequest(NamedTuple):
    """A request that is well formed; whether its languages are served, and its texts fit, shows later."""

    texts: dict[str, list[str]]
    languages: list[str]
    """Named, or 'auto'; as many as texts."""
    parameters: dict[str, Any]
    outputs: list[str]
    """Names of those asked for; all of them if empty."""


def parse_json(body: bytes) -> InferRequest:
    """Read JSON; nothing in it may be nested deeper than 200 levels.

    Raises:
        RequestError: not JSON, not UTF-8, or not of the protocol's form.
    """
    with refuse_invalid():
        return InferRequest.model_validate_json(body)


@contextlib.contextmanager
def refuse_invalid() -> Iterator[None]:
    """Tell a client what is wrong with the parts of its request.

    Raises:
        RequestError: a part is missing, of a wrong type, or there are too many.
    """
    try:
        yield
    except pydantic.ValidationError as error:
        # Where and what, without the values, which may be long, private or not text.
        problems = [
            f"{'.'.join(map(str, found['loc']))[:80] or 'body'}: {found['msg']}"
            for found in error.errors(include_url=False, include_input=False)
        ]
        raise RequestError("the request is not as it should be. " + "; ".join(problems[:_SHOWN_PROBLEMS])) from error


def validate_request(
    request: InferRequest,
    inputs: Sequence[str],
    parameters: Mapping[str, RequestParameter],
    outputs: Sequence[str],
    settings: ServingSettings,
) -> ParsedRequest:
    """Hold a request to what a model takes.

    Args:
        request: as it came.
        inputs: names of the model's texts.
        parameters: those that it knows.
        outputs: names of its tensors.
        settings: limits.

    Raises:
        RequestError: an input is missing, unknown or of the wrong type or shape, a text is empty or too long, there
            are too many texts, or something is asked for that the model does not know.
    """
    names = [given.name for given in request.inputs]
    wanted = [*inputs, LANGUAGE]
    if sorted(names) != sorted(wanted):
        raise RequestError(f"inputs are {_shown(names)}; send one {' and one '.join(map(repr, wanted))}.")
    given = {each.name: _strings(each) for each in request.inputs}
    texts = {name: given[name] for name in inputs}
    _require_texts(texts, settings)
    _require_unicode("id", request.id or "")
    if len(request.id or "") > _LONGEST_ID:
        raise RequestError(f"id has {len(request.id or '')} characters; send at most {_LONGEST_ID}.")
    count = len(texts[inputs[0]])
    return ParsedRequest(
        texts,
        _languages(given[LANGUAGE], count),
        _parameters(request.parameters or {}, parameters),
        _outputs(request.outputs or [], outputs),
    )


def _strings(given: InputTensor) -> list[str]:
    """Data of a BYTES input of shape [N]: strings."""
    expected = f"input {given.name!r} must have datatype BYTES and shape {_SHAPES.get(given.name, '[N]')}"
    if given.datatype != "BYTES":
        raise RequestError(f"{expected}; its datatype is {_shown(given.datatype)}.")
    if given.parameters:
        raise RequestError(f"input {given.name!r} has parameters {_shown(sorted(given.parameters))}; it knows none.")
    if kinds := sorted({type(value).__name__ for value in given.data} - {"str"}):
        raise RequestError(f"{expected}, with strings as data; there are values of type {', '.join(kinds)} among them.")
    if given.shape != [len(given.data)] or not given.data:
        raise RequestError(
            f"{expected}; its shape is {_shown(given.shape)} and its data has {len(given.data)} strings."
        )
    return given.data


def _require_texts(texts: Mapping[str, Sequence[str]], settings: ServingSettings) -> None:
    counts = {name: len(values) for name, values in texts.items()}
    if len(set(counts.values())) > 1:
        raise RequestError(f"inputs have {counts} texts; send as many of each.")
    if (count := max(counts.values())) > settings.texts:
        raise RequestError(f"the request has {count} texts; send at most {settings.texts} at once.")
    for name, values in texts.items():
        for place, text in enumerate(values):
            _require_text(name, place, text, settings.characters)


def _require_text(name: str, place: int, text: str, most: int) -> None:
    if len(text) > most:
        raise RequestError(f"{name} {place} has {len(text)} characters; send at most {most} in one text.")
    if "\0" in text:
        raise RequestError(f"{name} {place} has a NUL at character {text.index(chr(0))}. Send text.")
    _require_unicode(f"{name} {place}", text)
    if all(is_blank(character) for character in text):
        raise RequestError(f"{name} {place} is empty: nothing in it can be seen. Send text.")


def _require_unicode(what: str, text: str) -> None:
    """JSON can spell half a surrogate pair, which is no character; tokenizers and answers cannot hold it."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise RequestError(f"{what} has half a surrogate pair at character {error.start}. Send Unicode.") from error


def _languages(given: list[str], texts: int) -> list[str]:
    if len(given) not in (1, texts):
        raise RequestError(f"{len(given)} languages for {texts} texts: send one for all, or one for each text.")
    return given * texts if len(given) == 1 else given


def _parameters(given: Mapping[str, Any], known: Mapping[str, RequestParameter]) -> dict[str, Any]:
    if unknown := sorted(set(given) - set(known)):
        raise RequestError(f"parameters {_shown(unknown)} are unknown; there are {sorted(known)}.")
    for name, value in given.items():
        _require_parameter(name, value, known[name])
    return {name: given.get(name, each.default) for name, each in known.items()}


def _require_parameter(name: str, value: object, known: RequestParameter) -> None:
    if isinstance(known.default, bool):
        if not isinstance(value, bool):
            raise RequestError(f"parameter {name!r} is {_shown(value)}; it must be true or false.")
    elif isinstance(value, bool) or not isinstance(value, int) or not known.minimum <= value <= known.maximum:
        raise RequestError(
            f"parameter {name!r} is {_shown(value)}; it must be a whole number from {known.minimum} to {known.maximum}."
        )


def _outputs(asked: Sequence[OutputTensor], known: Sequence[str]) -> list[str]:
    for output in asked:
        if output.name not in known:
            raise RequestError(f"output {_shown(output.name)} is unknown; there are {list(known)}.")
        if output.parameters:
            raise RequestError(
                f"output {output.name!r} has parameters {_shown(sorted(output.parameters))}; it knows none."
            )
    return [output.name for output in asked]


def _shown(value: object) -> str:
    """A client's value in a message: ASCII, and not long."""
    shown = ascii(value)
    return shown if len(shown) <= 80 else f"{shown[:80]}..."
