"""Requests of the Open Inference Protocol, over any transport, and their validation."""

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
"""Largest number of inputs, outputs or dimensions of a request; no model has as many. Without a limit, a request of a
few megabytes could have a million invalid ones, and the list of their errors would exhaust the memory."""


class _Part(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True, frozen=True)

    name: str
    parameters: dict[str, Any] | None = None


class InputTensor(_Part):
    """Input tensor of a request: texts, or their languages."""

    datatype: str
    shape: Annotated[list[int], pydantic.Field(max_length=MAX_PARTS)]
    data: list[Any]


class OutputTensor(_Part):
    """Output tensor that a request asks for."""


class InferRequest(pydantic.BaseModel):
    """Inference request of the protocol."""

    model_config = pydantic.ConfigDict(strict=True, frozen=True)

    id: str | None = None
    parameters: dict[str, Any] | None = None
    inputs: Annotated[list[InputTensor], pydantic.Field(max_length=MAX_PARTS)]
    outputs: Annotated[list[OutputTensor], pydantic.Field(max_length=MAX_PARTS)] | None = None


class ParsedRequest(NamedTuple):
    """A valid request; its languages and the lengths of its texts in tokens are checked later."""

    texts: dict[str, list[str]]
    languages: list[str]
    """Language tag or 'auto' of each text."""
    parameters: dict[str, Any]
    outputs: list[str]
    """Names of the outputs that the client asks for; empty for all."""


def parse_json(body: bytes) -> InferRequest:
    """Parse the JSON of a request; it may be nested at most 200 levels deep.

    Raises:
        RequestError: the body is not JSON in UTF-8, or not a request of the protocol.
    """
    with refuse_invalid():
        return InferRequest.model_validate_json(body)


@contextlib.contextmanager
def refuse_invalid() -> Iterator[None]:
    """Turn pydantic's errors about a request into one that the client may see.

    Raises:
        RequestError: a part is missing or of a wrong type, or there are too many.
    """
    try:
        yield
    except pydantic.ValidationError as error:
        # The message leaves values out, which may be long, private or not text.
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
    """Validate a request against a model's inputs, parameters and outputs.

    Args:
        request: parsed request.
        inputs: names of the model's text inputs.
        parameters: parameters of the model, by name.
        outputs: names of the model's outputs.
        settings: limits of the endpoint.

    Raises:
        RequestError: an input is missing, unknown or of the wrong type or shape; a text is empty or too long; there
            are too many texts; or a parameter or output is unknown.
    """
    names = [tensor.name for tensor in request.inputs]
    expected = [*inputs, LANGUAGE]
    if sorted(names) != sorted(expected):
        raise RequestError(f"inputs are {_shown(names)}; send one {' and one '.join(map(repr, expected))}.")
    data = {tensor.name: _strings(tensor) for tensor in request.inputs}
    texts = {name: data[name] for name in inputs}
    _require_texts(texts, settings)
    _require_unicode("id", request.id or "")
    if len(request.id or "") > _LONGEST_ID:
        raise RequestError(f"id has {len(request.id or '')} characters; send at most {_LONGEST_ID}.")
    count = len(texts[inputs[0]])
    return ParsedRequest(
        texts=texts,
        languages=_languages(data[LANGUAGE], count),
        parameters=_parameters(request.parameters or {}, parameters),
        outputs=_outputs(request.outputs or [], outputs),
    )


def _strings(given: InputTensor) -> list[str]:
    """Return the strings of a BYTES input of shape [N]."""
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
    """Refuse lone surrogates, which JSON can express but tokenizers and responses cannot."""
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


def _outputs(requested: Sequence[OutputTensor], known: Sequence[str]) -> list[str]:
    for output in requested:
        if output.name not in known:
            raise RequestError(f"output {_shown(output.name)} is unknown; there are {list(known)}.")
        if output.parameters:
            raise RequestError(
                f"output {output.name!r} has parameters {_shown(sorted(output.parameters))}; it knows none."
            )
    return [output.name for output in requested]


def _shown(value: object) -> str:
    """Format a client's value for a message: ASCII, and cut to 80 characters."""
    shown = ascii(value)
    return shown if len(shown) <= 80 else f"{shown[:80]}..."
