"""Accelerators: the peak of each, the share of it that training reaches, and its price."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from lingraft.artifacts.manifest import read_manifest
from lingraft.model.flops import V100_FLOPS_PER_S, CostError

ASSUMED_UTILISATION = 0.26
"""Share of the peak that training is taken to reach: measure yours where it matters.

It is the share that the base shape reaches in bf16 on a CPU with matrix units, blocks of 512 tokens
(docs/benchmarks/training-speed.md). An H200 reached 19 to 21% with 32 blocks at a time, 34% with 128
(docs/benchmarks/gpu.md).
"""
_TERA = 1e12
_FORM = "NAME[:PEAK_TFLOPS[:UTILISATION[:PRICE_PER_HOUR]]]"

PEAKS_TFLOPS = {
    "V100": 125.0,  # NVIDIA V100 data sheet, SXM2, tensor performance in fp16
    "T4": 65.0,  # NVIDIA T4 data sheet, mixed precision (fp16 with fp32 sums)
    "A100": 312.0,  # NVIDIA A100 data sheet, bf16 tensor core, dense
    "L4": 121.0,  # NVIDIA L4 data sheet: 242 with sparsity, which is twice the dense peak
    "H100": 989.4,  # NVIDIA H100 architecture white paper, SXM5, bf16 tensor core, dense
    "H200": 989.4,  # NVIDIA H200 data sheet: 1,979 with sparsity; the H100's chip with more memory
}
"""Public dense peaks in bf16, or fp16 where there is no bf16."""


@dataclass(frozen=True, kw_only=True)
class Accelerator:
    """One device that trains one model at a time."""

    name: str
    peak_tflops: float
    """Dense peak in the number format of training, in TFLOP/s."""
    utilisation: float
    """Share of the peak that training reaches, counted by the formulas of `cost`."""
    origin: str = "given"
    """Origin of the utilisation."""
    price_per_hour: float | None = None
    """Price in a currency of your choice; unknown if absent."""

    def __post_init__(self) -> None:
        if not 0 < self.peak_tflops < float("inf"):
            raise CostError(f"{self.name}: peak {self.peak_tflops} must be a positive number of TFLOP/s.")
        if not 0 < self.utilisation <= 1:
            raise CostError(
                f"{self.name}: utilisation {self.utilisation:.4g} must be above 0 and at most 1: a share of the peak "
                f"of {self.peak_tflops:g} TFLOP/s, such as {ASSUMED_UTILISATION}."
            )
        if self.price_per_hour is not None and not 0 <= self.price_per_hour < float("inf"):
            raise CostError(f"{self.name}: price {self.price_per_hour} an hour must be 0 or more.")

    @property
    def effective_tflops(self) -> float:
        """TFLOP/s that training gets."""
        return self.peak_tflops * self.utilisation

    def hours(self, flops: float) -> float:
        """Return the time that so many FLOPs take."""
        return flops / (self.effective_tflops * _TERA) / 3600

    def money(self, hours: float) -> float | None:
        """Return the price of so many hours; None where the price is unknown."""
        return None if self.price_per_hour is None else hours * self.price_per_hour

    @classmethod
    def parse(cls, text: str, utilisation: float | None = None, price_per_hour: float | None = None) -> Self:
        """Read `NAME[:PEAK_TFLOPS[:UTILISATION[:PRICE_PER_HOUR]]]`; an empty part counts as absent.

        Without a utilisation from anywhere, a V100 of the peak that we know has the paper's (30 TFLOP/s), and others an
        assumed one.

        Args:
            text: a name we know, or any name with its peak.
            utilisation: share of peak of an accelerator that does not state its own.
            price_per_hour: price of an accelerator that does not state its own.

        Raises:
            CostError: an unknown name without a peak, a part that is no number, or a value that cannot be.
        """
        name, *parts = (part.strip() for part in text.split(":"))
        if not name or len(parts) > 3:
            raise CostError(
                f"accelerator {text!r} must be {_FORM}, such as H100:989.4:0.26 or {next(iter(PEAKS_TFLOPS))}."
            )
        peak, share, price = (_number(part, text) for part in [*parts, "", "", ""][:3])
        known = name.upper() if name.upper() in PEAKS_TFLOPS else name
        share, origin = _utilisation(known, peak, share if share is not None else utilisation)
        return cls(
            name=known,
            peak_tflops=_peak(known) if peak is None else peak,
            utilisation=share,
            origin=origin,
            price_per_hour=price_per_hour if price is None else price,
        )

    def with_measured_utilisation(self, trained: Path) -> Self:
        """Return the accelerator at the rate at which an artifact was trained on it.

        Args:
            trained: artifact of a training stage, made on one such accelerator.

        Raises:
            ArtifactError: there is no artifact.
            CostError: its manifest records no training, or more than the accelerator's peak.
        """
        manifest = read_manifest(trained)
        cost = manifest.cost
        if not (cost.flops > 0 and cost.elapsed_s > 0):
            raise CostError(
                f"{trained} ({manifest.kind}) records no training, so it measures no utilisation. Give a primary, "
                "a task or embeddings that were trained on this accelerator."
            )
        device = manifest.record.get("device", "an unknown device")
        measured = cost.flops / cost.elapsed_s / (self.peak_tflops * _TERA)
        return replace(self, utilisation=measured, origin=f"measured on {device}")


def _number(part: str, text: str) -> float | None:
    try:
        return float(part) if part else None
    except ValueError as error:
        raise CostError(f"accelerator {text!r}: {part!r} is not a number. It must be {_FORM}.") from error


def _peak(name: str) -> float:
    if name not in PEAKS_TFLOPS:
        raise CostError(
            f"accelerator {name!r} is not one whose peak we know: {', '.join(PEAKS_TFLOPS)}. Give its dense peak in "
            f"TFLOP/s too: {name}:PEAK_TFLOPS."
        )
    return PEAKS_TFLOPS[name]


def _utilisation(name: str, peak_tflops: float | None, given: float | None) -> tuple[float, str]:
    if given is not None:
        return given, "given"
    if name == "V100" and peak_tflops in (None, PEAKS_TFLOPS[name]):
        return V100_FLOPS_PER_S / _TERA / PEAKS_TFLOPS[name], "the paper's"
    return ASSUMED_UTILISATION, "assumed, not measured"
