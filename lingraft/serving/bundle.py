"""A bundle opened for answering: one body, and each language's table and tokenizer.

Legend: B batch, T tokens, D width, V vocabulary.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import PositiveFloat
from safetensors.numpy import load_file

from lingraft.artifacts.artifact import Artifact, Kind
from lingraft.bundle.format import (
    BIAS,
    BundleKind,
    Examples,
    Precision,
    bias_part,
    body_file,
    body_fingerprint,
    bundle_examples,
    bundle_languages,
    bundle_tokenizers,
    self_test_part,
    table_part,
)
from lingraft.bundle.language_part import language_fingerprint
from lingraft.bundle.runtime import CUDA, Body, default_provider
from lingraft.bundle.self_test import SelfTest
from lingraft.bundle.tables import EmbeddingTable
from lingraft.config.encoder import EncoderShape
from lingraft.config.tasks import PRIMARY, Task
from lingraft.data.tokenizer.pieces import SpecialIds
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.errors import ArtifactError, ServingError, TokenizerError


@dataclass(frozen=True)
class ServedLanguage:
    """What makes the body understand one language."""

    tokenizer: Tokenizer
    table: EmbeddingTable
    bias_V: NDArray[np.float32] | None
    """Output bias, in the bundle of a primary."""
    self_test: SelfTest
    table_hash: str
    """SHA-256 of the table's verified file; languages of different tasks that have equal tables have equal hashes."""
    fingerprint: str
    """Fingerprint of the language's part of the bundle, which covers all that decides an answer in this language."""


class OpenedFiles(NamedTuple):
    """What is open in this process: bundles take it instead of opening the same again, and add what is new."""

    tables: dict[str, EmbeddingTable]
    """By fingerprint."""
    tokenizers: dict[tuple[str, str, SpecialIds], Tokenizer]
    """By language, hash of the file, and special ids."""

    @classmethod
    def from_languages(cls, languages: Iterable[ServedLanguage] = ()) -> Self:
        """What languages have opened."""
        known = list(languages)
        tokenizers = [each.tokenizer for each in known]
        return cls(
            {each.table_hash: each.table for each in known},
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
    examples: Examples
    """By language, texts to try the endpoint with, by the names of a task's inputs."""
    languages: dict[str, ServedLanguage]
    body: Body

    @classmethod
    def load(
        cls,
        folder: Path,
        precision: Precision | None = None,
        provider: str | None = None,
        shared: OpenedFiles | None = None,
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
        manifest, provider = found.manifest, provider or default_provider()
        has_half = "fp16" in manifest.detail("precisions", list[str])
        precision = precision or ("fp16" if provider == CUDA and has_half else "fp32")
        _require_precision(found, precision)
        shared = shared or OpenedFiles.from_languages()
        settings: Task | None = manifest.detail("settings", Task | None)
        opened = cls(
            name=manifest.detail("task", str),
            kind=manifest.detail("kind", BundleKind),
            labels=manifest.detail("labels", list[str]),
            label_names=settings.label_names if settings else {},
            metric=manifest.detail("metric", str),
            shape=manifest.detail("shape", EncoderShape),
            fingerprint=found.fingerprint,
            body_fingerprint=body_fingerprint(manifest, precision),
            precision=precision,
            tolerance=manifest.detail("golden", dict[str, PositiveFloat]).get(precision, 0.0),
            source_language=str(manifest.language),
            examples=bundle_examples(manifest),
            languages={name: open_language(found, name, shared) for name in bundle_languages(manifest)},
            body=Body.open(_verified_file(found, body_file(precision)), provider),
        )
        opened._require_consistent(folder)
        return opened

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

    def run_self_test(self, languages: Iterable[str] | None = None) -> None:
        """Answer the golden rows of languages, of all of them if absent, one batch a language.

        Raises:
            ServingError: an answer is not the one in the bundle; the message says by how much, in every language.
        """
        found = {
            name: self._self_test_difference(name) for name in (self.languages if languages is None else languages)
        }
        if wrong := {name: each for name, each in found.items() if not each <= self.tolerance}:
            shown = ", ".join(f"{name} {each:.2g}" for name, each in wrong.items())
            raise ServingError(
                f"{self.name!r} in {self.precision} does not give its golden answers: the largest difference may be "
                f"{self.tolerance:.2g}, and is {shown}. ONNX Runtime computes something else on this machine than on "
                "the one that wrote the bundle: serve it in fp32, or export it again."
            )

    def _require_consistent(self, folder: Path) -> None:
        """Refuse a manifest whose shape or labels are not those of tables and golden answers.

        Raises:
            ArtifactError: it says what differs.
        """
        for tag, language in self.languages.items():
            classes = {answer.shape[-1] for answer in language.self_test.expected.values()}
            if language.table.width != self.shape.width or (self.labels and classes != {len(self.labels)}):
                raise ArtifactError(
                    f"the manifest of {folder} speaks of width {self.shape.width} and {len(self.labels)} labels, but "
                    f"the table of {tag!r} has width {language.table.width}, and its golden answers are of "
                    f"{sorted(classes)} classes. Export the bundle again, or fetch it anew."
                )

    def _self_test_difference(self, language: str) -> float:
        test = self.languages[language].self_test
        inputs = self.gather([(language, ids) for ids in test.rows], test.types)
        return test.max_difference(self.body.run(*inputs))


def _require_precision(bundle: Artifact, precision: Precision) -> None:
    precisions: list[str] = bundle.manifest.detail("precisions", list[str])
    if precision not in precisions:
        raise ServingError(
            f"{bundle.folder} has no body in {precision}, only in {precisions}. Export it again with "
            f"--precision {precision}."
        )


def open_language(bundle: Artifact, name: str, shared: OpenedFiles) -> ServedLanguage:
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
    table_hash = bundle.manifest.hash_of(f"{table_part(name)}.safetensors")
    tokenizer = _open_tokenizer(bundle, name, shared)
    if table_hash not in shared.tables:
        shared.tables[table_hash] = EmbeddingTable.open(_tensor_file(bundle, table_part(name)))
    table = shared.tables[table_hash]
    if len(tokenizer) != len(table):
        raise TokenizerError(
            f"{bundle.folder / name} has {len(table)} rows, but its tokenizer has {len(tokenizer)} pieces. "
            "Export the bundle again."
        )
    primary = bundle.manifest.detail("kind", BundleKind) == PRIMARY
    bias_V = load_file(_tensor_file(bundle, bias_part(name)))[BIAS] if primary else None
    return ServedLanguage(
        tokenizer=tokenizer,
        table=table,
        bias_V=bias_V,
        self_test=SelfTest.open(_tensor_file(bundle, self_test_part(name))),
        table_hash=table_hash,
        fingerprint=language_fingerprint(bundle.manifest, name),
    )


def _open_tokenizer(bundle: Artifact, name: str, shared: OpenedFiles) -> Tokenizer:
    described = bundle_tokenizers(bundle.manifest)[name]
    file = f"{name}/{described.file}"
    special = described.special_ids
    key = name, bundle.manifest.hash_of(file), special
    if key not in shared.tokenizers:
        shared.tokenizers[key] = Tokenizer.from_file(bundle.folder / file, name, special)
    return shared.tokenizers[key]


def _tensor_file(bundle: Artifact, part: str) -> Path:
    return _verified_file(bundle, f"{part}.safetensors")


def _verified_file(bundle: Artifact, name: str) -> Path:
    """A file that the manifest names, and whose hash was therefore checked."""
    bundle.manifest.hash_of(name)
    return bundle.folder / name
