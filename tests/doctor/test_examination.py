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
    assert [each for each in clinic.findings().values() if not each.is_good] == []


def test_everything_that_is_asked_for_is_refused_in_a_test_below(clinic: Clinic) -> None:
    clinic.server.objects["persistentvolumeclaims", "lingraft-data"]["status"]["phase"] = "Pending"
    clinic.findings()
    assert {*clinic.server.asked} == {(method, plural) for method, plural, _ in LOOKS}


@pytest.mark.parametrize(
    ("plural", "name", "remedy"),
    [
        ("namespaces", "lingraft", "kubectl apply -k"),
        ("customresourcedefinitions", "trainjobs.trainer.kubeflow.org", "Install Kubeflow Trainer"),
        ("customresourcedefinitions", "inferenceservices.serving.kserve.io", "Install KServe"),
        ("clustertrainingruntimes", "lingraft-torch", "cluster.runtime of the recipe"),
        ("persistentvolumeclaims", "lingraft-data", "cluster.storage_claim of the recipe"),
        ("priorityclasses", "lingraft-training", "kubectl get priorityclasses"),
        ("serviceaccounts", "lingraft-pipeline", "Apply an overlay"),
    ],
)
def test_what_is_not_there_is_named_with_what_to_do(clinic: Clinic, plural: str, name: str, remedy: str) -> None:
    clinic.server.remove(plural, name)
    gap = clinic.the_gap()
    assert gap.gap == "is not there"
    assert remedy in gap.remedy


@pytest.mark.parametrize(("method", "plural", "what"), LOOKS)
def test_a_look_that_is_refused_is_a_gap_and_the_others_go_on(
    clinic: Clinic, method: str, plural: str, what: str
) -> None:
    clinic.server.objects["persistentvolumeclaims", "lingraft-data"]["status"]["phase"] = "Pending"
    others = {other for _, _, other in LOOKS} & clinic.findings().keys() - {what, "volume claim lingraft-data"}
    clinic.server.refusals[method, plural] = "no"
    found = clinic.findings()
    assert found[what].gap == "we may not look: Forbidden"
    assert "administrator" in found[what].remedy
    assert all(found[other].is_good for other in others)


@pytest.mark.parametrize(("method", "plural", "what"), LOOKS)
def test_a_connection_that_is_lost_is_a_gap(clinic: Clinic, method: str, plural: str, what: str) -> None:
    clinic.server.objects["persistentvolumeclaims", "lingraft-data"]["status"]["phase"] = "Pending"
    clinic.server.faults[method, plural] = [DROP] * 50
    gap = clinic.findings()[what]
    assert gap.gap.startswith("cannot be reached: ")
    assert "the network" in gap.remedy


def test_without_the_steps_secret_nobody_knows_where_mlflow_is(clinic: Clinic) -> None:
    clinic.server.remove("secrets", "lingraft-mlflow")
    gaps = {each.what: each for each in clinic.findings().values() if not each.is_good}
    assert gaps.keys() == {"Secret lingraft-mlflow", "MLflow"}
    assert "create secret generic lingraft-mlflow" in gaps["Secret lingraft-mlflow"].remedy


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


@pytest.mark.parametrize(
    ("field", "plural", "what", "remedy"),
    [
        ("service_account", "serviceaccounts", "service account mine", "cluster.service_account of the recipe"),
        ("storage_secret", "secrets", "Secret mine", "AWS_ACCESS_KEY_ID"),
    ],
)
def test_what_a_recipe_names_has_to_be_there(clinic: Clinic, field: str, plural: str, what: str, remedy: str) -> None:
    clinic.cluster = CLUSTER.model_copy(update={field: "mine"})
    gap = clinic.the_gap()
    assert (gap.what, gap.gap, gap.is_lacking) == (what, "is not there", True)
    assert remedy in gap.remedy
    clinic.add(plural, "mine")
    assert clinic.findings()[what].is_good


@pytest.mark.parametrize(
    ("labels", "injects"),
    [
        ({"istio-injection": "enabled"}, True),
        ({"istio.io/rev": "stable"}, True),
        ({"istio.io/rev": "stable", "istio-injection": "disabled"}, False),
        ({"istio.io/dataplane-mode": "ambient"}, False),
    ],
)
def test_a_namespace_where_istio_adds_sidecars_is_a_warning(
    clinic: Clinic, labels: dict[str, str], injects: bool
) -> None:
    clinic.server.objects["namespaces", "lingraft"]["metadata"]["labels"] = labels
    found = clinic.findings()["no sidecar in pods"]
    assert (found.is_good, found.is_lacking) == (not injects, False)
    assert "istio-injection=disabled" in found.remedy


def test_without_an_api_server_that_is_all_there_is_to_say(clinic: Clinic) -> None:
    kubeconfig = Path(os.environ["KUBECONFIG"])
    kubeconfig.write_text(re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:9", kubeconfig.read_text()))
    (only,) = clinic.findings().values()
    assert only.what == "namespace lingraft"
    assert only.gap.startswith("cannot be reached: ")


def test_the_launchers_own_profile_is_looked_at_where_something_is_launched(clinic: Clinic) -> None:
    launched, launcher = {*clinic.findings()}, "a node for profile 'launcher'"
    clinic.cluster = CLUSTER.model_copy(update={"stages": {}})
    assert launcher in launched
    assert launcher not in clinic.findings()


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
