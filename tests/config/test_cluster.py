"""Profiles: what is impossible is refused with the recipe."""

from typing import Any

import pytest

from lingraft.config.cluster import Cluster, Profile, parse_quantity


@pytest.mark.parametrize(
    ("quantity", "worth"), [("2", 2), ("500m", 0.5), ("16Gi", 16 * 2**30), ("1.5Ti", 1.5 * 2**40), ("3G", 3e9)]
)
def test_quantities_are_worth_what_kubernetes_says(quantity: str, worth: float) -> None:
    assert parse_quantity(quantity) == worth


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"cpu": "two"}, "'two' must be a Kubernetes quantity, such as '2'"),
        ({"memory": "4GB"}, "'4GB' must be a Kubernetes quantity"),
        ({"shared_memory": "0"}, "'0' must be more than nothing"),
        ({"accelerator_count": 4}, "4 accelerators need the name of one"),
        ({"shared_memory": "4Gi"}, "shared_memory 4Gi counts as memory, of which there are 4Gi"),
        ({"accelerator": "nvidia.com/gpu", "accelerator_count": 2}, "2 processes need shared_memory"),
    ],
)
def test_an_impossible_profile_is_refused(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Profile.model_validate(values)


def test_steps_that_read_text_have_a_profile_of_their_own_or_the_light_one() -> None:
    assert Cluster(light=Profile(cpu="1")).data_profile.cpu == "1"
    assert Cluster(data=Profile(cpu="9")).data_profile.cpu == "9"


def test_a_stage_without_a_profile_has_that_of_training() -> None:
    cluster = Cluster(training=Profile(cpu="8"), stages={"adaptation": Profile(cpu="4")})
    assert (cluster.profile_of("pretraining").cpu, cluster.profile_of("adaptation").cpu) == ("8", "4")
    assert cluster.results_place == "/data/results"
