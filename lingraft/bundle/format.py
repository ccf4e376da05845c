"""What export and serving agree on: number formats, and the names of inputs, outputs, files and parts of a bundle."""

import hashlib
from typing import Literal, get_args

import pydantic

from lingraft.artifacts.artifact import Manifest
from lingraft.config.tasks import PRIMARY, TaskKindName
from lingraft.data.tokenizer.pieces import SpecialIds
from lingraft.errors import ArtifactError

Precision = Literal["fp32", "fp16", "int8"]
"""Of a body. fp32 is in every bundle; fp16 is for GPUs, int8 for CPUs."""
TableFormat = Literal["float32", "float16", "int8"]
"""Of a language's rows; int8 has a scale for each row."""
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
TABLE_FORMATS: tuple[TableFormat, ...] = get_args(TableFormat)

BundleKind = Literal[TaskKindName, "primary"]
Examples = dict[str, dict[str, str]]
"""By language, texts to try the endpoint with, by the names of a task's inputs."""

EMBEDDED, VISIBLE, TYPES = "embedded_BTD", "visible_BT", "types_BT"
HIDDEN, FEATURES = "hidden_BTD", "features_BTD"
_CLASSES: tuple[str, ...] = ("logits_BC",)
OUTPUTS: dict[BundleKind, tuple[str, ...]] = {
    "documents": _CLASSES,
    "texts": _CLASSES,
    "pairs": _CLASSES,
    "questions": ("logits_BT2",),
    "tags": ("logits_BTC",),
    PRIMARY: (HIDDEN, FEATURES),
}
"""Outputs of a body, in order."""
ROW_OUTPUTS = frozenset(_CLASSES)
"""Outputs with one answer a row; all others have one a token."""

TOKENS, TABLE, SCALE, BIAS = "tokens_BT", "table_VD", "scale_V", "bias_V"


def body_part(precision: Precision) -> str:
    """Name of the artifact's part that holds a body's weights; its graph lies beside it."""
    return "body" if precision == "fp32" else f"body-{precision}"


def body_file(precision: Precision) -> str:
    """Name of a body's graph."""
    return f"{body_part(precision)}.onnx"


def body_fingerprint(manifest: Manifest, precision: Precision) -> str:
    """Fingerprint of a bundle's body: of its weights and its graph.

    Raises:
        ArtifactError: the manifest names no such body.
    """
    marks = manifest.fingerprint_of(body_part(precision)), manifest.hash_of(body_file(precision))
    return hashlib.sha256("".join(marks).encode()).hexdigest()


def bundle_examples(manifest: Manifest) -> Examples:
    """Examples of a bundle for people who try the endpoint; empty if it has none.

    Raises:
        ArtifactError: they are not what they should be.
    """
    found: Examples = manifest.detail("examples", Examples) if "examples" in manifest.details else {}
    return found


def table_part(language: str) -> str:
    """Name of the artifact's part that holds a language's table."""
    return f"{language}/table"


def bias_part(language: str) -> str:
    """Name of the part that holds a language's output bias, in the bundle of a primary."""
    return f"{language}/bias"


def self_test_part(language: str) -> str:
    """Name of the part that holds a language's golden answers."""
    return f"{language}/golden"


class TokenizerFile(pydantic.BaseModel, frozen=True, extra="forbid"):
    """A language's tokenizer in a bundle, or in a part of one."""

    file: str = pydantic.Field(description="Name within the language's folder.")
    special_ids: SpecialIds


def bundle_tokenizers(manifest: Manifest) -> dict[str, TokenizerFile]:
    """Tokenizers of a bundle, or of a part of one, by language.

    Raises:
        ArtifactError: one is missing, or not what it must be.
    """
    found: dict[str, TokenizerFile] = manifest.detail("tokenizers", dict[str, TokenizerFile])
    return found


def bundle_languages(manifest: Manifest) -> list[str]:
    """Languages of a bundle, the source language first.

    Raises:
        ArtifactError: there is none, or they are not those of the tokenizers.
    """
    languages: list[str] = manifest.detail("languages", list[str])
    tokenizers = bundle_tokenizers(manifest)
    if not languages or sorted(languages) != sorted(tokenizers):
        raise ArtifactError(
            f"the bundle's languages are {languages}, and its tokenizers are of {sorted(tokenizers)}: its manifest is "
            "damaged. Export the bundle again, or fetch it anew."
        )
    return languages
