"""A bundle opened for answering: one body, and each language's table and tokenizer.

Legend: B batch, T tokens, D width, V vocabulary.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from lingraft.artifact import Artifact, Kind
from lingraft.errors import ServingError, TokenizerError
from lingraft.model_config import EncoderShape
from lingraft.pieces import SpecialIds
from lingraft.serving.formats import (
    BIAS,
    BundleKind,
    Precision,
    bias_part,
    body_file,
    body_part,
    golden_part,
    table_part,
)
from lingraft.serving.golden import Golden
from lingraft.serving.runtime import CUDA, Body, served_provider
from lingraft.serving.tables import Table
from lingraft.task_config import PRIMARY
from lingraft.tokenizer import Tokenizer


@dataclass(frozen=True)
class Language:
    """What makes the body understand one language."""

    tokenizer: Tokenizer
    table: Table
    bias_V: NDArray[np.float32] | None
    """Output bias, in the bundle of a primary."""
    golden: Golden
    fingerprint: str
    """Of the table's file, as it was verified: equal tables, whatever the task, have equal ones."""


class Shared(NamedTuple):
    """What is open in this process: bundles take it instead of opening the same again, and add what is new."""

    tables: dict[str, Table]
    """By fingerprint."""
    tokenizers: dict[tuple[str, str, SpecialIds], Tokenizer]
    """By language, hash of the file, and special ids."""

    @classmethod
    def of(cls, languages: Iterable[Language] = ()) -> Self:
        """What languages have opened."""
        known = list(languages)
        tokenizers = [each.tokenizer for each in known]
        return cls(
            {each.fingerprint: each.table for each in known},
            {(each.language, each.hash, each.special): each for each in tokenizers},
        )


@dataclass(frozen=True)
class Bundle:
    """One task, or a primary itself, in many languages."""

    name: str
    """Of the task, or 'primary'."""
    kind: BundleKind
    labels: list[str]
    """Of classification and tagging; else empty."""
    label_names: dict[str, str]
    """Names of labels for people, of those that the task's recipe names."""
    metric: str
    shape: EncoderShape
    fingerprint: str
    body_fingerprint: str
    """Bundles of equal ones differ in their languages only."""
    precision: Precision
    tolerance: float
    """How far golden answers may be missed in this precision."""
    source_language: str
    """Language that the body was trained in."""
    examples: dict[str, dict[str, str]]
    """By language, texts to try the endpoint with, by the names of a task's inputs."""
    languages: dict[str, Language]
    body: Body

    @classmethod
    def load(
        cls,
        folder: Path,
        precision: Precision | None = None,
        provider: str | None = None,
        shared: Shared | None = None,
    ) -> Self:
        """Open a bundle, with every file's hash checked.

        Args:
            folder: of the bundle.
            precision: of the body; if absent, fp16 on a GPU where the bundle has it, else fp32.
            provider: ONNX Runtime's; that of the distribution installed if absent.
            shared: what is open already; what is new is added to it.

        Raises:
            ArtifactError: not a bundle, or damaged.
            TokenizerError: a language's tokenizer is not the one its table belongs to.
            MissingExtraError: ONNX Runtime is not installed.
            ServingError: ONNX Runtime is not usable as installed, or the bundle has no body of this precision.
        """
        found = Artifact.load(folder, Kind.BUNDLE)
        details, provider = found.manifest.details, provider or served_provider()
        precision = precision or ("fp16" if provider == CUDA and "fp16" in details.get("precisions", ()) else "fp32")
        _require_precision(found, precision)
        shared = shared or Shared.of()
        return cls(
            name=details["task"],
            kind=details["kind"],
            labels=details["labels"],
            label_names=(details["settings"] or {}).get("label_names", {}),
            metric=details["metric"],
            shape=EncoderShape(**details["shape"]),
            fingerprint=found.fingerprint,
            body_fingerprint=found.manifest.fingerprints[body_part(precision)],
            precision=precision,
            tolerance=details["golden"][precision],
            source_language=str(found.manifest.language),
            examples=details.get("examples", {}),
            languages={name: open_language(found, name, shared) for name in details["languages"]},
            body=Body.open(folder / body_file(precision), provider),
        )

    @property
    def block_tokens(self) -> int:
        """The longest text, in tokens."""
        return self.shape.block_tokens

    def gather(
        self, encoded: Sequence[tuple[str, Sequence[int]]], types: Sequence[Sequence[int]] | None = None
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_], NDArray[np.int64] | None]:
        """What `body.run` takes: rows of the tables of several languages in one batch, padded to the longest.

        Args:
            encoded: language and token ids, special ones included, of each text.
            types: segment of each token; all in the first one if absent. Ignored where the family has no segments.

        Returns:
            embedded_BTD, visible_BT, and types_BT where the family has segments.
        """
        lengths_B = np.array([len(ids) for _, ids in encoded])
        visible_BT = np.arange(lengths_B.max()) < lengths_B[:, None]
        embedded_BTD = np.zeros((*visible_BT.shape, self.shape.width), np.float32)
        for row, (language, ids) in enumerate(encoded):
            embedded_BTD[row, : len(ids)] = self.languages[language].table.rows(np.asarray(ids))
        if not self.body.has_segments:
            return embedded_BTD, visible_BT, None
        types_BT = np.zeros(visible_BT.shape, np.int64)
        for row, given in enumerate(types or ()):
            types_BT[row, : len(given)] = given
        return embedded_BTD, visible_BT, types_BT

    def require_golden(self, languages: Iterable[str] | None = None) -> None:
        """Answer the golden rows of languages, of all of them if absent, one batch a language.

        Raises:
            ServingError: an answer is not the one in the bundle; the message says by how much, in every language.
        """
        found = {name: self._golden_difference(name) for name in (self.languages if languages is None else languages)}
        if wrong := {name: each for name, each in found.items() if not each <= self.tolerance}:
            shown = ", ".join(f"{name} {each:.2g}" for name, each in wrong.items())
            raise ServingError(
                f"{self.name!r} in {self.precision} does not give its golden answers: the largest difference may be "
                f"{self.tolerance:.2g}, and is {shown}. ONNX Runtime computes something else on this machine than on "
                "the one that wrote the bundle: serve it in fp32, or export it again."
            )

    def _golden_difference(self, language: str) -> float:
        golden = self.languages[language].golden
        given = self.gather([(language, ids) for ids in golden.rows], golden.types)
        return golden.difference(self.body.run(*given))


