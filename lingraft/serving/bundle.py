"""A bundle opened for answering: one body, and each language's table and tokenizer.

Legend: N texts, C classes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from lingraft.artifact import Artifact, Kind
from lingraft.errors import RequestError, TokenizerError
from lingraft.model_config import EncoderShape
from lingraft.pieces import SpecialIds
from lingraft.serving.questions import Question
from lingraft.serving.runtime import Body, served_provider
from lingraft.tasks.pairs import encode
from lingraft.tokenizer import Tokenizer

BODY_FILE = "body.onnx"
_BATCH_TEXTS = 16
"""Attention's memory grows with the texts of a batch, so a long request goes through the body in several."""


def table_part(language: str) -> str:
    """Name of the artifact's part that holds a language's table."""
    return f"{language}/table"


@dataclass(frozen=True)
class Language:
    """What makes the body understand one language."""

    tokenizer: Tokenizer
    table: Any
    """Held by the runtime; see `Body.hold`."""


@dataclass(frozen=True)
class Bundle:
    """One task in many languages."""

    task: str
    labels: list[str]
    shape: EncoderShape
    fingerprint: str
    languages: dict[str, Language]
    body: Body

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Open a bundle, with every file's hash checked.

        Raises:
            ArtifactError: not a bundle, or damaged.
            TokenizerError: a language's tokenizer is not the one its table belongs to.
            MissingExtraError: ONNX Runtime is not installed.
            ServingError: ONNX Runtime is not usable as installed.
        """
        found = Artifact.load(folder, Kind.BUNDLE)
        details = found.manifest.details
        body = Body.open(folder / BODY_FILE, served_provider())
        languages = {name: _language(found, name, body) for name in details["languages"]}
        shape = EncoderShape(**details["shape"])
        return cls(details["task"], details["labels"], shape, found.fingerprint, languages, body)

    @property
    def block_tokens(self) -> int:
        """The longest text, in tokens."""
        return self.shape.block_tokens

    def probabilities(self, questions: Sequence[Question], truncate: bool) -> NDArray[np.float32]:
        """Probabilities (N, C) of the labels.

        Args:
            questions: texts in any of the bundle's languages, mixed as they come.
            truncate: read only the beginning of a text that is longer than a block, instead of refusing it.

        Raises:
            RequestError: a language is not served, or a text is empty or longer than a block.
        """
        rows_by_language = {
            language: self._encode(language, questions, truncate)
            for language in dict.fromkeys(question.language for question in questions)
        }
        logits_NC = np.empty((len(questions), len(self.labels)), np.float32)
        for language, rows in rows_by_language.items():
            for places in _batches(rows):
                given = [rows[place] for place in places]
                spoken = self.languages[language]
                logits_NC[places] = self.body.logits(given, spoken.tokenizer.special.pad, spoken.table)
        return _softmax(logits_NC)

    def _encode(self, language: str, questions: Sequence[Question], truncate: bool) -> dict[int, list[int]]:
        """Token ids of one language's questions, by their place in the request."""
        places = [place for place, question in enumerate(questions) if question.language == language]
        if language not in self.languages:
            raise RequestError(
                f"text {places[0]} is in language {language[:40]!a}; this endpoint speaks {sorted(self.languages)}."
            )
        texts = [(questions[place].text,) for place in places]
        encoded = encode(texts, self.languages[language].tokenizer, self.shape)
        for place, tokens in zip(places, encoded.whole_tokens, strict=True):
            self._require_length(place, tokens, truncate)
        return dict(zip(places, encoded.rows, strict=True))

    def _require_length(self, place: int, tokens: int, truncate: bool) -> None:
        if tokens == 2:
            raise RequestError(f"text {place} is empty: nothing is left of it but blanks. Send text.")
        if tokens > self.block_tokens and not truncate:
            raise RequestError(
                f"text {place} has {tokens} tokens, and the model reads at most {self.block_tokens}. Send a shorter "
                "text, or set the request's parameter 'truncate' to true to have only its beginning read."
            )


def _language(bundle: Artifact, name: str, body: Body) -> Language:
    described = bundle.manifest.details["tokenizers"][name]
    special = SpecialIds(**described["special_ids"])
    tokenizer = Tokenizer.from_file(bundle.folder / name / described["file"], name, special)
    table_VD = bundle.tensors(table_part(name))["table_VD"].numpy()
    if len(tokenizer) != len(table_VD):
        raise TokenizerError(
            f"{bundle.folder / name} has {len(table_VD)} rows, but its tokenizer has {len(tokenizer)} pieces. "
            "Export the bundle again."
        )
    return Language(tokenizer, body.hold(table_VD))


def _batches(rows: dict[int, list[int]]) -> Iterator[list[int]]:
    """Places in groups of similar length, so that little is spent on padding."""
    places = sorted(rows, key=lambda place: len(rows[place]))
    for start in range(0, len(places), _BATCH_TEXTS):
        yield places[start : start + _BATCH_TEXTS]


def _softmax(logits_NC: NDArray[np.float32]) -> NDArray[np.float32]:
    powers_NC = np.exp(logits_NC - logits_NC.max(1, keepdims=True))
    found: NDArray[np.float32] = powers_NC / powers_NC.sum(1, keepdims=True)
    return found
