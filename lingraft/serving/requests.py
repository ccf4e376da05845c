"""Requests of the Open Inference Protocol, over any transport, and their validation."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import pydantic

from lingraft.errors import RequestError
from lingraft.serving.handlers.handler import LANGUAGE, RequestParameter, TaskHandler
from lingraft.serving.settings import ServingSettings
from lingraft.tasks.squad_windows import is_blank

MAX_PARTS = 16
"""Largest number of inputs, outputs or dimensions of a request; no model has as many. Without a limit, a request of a
few megabytes could have a million invalid ones, and the list of their errors would exhaust the memory."""
MAX_ID = 256
_SHOWN_PROBLEMS = 5


class _Part(pydantic.BaseModel, strict=True, frozen=True):
    name: str
    parameters: dict[str, Any] | None = None


class InputTensor(_Part):
    """Input tensor of a request: texts, or their languages."""

    datatype: str
    shape: Annotated[list[int], pydantic.Field(max_length=MAX_PARTS)]
    data: list[Any]


class OutputTensor(_Part):
    """Output tensor that a request asks for."""


class InferRequest(pydantic.BaseModel, strict=True, frozen=True):
    """Inference request of the protocol."""

    id: str | None = None
    parameters: dict[str, Any] | None = None
    inputs: Annotated[list[InputTensor], pydantic.Field(max_length=MAX_PARTS)]
    outputs: Annotated[list[OutputTensor], pydantic.Field(max_length=MAX_PARTS)] | None = None


class ParsedRequest(NamedTuple):
    """A valid request; whether its languages are served, and the lengths of its texts in tokens, is checked later."""

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
    """Turn pydantic's errors about a request into one without the request's values, which may be long or private.

    Raises:
        RequestError: a part is missing or of a wrong type, or there are too many.
    """
    try:
        yield
    except pydantic.ValidationError as error:
        problems = [
            f"{'.'.join(map(str, each['loc']))[:80] or 'body'}: {each['msg']}"
            for each in error.errors(include_url=False, include_input=False)
        ]
        raise RequestError("the request is not as it should be. " + "; ".join(problems[:_SHOWN_PROBLEMS])) from error


def validate_request(
    request: InferRequest, handler: TaskHandler, outputs: Sequence[str], settings: ServingSettings
) -> ParsedRequest:
    """Validate a request to a model.

    Raises:
        RequestError: an input is missing, unknown or of the wrong type or shape; a text is empty or too long; there
            are too many texts; or a parameter or output is unknown.
    """
    names = [tensor.name for tensor in request.inputs]
    expected = [*handler.inputs, LANGUAGE]
    if sorted(names) != sorted(expected):
        raise RequestError(f"inputs are {_shown(names)}; send one {' and one '.join(map(repr, expected))}.")
    data = {tensor.name: _strings(tensor) for tensor in request.inputs}
    texts = {name: data[name] for name in handler.inputs}
    _require_texts(texts, settings)
    _require_unicode("id", request.id or "")
    if len(request.id or "") > MAX_ID:
        raise RequestError(f"id has {len(request.id or '')} characters; send at most {MAX_ID}.")
    count, languages = len(texts[handler.inputs[0]]), data[LANGUAGE]
    if len(languages) not in (1, count):
        raise RequestError(f"{len(languages)} languages for {count} texts: send one for all, or one for each text.")
    return ParsedRequest(
        texts=texts,
        languages=languages * count if len(languages) == 1 else languages,
        parameters=_parameters(request.parameters or {}, handler.parameters),
        outputs=_output_names(request.outputs or [], outputs),
    )


def _strings(tensor: InputTensor) -> list[str]:
    shape = "[N], or [1] for all texts" if tensor.name == LANGUAGE else "[N]"
    expected = f"input {tensor.name!r} must have datatype BYTES and shape {shape}"
    if tensor.datatype != "BYTES":
        raise RequestError(f"{expected}; its datatype is {_shown(tensor.datatype)}.")
    _refuse_part_parameters("input", tensor)
    if types := sorted({type(value).__name__ for value in tensor.data} - {"str"}):
        raise RequestError(f"{expected}, with strings as data; there are values of type {', '.join(types)} among them.")
    if tensor.shape != [len(tensor.data)] or not tensor.data:
        raise RequestError(
            f"{expected}; its shape is {_shown(tensor.shape)} and its data has {len(tensor.data)} strings."
        )
    return tensor.data


def _refuse_part_parameters(kind: str, part: _Part) -> None:
    if part.parameters:
        raise RequestError(f"{kind} {part.name!r} has parameters {_shown(sorted(part.parameters))}; it knows none.")


def _require_texts(texts: Mapping[str, Sequence[str]], settings: ServingSettings) -> None:
    counts = {name: len(values) for name, values in texts.items()}
    if len(set(counts.values())) > 1:
        raise RequestError(f"inputs have {counts} texts; send as many of each.")
    if (count := max(counts.values())) > settings.texts:
        raise RequestError(f"the request has {count} texts; send at most {settings.texts} at once (server: --texts).")
    for name, values in texts.items():
        for place, text in enumerate(values):
            _require_text(f"{name} {place}", text, settings.characters)


def _require_text(name: str, text: str, max_characters: int) -> None:
    if len(text) > max_characters:
        raise RequestError(f"{name} has {len(text)} characters; send at most {max_characters} in one text.")
    if "\0" in text:
        raise RequestError(f"{name} has a NUL at character {text.index(chr(0))}. Send text.")
    _require_unicode(name, text)
    if all(is_blank(character) for character in text):
        raise RequestError(f"{name} is empty: nothing in it can be seen. Send text.")


def _require_unicode(name: str, text: str) -> None:
    """Refuse lone surrogates, which JSON can express but tokenizers and responses cannot."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise RequestError(f"{name} has half a surrogate pair at character {error.start}. Send Unicode.") from error


def _parameters(given: Mapping[str, Any], known: Mapping[str, RequestParameter]) -> dict[str, Any]:
    if unknown := sorted(set(given) - set(known)):
        raise RequestError(f"parameters {_shown(unknown)} are unknown; there are {sorted(known)}.")
    for name, value in given.items():
        each = known[name]
        if isinstance(each.default, bool):
            if not isinstance(value, bool):
                raise RequestError(f"parameter {name!r} is {_shown(value)}; it must be true or false.")
        elif each.choices:
            if value not in each.choices:
                raise RequestError(f"parameter {name!r} is {_shown(value)}; it must be one of {list(each.choices)}.")
        elif type(value) is not int or not each.minimum <= value <= each.maximum:
            raise RequestError(
                f"parameter {name!r} is {_shown(value)}; it must be a whole number from {each.minimum} to "
                f"{each.maximum}."
            )
    return {name: given.get(name, each.default) for name, each in known.items()}


def _output_names(requested: Sequence[OutputTensor], known: Sequence[str]) -> list[str]:
    for output in requested:
        if output.name not in known:
            raise RequestError(f"output {_shown(output.name)} is unknown; there are {list(known)}.")
        _refuse_part_parameters("output", output)
    return [output.name for output in requested]


def _shown(value: object) -> str:
    shown = ascii(value)
    return shown if len(shown) <= 80 else f"{shown[:80]}..."
