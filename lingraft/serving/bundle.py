"""A bundle opened for answering: one body, and each language's table and tokenizer.

Legend: B batch, T tokens, D width, V vocabulary, E width of a vector.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import PositiveFloat
from safetensors.numpy import load_file

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.bundle.format import (
    BIAS,
    BundleKind,
    Examples,
    OutputSizes,
    Precision,
    bias_part,
    body_file,
    body_fingerprint,
    bundle_examples,
    bundle_languages,
    bundle_retrieval,
    bundle_tokenizers,
    self_test_part,
    table_part,
)
from lingraft.bundle.language_part import language_fingerprint
from lingraft.bundle.runtime import CUDA, Body, default_provider
from lingraft.bundle.self_test import SelfTest, max_abs_difference
from lingraft.bundle.tables import BorrowingTable, EmbeddingTable
from lingraft.config.encoder import EncoderShape
from lingraft.config.tasks import PRIMARY, Retrieval, Task
from lingraft.data.tokenizer.pieces import SpecialIds
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.errors import ArtifactError, ServingError, TokenizerError


@dataclass(frozen=True)
class ServedLanguage:
    """One language of a bundle: tokenizer, token table, and what belongs to them."""

    tokenizer: Tokenizer
    table: EmbeddingTable | BorrowingTable
    bias_V: NDArray[np.float32] | None
    """Output bias of all pieces, borrowed ones included, in the bundle of a primary."""
    self_test: SelfTest
    table_hash: str
    """SHA-256 of the table's verified file; languages of different tasks that have equal tables have equal hashes."""
    fingerprint: str
    """Fingerprint of the language's part of the bundle, which covers all that decides an answer in this language."""

    @property
    def own_table(self) -> EmbeddingTable:
        """Table without borrowed rows."""
        return self.table.own if isinstance(self.table, BorrowingTable) else self.table

    @cached_property
    def surfaces(self) -> list[tuple[str, bool]]:
        """Text of each piece, and whether it begins a word; a piece such as a byte is shown as it is stored."""
        pairs = zip(self.tokenizer.surfaces(), self.tokenizer.pieces(), strict=True)
        return [(piece, False) if found is None else (found.text, bool(found.initial)) for found, piece in pairs]


class OpenedFiles(NamedTuple):
    """Tables and tokenizers that this process has open; bundles share them, and add those that they open."""

    tables: dict[str, EmbeddingTable]
    """Tables by the hash of their file."""
    tokenizers: dict[tuple[str, str, SpecialIds], Tokenizer]
    """Tokenizers by language, hash of the file, and special ids."""

    @classmethod
    def from_languages(cls, languages: Iterable[ServedLanguage] = ()) -> Self:
        """Collect the tables and tokenizers of languages."""
        opened = list(languages)
        tokenizers = [each.tokenizer for each in opened]
        return cls(
            {each.table_hash: each.own_table for each in opened},
            {(each.language, each.hash, each.special): each for each in tokenizers},
        )


