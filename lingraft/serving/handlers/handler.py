"""The interface of a task's handler, and what the handlers share.

Legend: N texts, B batch, T tokens.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lingraft.bundle.format import ROW_OUTPUTS, OutputSizes
from lingraft.errors import RequestError
from lingraft.serving.bundle import Bundle
from lingraft.tasks.pairs import encode

RowOutputs = Mapping[str, NDArray[np.float32]]
"""Outputs of the body for one row, by name, without padding."""
ResponseTensors = dict[str, NDArray[Any]]
"""Tensors of a response by name; strings have the dtype object."""
TEXT = "text"
LANGUAGE = "language"
TRUNCATE = "truncate"
_DTYPES: dict[str, Any] = {"BYTES": np.object_, "INT32": np.int32, "FP32": np.float32}


class TokenRow(NamedTuple):
    """Token ids of one input of the body."""

    language: str
    ids: list[int]
    types: list[int] | None
    """Segment ids."""
    text: int
    """Position in the request of the text, pair or question that the row is made of."""

    def __len__(self) -> int:
        return len(self.ids)


class TensorSpec(NamedTuple):
    """Output tensor as the metadata describes it; -1 in its shape stands for a size that depends on the request."""

    name: str
    datatype: str
    shape: list[int]


def one_each(**datatypes: str) -> list[TensorSpec]:
    """Return tensors with one value for each text, entity or mask, by name."""
    return [TensorSpec(name, datatype, [-1]) for name, datatype in datatypes.items()]


def columns(specs: Sequence[TensorSpec], rows: Sequence[Sequence[Any]]) -> ResponseTensors:
    """Return the tensors of `one_each` from rows, each of which has a value for each tensor."""
    return {
        spec.name: np.array([row[place] for row in rows], _DTYPES[spec.datatype]) for place, spec in enumerate(specs)
    }


class RequestParameter(NamedTuple):
    """Parameter of a request: a bool, an int in a range, or one of several words."""

    default: bool | int | str
    meaning: str
    minimum: int = 0
    maximum: int = 0
    choices: tuple[str, ...] = ()


TRUNCATES = {TRUNCATE: RequestParameter(False, "read only the beginning of a text that is longer than the model reads")}


class TaskInput(NamedTuple):
    """N texts by the name of the input, their languages, and all parameters."""

    texts: dict[str, list[str]]
    languages: list[str]
    parameters: dict[str, Any]


class EncodedRequest(NamedTuple):
    """Rows of a request, and the function that makes its response from their outputs."""

    rows: Sequence[TokenRow]
    decode: Callable[[Sequence[RowOutputs]], ResponseTensors]


@dataclass(frozen=True)
class TaskHandler:
    """Handler of the requests to a model of one kind; stateless."""

    inputs: tuple[str, ...]
    """Names of the text inputs."""
    outputs: Callable[[OutputSizes], list[TensorSpec]]
    encode: Callable[[Bundle, TaskInput], EncodedRequest]
    """Raises RequestError for a text that is empty, or longer than the model reads."""
    parameters: Mapping[str, RequestParameter]
    detection_input: str = TEXT
    """Input whose language is detected."""


def run_batch(bundle: Bundle, rows: Sequence[TokenRow]) -> list[RowOutputs]:
    """Run rows of any of a bundle's languages through its body as one batch."""
    types = [row.types or [0] * len(row) for row in rows] if any(row.types for row in rows) else None
    outputs = bundle.body.run(*bundle.gather([(row.language, row.ids) for row in rows], types))
    return [
        {name: values[place] if name in ROW_OUTPUTS else values[place, : len(row)] for name, values in outputs.items()}
        for place, row in enumerate(rows)
    ]


def encode_rows(bundle: Bundle, request: TaskInput) -> list[TokenRow]:
    """Encode texts or pairs of texts, in the order of the request."""
    texts = list(zip(*request.texts.values(), strict=True))
    rows: dict[int, TokenRow] = {}
    for language in dict.fromkeys(request.languages):
        places = [place for place, spoken in enumerate(request.languages) if spoken == language]
        encoded = encode([texts[place] for place in places], bundle.languages[language].tokenizer, bundle.shape)
        for number, place in enumerate(places):
            tokens = encoded.whole_tokens[number]
            if tokens == 2 + bundle.shape.family.separators * (len(texts[place]) - 1):
                raise empty_text_error(place)
            require_length(bundle, place, tokens, request.parameters[TRUNCATE])
            types = None if encoded.types is None else encoded.types[number]
            rows[place] = TokenRow(language, encoded.rows[number], types, place)
    return [rows[place] for place in range(len(texts))]


def require_length(bundle: Bundle, place: int, tokens: int, truncate: bool) -> None:
    """Refuse a text that is longer than a block, unless it is to be truncated."""
    if tokens > bundle.shape.block_tokens and not truncate:
        raise RequestError(
            f"text {place} has {tokens} tokens, and the model reads at most {bundle.shape.block_tokens}. Send a "
            f"shorter text, or set the request's parameter {TRUNCATE!r} to true to have only its beginning read."
        )


def empty_text_error(place: int) -> RequestError:
    """Return the error for a text without a token."""
    return RequestError(f"text {place} is empty: nothing is left of it but blanks. Send text.")


def softmax(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the probabilities over the last axis."""
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    probabilities: NDArray[np.float32] = powers / powers.sum(-1, keepdims=True)
    return probabilities
