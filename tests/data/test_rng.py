import pytest
import torch

from lingraft.data.rng import RANDOM_BITS, counter_random, derive_seed

CPU = torch.device("cpu")
MASK = (1 << 64) - 1


def splitmix64(seed: int, index: int) -> int:
    """Number `index` of the sequence that begins after a seed, as published (Steele, Lea and Flood 2014)."""
    mixed = (seed + index * 0x9E3779B97F4A7C15) & MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & MASK
    return mixed ^ (mixed >> 31)


@pytest.mark.parametrize("seed", [0, 1, 1234567, (1 << 63) - 1])
def test_numbers_are_those_of_splitmix64(seed: int) -> None:
    found = counter_random(seed, 0, 40, 5, CPU).flatten().tolist()
    assert found == [splitmix64(seed, index) >> (64 - RANDOM_BITS) for index in range(200)]


def test_seeds_follow_from_all_parts_and_fit_in_63_bits() -> None:
    found = {derive_seed(*parts) for parts in [("a",), ("b",), ("a", 1), ("a", 2), ("a1",), (("a", 1),)]}
    assert len(found) == 6
    assert all(0 <= seed < 1 << 63 for seed in found)
    assert derive_seed("masks", 5) == 4578578477286034768, "old checkpoints rely on it"
