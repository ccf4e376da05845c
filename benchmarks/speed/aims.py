"""Aims of the comparison."""

from benchmarks.speed.cells import Cell, Training

_RATIOS = {
    (Training.PRETRAINING, "fp32"): 1.5,
    (Training.PRETRAINING, "bf16"): 1.5,
    (Training.ADAPTATION, "fp32"): 1.8,
    (Training.ADAPTATION, "bf16"): 2.0,
    (Training.MINI, "fp32"): 4.0,
    (Training.MINI, "bf16"): 5.0,
}
"""Times as many tokens a second as Trainer's, at base shape of RoBERTa."""
_RATIOS_OF_MODERN = {Training.PRETRAINING: 1.5, Training.ADAPTATION: 1.8, Training.MINI: 4.0}
"""The aims of modern encoders, at every shape."""
_SHARES = {("cpu", "fp32"): 0.75, ("cpu", "bf16"): 0.5, ("cuda", "bf16"): 0.5}
"""Shares of the matrix-multiplication peak, at base shape, where tokens pass through all layers."""


def ratio_aim(cell: Cell) -> float | None:
    """Times as many tokens a second as Trainer's; away from RoBERTa's base shape, no less than fewer layers give."""
    if cell.shape.family == "modern":
        return _RATIOS_OF_MODERN.get(cell.training)
    return _RATIOS.get((cell.training, cell.format)) if cell.shape.is_base else cell.flop_ratio


def share_aim(cell: Cell, kind: str) -> float | None:
    """Share of the peak of a device of this kind, if one is aimed at."""
    whole = cell.shape.is_base and cell.training in (Training.PRETRAINING, Training.ADAPTATION)
    return _SHARES.get((kind, cell.format)) if whole else None
