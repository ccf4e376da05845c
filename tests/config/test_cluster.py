"""Profiles: what is impossible is refused with the recipe, and what KFP cannot do is launched."""

from typing import Any

import pytest

from lingraft.config.cluster import Cluster, Profile, parse_quantity

GPU = {"accelerator": "nvidia.com/gpu", "shared_memory": "1Gi"}


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
        ({"ephemeral_storage": "0"}, "'0' must be more than nothing"),
        ({"accelerator_count": 4}, "4 accelerators need the name of one"),
        ({"shared_memory": "4Gi"}, "shared_memory 4Gi counts as memory, of which there are 4Gi"),
        ({"accelerator": "nvidia.com/gpu", "accelerator_count": 2}, "2 processes need shared_memory"),
        ({**GPU, "launch": False, "spot": True}, r"\['spot'\] are only for what is launched, and launch is false"),
        ({**GPU, "nodes": 2, "priority_class": "high"}, "priority class of several nodes is their runtime's"),
    ],
)
def test_an_impossible_profile_is_refused(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Profile.model_validate(values)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ({}, None),
        (GPU | {"accelerator_count": 8}, "Job"),
        (GPU | {"launch": False}, None),
        ({"launch": True}, "Job"),
        ({"spot": True}, "Job"),
        ({"ephemeral_storage": "10Gi"}, "Job"),
        ({"time_limit_s": 60}, "Job"),
        (GPU | {"nodes": 2, "spot": True}, "TrainJob"),
    ],
)
def test_what_kfp_cannot_do_is_launched(values: dict[str, Any], kind: str | None) -> None:
    assert Profile.model_validate(values).launched == kind


def test_steps_of_kfp_itself_cannot_be_launched() -> None:
    for name, profile in (("light", Profile(spot=True)), ("data", Profile(launch=True)), ("launcher", Profile(**GPU))):
        with pytest.raises(ValueError, match=f"'{name}' is for steps of KFP itself, but would be launched as a Job"):
            Cluster.model_validate({name: profile})


def test_steps_that_read_text_have_a_profile_of_their_own_or_the_light_one() -> None:
    assert Cluster(light=Profile(cpu="1")).data_profile.cpu == "1"
    assert Cluster(data=Profile(cpu="9")).data_profile.cpu == "9"


def test_a_stage_without_a_profile_has_that_of_training() -> None:
    cluster = Cluster(training=Profile(cpu="8"), stages={"adaptation": Profile(cpu="4")})
    assert (cluster.profile_of("pretraining").cpu, cluster.profile_of("adaptation").cpu) == ("8", "4")
    assert cluster.results_place == "/data/results"