def _require_precision(bundle: Artifact, precision: Precision) -> None:
    details: dict[str, Any] = bundle.manifest.details
    if "precisions" not in details:
        raise ServingError(
            f"{bundle.folder} was exported by lingraft {bundle.manifest.library_version}, whose body takes a whole "
            "table. Export it again with this one."
        )
    if precision not in details["precisions"]:
        raise ServingError(
            f"{bundle.folder} has no body in {precision}, only in {details['precisions']}. Export it again with "
            f"--precision {precision}."
        )


def open_language(bundle: Artifact, name: str, shared: Shared) -> Language:
    """Open a language of a bundle, or of a part of one, whose files were verified.

    Args:
        bundle: has the language's files.
        name: the language's.
        shared: what is open already; what is new is added to it.

    Raises:
        ArtifactError: the table is none.
        TokenizerError: the tokenizer is not the one that the table belongs to.
    """
    # The file's hash is what was verified; a manifest might claim the tensors' fingerprint of a table that is open.
    details, mark = bundle.manifest.details, bundle.manifest.files[f"{table_part(name)}.safetensors"]
    tokenizer = _open_tokenizer(bundle, name, shared)
    if mark not in shared.tables:
        shared.tables[mark] = Table.open(_file(bundle, table_part(name)))
    table = shared.tables[mark]
    if len(tokenizer) != len(table):
        raise TokenizerError(
            f"{bundle.folder / name} has {len(table)} rows, but its tokenizer has {len(tokenizer)} pieces. "
            "Export the bundle again."
        )
    bias_V = load_file(_file(bundle, bias_part(name)))[BIAS] if details["kind"] == PRIMARY else None
    return Language(tokenizer, table, bias_V, Golden.open(_file(bundle, golden_part(name))), mark)


def _open_tokenizer(bundle: Artifact, name: str, shared: Shared) -> Tokenizer:
    described = bundle.manifest.details["tokenizers"][name]
    file, special = f"{name}/{described['file']}", SpecialIds(**described["special_ids"])
    key = name, bundle.manifest.files[file], special
    if key not in shared.tokenizers:
        shared.tokenizers[key] = Tokenizer.from_file(bundle.folder / file, name, special)
    return shared.tokenizers[key]


def _file(bundle: Artifact, part: str) -> Path:
    return bundle.folder / f"{part}.safetensors"
