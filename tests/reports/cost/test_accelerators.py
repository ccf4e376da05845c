"""Accelerators: what is given, what is assumed, what is measured, and what is refused."""

from pathlib import Path

import pytest

from lingraft.artifacts import artifact
from lingraft.artifacts.manifest import Cost, Kind
from lingraft.model.flops import V100_DAY_FLOPS, CostError
from lingraft.reports.cost.accelerators import PEAKS_TFLOPS, Accelerator


def test_a_v100_runs_at_the_papers_rate_and_others_at_an_assumed_one() -> None:
    found = Accelerator.parse("V100")
    assert found.effective_tflops == pytest.approx(30)
    assert found.origin == "the paper's"
    assert found.hours(V100_DAY_FLOPS) == pytest.approx(24)
    assert found.money(10) is None
    for name, peak in (("V100:112", 112), ("h100", PEAKS_TFLOPS["H100"])):
        other = Accelerator.parse(name)
        assert (other.peak_tflops, other.utilisation, other.origin) == (peak, 0.26, "assumed, not measured")


@pytest.mark.parametrize(
    ("text", "peak", "share", "price", "origin"),
    [
        ("A100::0.3", 312, 0.3, 7, "given"),  # what is left empty is what is given for all
        ("V100", 125, 0.9, 7, "given"),
        ("V100:112", 112, 0.9, 7, "given"),
    ],
)
def test_a_part_of_its_own_goes_before_what_is_given_for_all(
    text: str, peak: float, share: float, price: float, origin: str
) -> None:
    found = Accelerator.parse(text, utilisation=0.9, price_per_hour=7)
    assert (found.peak_tflops, found.utilisation, found.price_per_hour, found.origin) == (peak, share, price, origin)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("B9", ["'B9'", "V100, T4", "B9:PEAK_TFLOPS"]),
        ("X:fast", ["'fast'", "not a number"]),
        ("X:1:0.4:2:5", ["X:1:0.4:2:5", "NAME"]),
        (":1", ["':1'", "NAME"]),
        ("X:inf", ["peak inf", "positive"]),
        ("X:10:1.01", ["utilisation 1.01", "at most 1"]),
        ("X:10:nan", ["utilisation nan"]),
        ("X:10:1:-1", ["price -1", "0 or more"]),
    ],
)
def test_what_cannot_be_is_refused_with_advice(text: str, words: list[str]) -> None:
    with pytest.raises(CostError) as refused:
        Accelerator.parse(text)
    for word in words:
        assert word in str(refused.value)


def trained(out: Path, **cost: float) -> Path:
    with artifact.create(out, Kind.PRIMARY) as draft:
        draft.facts = {"cost": Cost(**cost), "record": {"device": "cuda"}}
    return out


def test_an_artifact_measures_its_accelerator(tmp_path: Path) -> None:
    primary = trained(tmp_path / "primary", flops=36e15, elapsed_s=3600)
    found = Accelerator.parse("mine:40", price_per_hour=3).with_measured_utilisation(primary)
    assert found.utilisation == pytest.approx(0.25)
    assert found.effective_tflops == pytest.approx(10)
    assert (found.peak_tflops, found.price_per_hour) == (40, 3)
    assert found.origin == "measured on cuda"


@pytest.mark.parametrize(
    ("cost", "message"),
    [({}, "records no training"), ({"flops": 10e12, "elapsed_s": 1}, r"utilisation 2 .*peak of 5 TFLOP")],
)
def test_what_was_not_trained_on_it_measures_nothing(tmp_path: Path, cost: dict[str, float], message: str) -> None:
    with pytest.raises(CostError, match=message):
        Accelerator.parse("mine:5").with_measured_utilisation(trained(tmp_path / "primary", **cost))