@dataclass(frozen=True)
class Bundle:
    """One task, or a primary itself, in many languages."""

    folder: Path
    name: str
    """Name of the task, or 'primary'."""
    kind: BundleKind
    labels: list[str]
    """Labels of classification and tagging; else empty."""
    label_names: dict[str, str]
    """Display names of labels, for those that the task's recipe names."""
    shape: EncoderShape
    fingerprint: str
    body_fingerprint: str
    precision: Precision
    tolerance: float
    """Largest difference from the self-test's expected outputs that is allowed in this precision."""
    source_language: str
    """Language in which the body was trained."""
    examples: Examples
    languages: dict[str, ServedLanguage]
    source: ServedLanguage
    """The source language as the bundle has it, whatever was loaded since: others borrow its rows."""
    body: Body
    sizes: OutputSizes
    retrieval: Retrieval | None
    """Prefixes of a retrieval task; None for other kinds."""

    @classmethod
    def load(
        cls,
        folder: Path,
        precision: Precision | None = None,
        provider: str | None = None,
        shared: OpenedFiles | None = None,
    ) -> Self:
        """Open a bundle, and check the hashes of all its files; what it opens is added to `shared`.

        By default, the body is in fp16 on a GPU if the bundle has it, else in fp32.
        """
        artifact = Artifact.load(folder, Kind.BUNDLE)
        manifest, provider = artifact.manifest, provider or default_provider()
        precisions: list[str] = manifest.detail("precisions", list[str])
        precision = precision or ("fp16" if provider == CUDA and "fp16" in precisions else "fp32")
        if precision not in precisions:
            raise ServingError(f"{folder} has bodies in {precisions}. Export it again with --precision {precision}.")
        shared = shared or OpenedFiles.from_languages()
        source_language = str(manifest.language)
        source = open_language(artifact, source_language, shared)
        settings: Task | None = manifest.detail("settings", Task | None)
        opened = cls(
            folder=folder,
            name=manifest.detail("task", str),
            kind=manifest.detail("kind", BundleKind),
            labels=manifest.detail("labels", list[str]),
            label_names=settings.label_names if settings else {},
            shape=manifest.detail("shape", EncoderShape),
            fingerprint=artifact.fingerprint,
            body_fingerprint=body_fingerprint(manifest, precision),
            precision=precision,
            tolerance=manifest.detail("golden", dict[str, PositiveFloat]).get(precision, 0.0),
            source_language=source_language,
            examples=bundle_examples(manifest),
            languages={
                name: source if name == source_language else open_language(artifact, name, shared, source)
                for name in bundle_languages(manifest)
            },
            source=source,
            body=Body.open(_verified_file(artifact, body_file(precision)), provider),
            sizes=OutputSizes.of(manifest),
            retrieval=bundle_retrieval(manifest),
        )
        opened._require_consistent(folder)
        return opened

    def gather(
        self, encoded: Sequence[tuple[str, Sequence[int]]], types: Sequence[Sequence[int]] | None = None
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_], NDArray[np.int64] | None]:
        """Gather the inputs of `body.run` from the tables of several languages, padded to the longest text.

        `encoded` has the language and token ids of each text, `types` its segments: all are in the first if None.
        """
        lengths_B = np.array([len(ids) for _, ids in encoded])
        visible_BT = np.arange(lengths_B.max()) < lengths_B[:, None]
        embedded_BTD = np.zeros((*visible_BT.shape, self.shape.width), np.float32)
        for row, (language, ids) in enumerate(encoded):
            embedded_BTD[row, : len(ids)] = self.languages[language].table.rows(np.asarray(ids))
        if not self.body.has_segments:
            return embedded_BTD, visible_BT, None
        types_BT = np.zeros(visible_BT.shape, np.int64)
        for row, segments in enumerate(types or ()):
            types_BT[row, : len(segments)] = segments
        return embedded_BTD, visible_BT, types_BT

    def run_self_test(self) -> None:
        """Run the self-test of every language, and compare the outputs with those in the bundle."""
        differences = {tag: self._self_test_difference(tag) for tag in self.languages}
        if wrong := {tag: each for tag, each in differences.items() if not each <= self.tolerance}:
            shown = ", ".join(f"{tag} {each:.2g}" for tag, each in wrong.items())
            raise ServingError(
                f"{self.name!r} in {self.precision} does not give its golden answers: the largest difference may be "
                f"{self.tolerance:.2g}, and is {shown}. ONNX Runtime computes something else on this machine than on "
                "the one that wrote the bundle: serve it in fp32, or export it again."
            )

    def _self_test_difference(self, language: str) -> float:
        test = self.languages[language].self_test
        inputs = self.gather([(language, ids) for ids in test.rows], test.types)
        return max_abs_difference(test.expected, self.body.run(*inputs), test.visible_BT)

    def _require_consistent(self, folder: Path) -> None:
        """Refuse a manifest whose shape or labels do not fit the tables and self-tests."""
        for tag, language in self.languages.items():
            classes = {logits.shape[-1] for logits in language.self_test.expected.values()}
            if language.table.width != self.shape.width or (self.labels and classes != {len(self.labels)}):
                raise ArtifactError(
                    f"the manifest of {folder} speaks of width {self.shape.width} and {len(self.labels)} labels, but "
                    f"the table of {tag!r} has width {language.table.width}, and its golden answers are of "
                    f"{sorted(classes)} classes. Export the bundle again, or fetch it anew."
                )


def open_language(
    bundle: Artifact, name: str, shared: OpenedFiles, source: ServedLanguage | None = None
) -> ServedLanguage:
    """Open a language of a bundle, whose files have been verified; others may borrow rows of the source language."""
    # The key is the verified hash of the file: a forged manifest might claim the fingerprint of a table that is open.
    table_hash = bundle.manifest.hash_of(f"{table_part(name)}.safetensors")
    tokenizer = _open_tokenizer(bundle, name, shared)
    if table_hash not in shared.tables:
        shared.tables[table_hash] = EmbeddingTable.open(_tensor_file(bundle, table_part(name)))
    table: EmbeddingTable | BorrowingTable = shared.tables[table_hash]
    is_primary = bundle.manifest.detail("kind", BundleKind) == PRIMARY
    bias_V = load_file(_tensor_file(bundle, bias_part(name)))[BIAS] if is_primary else None
    if source and tokenizer.lender:
        tokenizer.require_lender(source.tokenizer)
        table = BorrowingTable(shared.tables[table_hash], source.own_table, tokenizer.borrowed_B)
        if bias_V is not None and source.bias_V is not None:
            bias_V = np.concatenate([bias_V, source.bias_V[tokenizer.borrowed_B]])
    if len(tokenizer) != len(table):
        raise TokenizerError(
            f"{bundle.folder / name} has {len(table)} rows, but its tokenizer has {len(tokenizer)} pieces. "
            "Export the bundle again."
        )
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
    """Return the path of a file that the manifest lists, whose hash was therefore checked."""
    bundle.manifest.hash_of(name)
    return bundle.folder / name
