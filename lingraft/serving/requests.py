"""Requests to a model, from KServe's `InferRequest` or from OpenAI's shape, and their validation."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from kserve import InferInput, InferRequest
from kserve.protocol.infer_type import to_http_parameters

from lingraft.errors import RequestError
from lingraft.serving.handlers.handler import LANGUAGE, RequestParameter
from lingraft.serving.served_models import ServedModel
from lingraft.serving.settings import ServingSettings
from lingraft.tasks.squad_windows import is_blank


class ParsedRequest(NamedTuple):
    """A valid request; whether its languages are served, and the lengths of its texts in tokens, is checked later."""

    texts: dict[str, list[str]]
    languages: list[str]
    """Language tag or 'auto' of each text."""
    parameters: dict[str, Any]
    outputs: list[str]
    """Names of the outputs that the client asks for."""


def parse_request(request: InferRequest, model: ServedModel, settings: ServingSettings) -> ParsedRequest:
    """Parse a request of the protocol."""
    if not isinstance(request.parameters or {}, Mapping):
        raise RequestError(f"parameters are {_shown(request.parameters)}; send an object.")
    parameters = to_http_parameters(request.parameters or {})
    parameters.pop("binary_data_output", None)  # KServe reads it
    names = [str(each.name) for each in request.inputs]
    if sorted(names) != sorted(model.inputs):
        raise RequestError(f"inputs are {_shown(names[:16])}; send one {' and one '.join(map(repr, model.inputs))}.")
    data = {each.name: _strings(each) for each in request.inputs}
    return validate(
        texts={name: data[name] for name in model.handler.inputs},
        languages=data[LANGUAGE],
        parameters=parameters,
        outputs=[each.name for each in request.request_outputs or []],
        model=model,
        settings=settings,
    )


def validate(
    texts: dict[str, list[str]],
    languages: list[str],
    parameters: Mapping[str, Any],
    outputs: list[str],
    model: ServedModel,
    settings: ServingSettings,
) -> ParsedRequest:
    """Validate the parts of a request to a model."""
    counts = {name: len(values) for name, values in texts.items()}
    count = max(counts.values())
    if len({*counts.values()}) > 1:
        raise RequestError(f"inputs have {counts} texts; send as many of each.")
    if count > settings.texts:
        raise RequestError(f"the request has {count} texts; send at most {settings.texts} at once (server: --texts).")
    for name, values in texts.items():
        for place, text in enumerate(values):
            if problem := _problem(text, settings.characters):
                raise RequestError(f"{name} {place} {problem}")
    if len(languages) not in (1, count):
        raise RequestError(f"{len(languages)} languages for {count} texts: send one for all, or one for each text.")
    known = [each.name for each in model.outputs]
    for name in outputs:
        if name not in known:
            raise RequestError(f"output {_shown(name)} is unknown; there are {known}.")
    return ParsedRequest(
        texts=texts,
        languages=languages * count if len(languages) == 1 else languages,
        parameters=_parameters(parameters, model.handler.parameters),
        outputs=outputs or known,
    )


def _strings(tensor: InferInput) -> list[str]:
    """Return the strings of a tensor, whether they came as JSON, as a message or as bytes."""
    expected = f"input {tensor.name!r} must have datatype BYTES, shape [N] and N strings"
    if tensor.datatype != "BYTES":
        raise RequestError(f"{expected}; its datatype is {_shown(tensor.datatype)}.")
    try:
        data = tensor.data if tensor._raw_data is None else tensor.as_numpy().tolist()
        texts = [each.decode() if isinstance(each, bytes) else each for each in data]
    except Exception as error:  # struct.error, UnicodeDecodeError and others, by what is wrong with the bytes
        raise RequestError(f"{expected}, in UTF-8; it cannot be read: {error}.") from error
    if not texts or tensor.shape != [len(texts)]:
        raise RequestError(f"{expected}; its shape is {_shown(tensor.shape)}, and it has {len(texts)} strings.")
    if types := sorted({type(each).__name__ for each in texts} - {"str"}):
        raise RequestError(f"{expected}; there are values of type {', '.join(types)} among them.")
    return texts


def _problem(text: str, max_characters: int) -> str:
    """Return what is wrong with a text; empty if nothing is."""
    if len(text) > max_characters:
        return f"has {len(text)} characters; send at most {max_characters} in one text."
    if "\0" in text:
        return f"has a NUL at character {text.index(chr(0))}. Send text."
    if text.encode("utf-8", "replace").decode() != text:
        return "has half a surrogate pair. Send Unicode."
    return "is empty: nothing in it can be seen. Send text." if all(map(is_blank, text)) else ""


def _parameters(given: Mapping[str, Any], known: Mapping[str, RequestParameter]) -> dict[str, Any]:
    if unknown := sorted(set(given) - set(known)):
        raise RequestError(f"parameters {_shown(unknown)} are unknown; there are {sorted(known)}.")
    for name, value in given.items():
        each = known[name]
        if isinstance(each.default, bool):
            valid, allowed = isinstance(value, bool), "true or false"
        elif each.choices:
            valid, allowed = value in each.choices, f"one of {list(each.choices)}"
        else:
            valid = type(value) is int and each.minimum <= value <= each.maximum
            allowed = f"a whole number from {each.minimum} to {each.maximum}"
        if not valid:
            raise RequestError(f"parameter {name!r} is {_shown(value)}; it must be {allowed}.")
    return {name: given.get(name, each.default) for name, each in known.items()}


def _shown(value: object) -> str:
    shown = ascii(value)
    return shown if len(shown) <= 80 else f"{shown[:80]}..."
