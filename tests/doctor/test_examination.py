"""Findings in a cluster, whatever keeps the doctor from looking, and what the command says of it."""

import os
import re
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from lingraft.cli import app
from tests.doctor.clinic import CLUSTER, Clinic
from tests.steps.launch.api_server import DROP

TINY = Path(__file__).parents[1] / "tiny.toml"
LOOKS = [
    ("GET", "namespaces", "namespace lingraft"),
    ("GET", "customresourcedefinitions", "kind workflows.argoproj.io"),
    ("GET", "clustertrainingruntimes", "training runtime lingraft-torch"),
    ("GET", "persistentvolumeclaims", "volume claim lingraft-data"),
    ("GET", "storageclasses", "volume claim lingraft-data"),
    ("GET", "nodes", "nodes"),
    ("GET", "priorityclasses", "priority class lingraft-training"),
    ("POST", "subjectaccessreviews", "lingraft-pipeline may launch steps"),
    ("GET", "secrets", "Secret lingraft-mlflow"),
    ("GET", "jobs", "volume claim lingraft-data can be written"),
    ("GET", "resourcequotas", "quotas and limits"),
    ("GET", "limitranges", "quotas and limits"),
    ("GET", "serviceaccounts", "service account lingraft-pipeline"),
]
"""Everything that the API server is asked for, and what the look is about."""


def test_a_cluster_that_has_everything_is_well(clinic: Clinic) -> None:
    found = clinic.findings()
    assert [each for each in found.values() if not each.is_good] == []
    assert "a node for profile 'launcher'" in found
    clinic.cluster = CLUSTER.model_copy(update={"stages": {}})
    assert "a node for profile 'launcher'" not in clinic.findings()  # nothing is launched


def test_everything_that_is_asked_for_is_refused_in_a_test_below(clinic: Clinic) -> None:
    clinic.server.objects["persistentvolumeclaims", "lingraft-data"]["status"]["phase"] = "Pending"
    clinic.findings()
    assert {*clinic.server.asked} == {(method, plural) for method, plural, _ in LOOKS}


def test_what_is_not_there_is_named_with_what_to_do(clinic: Clinic) -> None:
    absent = {
        ("customresourcedefinitions", "trainjobs.trainer.kubeflow.org"): "Install Kubeflow Trainer",
        ("customresourcedefinitions", "inferenceservices.serving.kserve.io"): "Install KServe",
        ("clustertrainingruntimes", "lingraft-torch"): "cluster.runtime of the recipe",
        ("persistentvolumeclaims", "lingraft-data"): "cluster.storage_claim of the recipe",
        ("priorityclasses", "lingraft-training"): "kubectl get priorityclasses",
        ("serviceaccounts", "lingraft-pipeline"): "Apply an overlay",
        ("secrets", "lingraft-mlflow"): "create secret generic lingraft-mlflow",
    }
    for plural, name in absent:
        clinic.server.remove(plural, name)
    found = {what.rpartition(" ")[2]: each for what, each in clinic.findings().items() if each.gap == "is not there"}
    assert {name: remedy in found[name].remedy for (_, name), remedy in absent.items()} == dict.fromkeys(found, True)


LATER = {"storageclasses", "limitranges", "namespaces"}
"""What is looked at only if an earlier look at the same has gone well, and what nothing is looked at without."""


@pytest.mark.parametrize("plurals", [{plural for _, plural, _ in LOOKS} - LATER, LATER], ids=["most", "the others"])
def test_a_look_that_is_refused_or_lost_is_a_gap_and_the_others_go_on(clinic: Clinic, plurals: set[str]) -> None:
    clinic.server.objects["persistentvolumeclaims", "lingraft-data"]["status"]["phase"] = "Pending"
    looks = [look for look in LOOKS if look[1] in plurals]
    for method, plural, _ in looks:
        clinic.server.refusals[method, plural] = "no"
    found = clinic.findings()
    assert {found[what].gap for _, _, what in looks} == {"we may not look: Forbidden"}
    assert all("administrator" in found[what].remedy for _, _, what in looks)
    clinic.server.refusals.clear()
    lost = [look for look in looks if look[1] != "namespaces"]
    for method, plural, _ in lost:
        clinic.server.faults[method, plural] = [DROP] * 50
    found = clinic.findings()
    assert all(found[what].gap.startswith("cannot be reached: ") for _, _, what in lost)
    assert all("the network" in found[what].remedy for _, _, what in lost)


def test_an_api_server_that_fails_is_not_taken_for_one_that_lacks_something(clinic: Clinic) -> None:
    clinic.server.faults["GET", "namespaces"] = [500]
    gap = clinic.the_gap()
    assert gap.gap.startswith("the API server answers 500")
    assert "Apply" not in gap.remedy


def test_with_an_expired_token_that_is_all_there_is_to_say(clinic: Clinic) -> None:
    clinic.server.tokens = {"second"}
    (only,) = clinic.findings().values()
    assert only.what == "namespace lingraft"
    assert only.gap == "the API server does not know who asks: Unauthorized"
    assert only.remedy.startswith("Log in again")


def test_what_a_recipe_names_has_to_be_there(clinic: Clinic) -> None:
    clinic.cluster = CLUSTER.model_copy(update={"service_account": "mine", "storage_secret": "mine"})
    found = clinic.findings()
    for what, remedy in (("service account", "cluster.service_account of the recipe"), ("Secret", "AWS_ACCESS_KEY_ID")):
        gap = found[f"{what} mine"]
        assert (gap.gap, gap.is_lacking, remedy in gap.remedy) == ("is not there", True, True)
    clinic.add("serviceaccounts", "mine")
    clinic.add("secrets", "mine")
    assert all(each.is_good for each in clinic.findings().values())


def test_without_an_api_server_that_is_all_there_is_to_say(clinic: Clinic) -> None:
    kubeconfig = Path(os.environ["KUBECONFIG"])
    kubeconfig.write_text(re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:9", kubeconfig.read_text()))
    (only,) = clinic.findings().values()
    assert only.what == "namespace lingraft"
    assert only.gap.startswith("cannot be reached: ")


def _command(recipe: Path) -> Result:
    return CliRunner().invoke(app, ["doctor", "--recipe", str(recipe)])


def test_the_command_lists_gaps_and_fails(clinic: Clinic) -> None:
    clinic.server.remove("secrets", "lingraft-mlflow")
    ran = _command(TINY)
    assert ran.exit_code == 1, ran.stderr
    assert "LACKING  Secret lingraft-mlflow: is not there\n         Create it: kubectl" in ran.stdout
    assert "ok       namespace lingraft" in ran.stdout


def test_the_command_does_not_fail_for_warnings(clinic: Clinic, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(f'{TINY.read_text()}\n[cluster.training]\nnode_selector = {{ pool = "none yet" }}\n')
    ran = _command(recipe)
    assert ran.exit_code == 0, ran.output
    assert "warning  a node for profile 'training': 0 of 0 nodes with its labels" in ran.stdout
    assert "LACKING" not in ran.stdout
