"""What export and serving agree on: number formats, and the names of inputs, outputs, files and parts of a bundle."""

from typing import Literal, get_args

from lingraft.task_config import PRIMARY, TaskKindName

Precision = Literal["fp32", "fp16", "int8"]
"""Of a body. fp32 is in every bundle; fp16 is for GPUs, int8 for CPUs."""
TableFormat = Literal["float32", "float16", "int8"]
"""Of a language's rows; int8 has a scale for each row."""
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
TABLE_FORMATS: tuple[TableFormat, ...] = get_args(TableFormat)

BundleKind = Literal[TaskKindName, "primary"]

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


def table_part(language: str) -> str:
    """Name of the artifact's part that holds a language's table."""
    return f"{language}/table"


def bias_part(language: str) -> str:
    """Name of the part that holds a language's output bias, in the bundle of a primary."""
    return f"{language}/bias"


def golden_part(language: str) -> str:
    """Name of the part that holds a language's golden answers."""
    return f"{language}/golden"
