"""What every kind of answer provides, so that the endpoint treats them all alike; and what they share.

Legend: N texts, B batch, T tokens.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from lingraft.bundle.format import ROW_OUTPUTS
from lingraft.errors import RequestError
from lingraft.serving.bundle import Bundle
from lingraft.tasks.pairs import encode

RowOutputs = Mapping[str, NDArray[np.float32]]
"""What the body says of one row, by name; without padding."""
ResponseTensors = dict[str, NDArray[Any]]
"""Tensors of a response by name; those of text have the dtype object."""
TEXT = "text"
TEXT_PAIR = "text_pair"
QUESTION = "question"
CONTEXT = "context"
LANGUAGE = "language"
TRUNCATE = "truncate"
TOP_K = "top_k"
NORMALIZE = "normalize"


class TokenRow(NamedTuple):
    """Token ids of one input of the body."""

    language: str
    ids: list[int]
    types: list[int] | None
    text: int
    """Place in the request of the text, or of the pair or question, that it comes from."""

    def __len__(self) -> int:
        """In tokens."""
        return len(self.ids)


class TensorSpec(NamedTuple):
    """A tensor of a response, as metadata describes it."""

    name: str
    datatype: str
    shape: list[int]
    """-1 for what depends on the request."""
    meaning: str


@dataclass(frozen=True)
class RequestParameter:
    """What a request may ask for beside its texts; a bool, or an int of a range."""

    default: bool | int
    meaning: str
    minimum: int = 0
    maximum: int = 0


TRUNCATE_PARAMETER = RequestParameter(False, "read only the beginning of a text that is longer than the model reads")


@dataclass(frozen=True)
class TaskInput:
    """Texts of a request, whose languages are served, and its parameters, defaults included."""

    texts: dict[str, list[str]]
    """By the name of the input; all of one length, N."""
    languages: list[str]
    parameters: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.languages)


class EncodedRequest(Protocol):
    """A request in pieces."""

    @property
    def rows(self) -> Sequence[TokenRow]:
        """What is to go through the body."""

    def decode(self, outputs: Sequence[RowOutputs]) -> ResponseTensors:
        """Answers from what the body said of each row.

        Raises:
            RequestError: a text has nothing to answer with.
        """


class TaskHandler(Protocol):
    """A kind of answer; has no state."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """Texts that a request has, beside their languages."""

    @property
    def detection_input(self) -> str:
        """The input whose language is found out where a request says 'auto'."""

    @property
    def parameters(self) -> Mapping[str, RequestParameter]:
        """What a request may set."""

    def outputs(self, labels: int, width: int) -> list[TensorSpec]:
        """Tensors of a response, beside the languages.

        Args:
            labels: how many the task has.
            width: of the body.
        """

    def encode(self, bundle: Bundle, asked: TaskInput) -> EncodedRequest:
        """Cut a request into rows.

        Raises:
            RequestError: a text is empty, or longer than the model reads.
        """


def run_batch(bundle: Bundle, rows: Sequence[TokenRow]) -> list[RowOutputs]:
    """Put rows of any of a bundle's languages through its body as one batch."""
    types = [row.types or [0] * len(row) for row in rows] if any(row.types for row in rows) else None
    found = bundle.body.run(*bundle.gather([(row.language, row.ids) for row in rows], types))
    return [
        {name: values[place] if name in ROW_OUTPUTS else values[place, : len(row)] for name, values in found.items()}
        for place, row in enumerate(rows)
    ]


def encode_rows(bundle: Bundle, asked: TaskInput, truncate: bool) -> list[TokenRow]:
    """Texts, or pairs of texts, as rows, in the order of the request.

    Raises:
        RequestError: nothing is left of a text, or it is longer than a block and `truncate` is False.
    """
    texts = list(zip(*asked.texts.values(), strict=True))
    rows: dict[int, TokenRow] = {}
    for language in dict.fromkeys(asked.languages):
        places = [place for place, spoken in enumerate(asked.languages) if spoken == language]
        found = encode([texts[place] for place in places], bundle.languages[language].tokenizer, bundle.shape)
        for number, place in enumerate(places):
            _require_length(bundle, place, len(texts[place]), found.whole_tokens[number], truncate)
            types = None if found.types is None else found.types[number]
            rows[place] = TokenRow(language, found.rows[number], types, place)
    return [rows[place] for place in range(len(texts))]


def _require_length(bundle: Bundle, place: int, parts: int, tokens: int, truncate: bool) -> None:
    if tokens == 2 + bundle.shape.family.separators * (parts - 1):
        raise empty_text_error(place)
    require_length(bundle, place, tokens, truncate)


def require_length(bundle: Bundle, place: int, tokens: int, truncate: bool) -> None:
    """Refuse a text of more tokens than the model reads, unless the request wants only its beginning read.

    Raises:
        RequestError: it is longer than a block, and `truncate` is False.
    """
    if tokens > bundle.block_tokens and not truncate:
        raise RequestError(
            f"text {place} has {tokens} tokens, and the model reads at most {bundle.block_tokens}. Send a shorter "
            f"text, or set the request's parameter {TRUNCATE!r} to true to have only its beginning read."
        )


def empty_text_error(place: int) -> RequestError:
    """What to say of a text in which there is nothing to read."""
    return RequestError(f"text {place} is empty: nothing is left of it but blanks. Send text.")


def text_tensor(values: Sequence[str]) -> NDArray[np.object_]:
    """A tensor of texts."""
    found = np.empty(len(values), np.object_)
    found[:] = values
    return found


def softmax(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """Probabilities over the last axis."""
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    found: NDArray[np.float32] = powers / powers.sum(-1, keepdims=True)
    return found
