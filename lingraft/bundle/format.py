"""The format of a bundle: number formats, and the names of inputs, outputs, files and parts.

Export writes bundles in this format, and serving reads them.
"""

import hashlib
from typing import Literal, NamedTuple, get_args

import pydantic

from lingraft.artifacts.manifest import Manifest
from lingraft.config.encoder import EncoderShape
from lingraft.config.tasks import PRIMARY, Retrieval, Task, TaskKindName
from lingraft.data.tokenizer.pieces import SpecialIds
from lingraft.errors import ArtifactError

Precision = Literal["fp32", "fp16", "int8"]
"""Precision of a body. Every bundle has fp32; fp16 is for GPUs, int8 for CPUs."""
TableFormat = Literal["float32", "float16", "int8"]
"""Number format of a language's token table; int8 has a scale for each row."""
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
TABLE_FORMATS: tuple[TableFormat, ...] = get_args(TableFormat)

BundleKind = Literal[TaskKindName, "primary"]
Examples = dict[str, dict[str, str]]
"""Texts to try the endpoint with: language to name of the task's input to text."""

EMBEDDED = "embedded_BTD"
VISIBLE = "visible_BT"
TYPES = "types_BT"
HIDDEN = "hidden_BTD"
FEATURES = "features_BTD"
_CLASSES: tuple[str, ...] = ("logits_BC",)
VECTORS = "vectors_BE"
OUTPUTS: dict[BundleKind, tuple[str, ...]] = {
    "documents": _CLASSES,
    "texts": _CLASSES,
    "pairs": _CLASSES,
    "questions": ("logits_BT2",),
    "tags": ("logits_BTC",),
    "retrieval": (VECTORS,),
    PRIMARY: (HIDDEN, FEATURES),
}
"""Names of a body's outputs, in order, by kind of bundle."""
ROW_OUTPUTS = frozenset((*_CLASSES, VECTORS))
"""Outputs with one value for each text; all others have one for each token."""

TOKENS = "tokens_BT"
TABLE = "table_VD"
SCALE = "scale_V"
BIAS = "bias_V"


class OutputSizes(NamedTuple):
    """Sizes of a bundle's answers."""

    labels: int
    width: int
    """Width of a vector."""

    @classmethod
    def of(cls, manifest: Manifest) -> "OutputSizes":
        """Read them from a bundle's manifest."""
        labels: list[str] = manifest.detail("labels", list[str])
        shape: EncoderShape = manifest.detail("shape", EncoderShape)
        retrieval = bundle_retrieval(manifest)
        width = retrieval.vector_width(shape.width) if retrieval else shape.width
        return cls(len(labels), width)


def bundle_retrieval(manifest: Manifest) -> Retrieval | None:
    """Return pooling, layers and prefixes of a bundle of kind 'retrieval'; None for other kinds."""
    settings: Task | None = manifest.detail("settings", Task | None)
    return (settings.retrieval or Retrieval()) if settings and settings.kind == "retrieval" else None


def body_part(precision: Precision) -> str:
    """Return the name of the artifact's part that holds a body's weights; the graph is a file beside it."""
    return "body" if precision == "fp32" else f"body-{precision}"


def body_file(precision: Precision) -> str:
    """Return the name of the file that holds a body's graph."""
    return f"{body_part(precision)}.onnx"


def body_fingerprint(manifest: Manifest, precision: Precision) -> str:
    """Return the fingerprint of a bundle's body, which covers its weights and its graph."""
    weights = manifest.fingerprint_of(body_part(precision))
    graph = manifest.hash_of(body_file(precision))
    return hashlib.sha256(f"{weights}{graph}".encode()).hexdigest()


def bundle_examples(manifest: Manifest) -> Examples:
    """Return a bundle's examples for people who try the endpoint; empty if it has none."""
    examples: Examples = manifest.detail("examples", Examples) if "examples" in manifest.details else {}
    return examples


def table_part(language: str) -> str:
    """Return the name of the artifact's part that holds a language's token table."""
    return f"{language}/table"


def bias_part(language: str) -> str:
    """Return the name of the part that holds a language's output bias; only bundles of a primary have it."""
    return f"{language}/bias"


def self_test_part(language: str) -> str:
    """Return the name of the part that holds a language's self-test: inputs and expected outputs."""
    return f"{language}/golden"


class TokenizerFile(pydantic.BaseModel, frozen=True, extra="forbid"):
    """A language's tokenizer in a bundle, or in a part of one."""

    file: str = pydantic.Field(description="Name within the language's folder.")
    special_ids: SpecialIds


def bundle_tokenizers(manifest: Manifest) -> dict[str, TokenizerFile]:
    """Return the tokenizers of a bundle, or of a language's part of one, by language."""
    tokenizers: dict[str, TokenizerFile] = manifest.detail("tokenizers", dict[str, TokenizerFile])
    return tokenizers


def bundle_languages(manifest: Manifest) -> list[str]:
    """Return the languages of a bundle, the source language first."""
    languages: list[str] = manifest.detail("languages", list[str])
    tokenizers = bundle_tokenizers(manifest)
    if not languages or sorted(languages) != sorted(tokenizers):
        raise ArtifactError(
            f"the bundle's languages are {languages}, and its tokenizers are of {sorted(tokenizers)}: its manifest is "
            "damaged. Export the bundle again, or fetch it anew."
        )
    return languages
