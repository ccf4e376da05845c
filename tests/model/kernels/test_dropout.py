import pytest
import torch

from lingraft.model.kernels.cpu import apply_dropout_, keep_mask, keep_scale


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_the_share_that_is_dropped(share: float) -> None:
    generator = torch.Generator().manual_seed(1)
    keep = keep_mask(torch.empty(1000, 999), share, generator)
    deviation = (share * (1 - share) / keep.numel()) ** 0.5
    assert float((1 - keep).mean()) == pytest.approx(share, abs=4 * deviation)


def test_neighbours_and_rows_are_independent() -> None:
    keep = keep_mask(torch.empty(1000, 1000), 0.5, torch.Generator().manual_seed(1)) - 0.5
    for shifted in (keep.roll(1, 1), keep.roll(4, 1), keep.roll(1, 0)):
        assert abs(float((keep * shifted).mean())) < 4 * 0.25 / 1000


def test_the_mean_stays() -> None:
    ones = torch.ones(1000, 1000)
    assert float(
        apply_dropout_(ones, keep_mask(ones, 0.1, torch.Generator().manual_seed(1)), 0.1).mean()
    ) == pytest.approx(1, abs=2e-3)
    assert keep_scale(0.1) == pytest.approx(1 / 0.9, rel=1e-4)


@pytest.mark.parametrize("number_format", [torch.float32, torch.bfloat16])
def test_masks_are_ones_and_zeros_in_the_format_of_what_they_multiply(number_format: torch.dtype) -> None:
    keep = keep_mask(torch.empty(50, 51, dtype=number_format), 0.4)
    assert keep.dtype == number_format
    assert set(keep.unique().tolist()) == {0.0, 1.0}
