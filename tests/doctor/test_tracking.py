"""What MLflow needs, and how it is reached: by the API server's proxy, or from here."""

import base64

import pytest

from lingraft.doctor import reach
from lingraft.doctor.findings import Finding
from tests.doctor.clinic import ARTIFACTS, HEALTH, SILENT, Clinic

INSIDE = "http://mlflow:5000"
OF_ITSELF, OF_ITS_STORE = "MLflow at {}", "MLflow's store of artifacts at {}"


def _told(clinic: Clinic, uri: str, **more: str) -> None:
    clinic.add_secret("lingraft-mlflow", MLFLOW_TRACKING_URI=uri, **more)


def _found(clinic: Clinic, uri: str = INSIDE) -> tuple[Finding, Finding]:
    found = clinic.findings()
    return found[OF_ITSELF.format(uri)], found[OF_ITS_STORE.format(uri)]


def test_a_secret_without_its_key_is_a_gap(clinic: Clinic) -> None:
    clinic.add_secret("lingraft-mlflow", OTHER="x")
    found = clinic.findings()
    assert found["Secret lingraft-mlflow"].gap == "has no key MLFLOW_TRACKING_URI"
    assert found["MLflow"].is_lacking


@pytest.mark.parametrize("uri", ["sqlite:///mlflow.db", "mlflow:5000", "http://", "http://mlflow:port", "databricks"])
def test_what_is_no_address_of_a_server_is_a_gap(clinic: Clinic, uri: str) -> None:
    _told(clinic, uri)
    assert "names no server, such as http://mlflow:5000" in clinic.the_gap().gap


def test_a_replica_that_is_not_available_is_a_gap(clinic: Clinic) -> None:
    clinic.server.objects["deployments", "mlflow"]["status"] = {}
    assert clinic.the_gap().gap == "none of its replicas is available"


SECRET = "lingraft-object-store"
KEY = {"name": SECRET, "key": "MLFLOW_ARTIFACTS_DESTINATION"}
NEEDS = {
    "a variable": {"containers": [{"name": "x", "env": [{"name": "X", "valueFrom": {"secretKeyRef": KEY}}]}]},
    "all variables": {"containers": [{"name": "x", "envFrom": [{"secretRef": {"name": SECRET}}]}]},
    "an init container's variable": {
        "containers": [],
        "initContainers": [{"name": "x", "env": [{"name": "X", "valueFrom": {"secretKeyRef": KEY}}]}],
    },
    "a file": {
        "containers": [],
        "volumes": [{"name": "x", "secret": {"secretName": SECRET, "items": [{"key": KEY["key"], "path": "x"}]}}],
    },
}
OPTIONAL = {
    "a variable": {
        "containers": [{"name": "x", "env": [{"name": "X", "valueFrom": {"secretKeyRef": KEY | {"optional": True}}}]}]
    },
    "all variables": {"containers": [{"name": "x", "envFrom": [{"secretRef": {"name": SECRET, "optional": True}}]}]},
    "a file": {"containers": [], "volumes": [{"name": "x", "secret": {"secretName": SECRET, "optional": True}}]},
}


@pytest.mark.parametrize("need", NEEDS)
def test_a_secret_that_mlflow_cannot_start_without_has_to_be_there_with_its_keys(clinic: Clinic, need: str) -> None:
    clinic.server.objects["deployments", "mlflow"]["spec"]["template"]["spec"] = NEEDS[need]
    assert (clinic.the_gap().what, clinic.the_gap().gap) == (f"Secret {SECRET}", "is not there")
    clinic.add_secret(SECRET, OTHER="x")
    gaps = [each.gap for each in clinic.findings().values() if not each.is_good]
    assert gaps == ([] if need == "all variables" else ["has no key MLFLOW_ARTIFACTS_DESTINATION"])
    clinic.add_secret(SECRET, MLFLOW_ARTIFACTS_DESTINATION="x")
    assert clinic.findings()[f"Secret {SECRET}"].is_good


@pytest.mark.parametrize("need", OPTIONAL)
def test_a_secret_that_it_can_do_without_need_not_be_there(clinic: Clinic, need: str) -> None:
    clinic.server.objects["deployments", "mlflow"]["spec"]["template"]["spec"] = OPTIONAL[need]
    assert f"Secret {SECRET}" not in clinic.findings()


@pytest.mark.parametrize("host", ["mlflow", "mlflow.lingraft", "mlflow.lingraft.svc.cluster.local"])
def test_a_service_is_asked_through_the_api_server_by_the_name_that_steps_use(clinic: Clinic, host: str) -> None:
    _told(clinic, f"http://{host}:5000", MLFLOW_TRACKING_USERNAME="us", MLFLOW_TRACKING_PASSWORD="secret")
    assert all(each.is_good for each in _found(clinic, f"http://{host}:5000"))
    assert [path for path, _ in clinic.mlflow.asked] == [HEALTH, ARTIFACTS]
    assert {headers["Host"] for _, headers in clinic.mlflow.asked} == {f"{host}:5000"}


def test_a_service_of_ones_own_is_asked_and_the_overlays_deployment_is_not_missed(clinic: Clinic) -> None:
    clinic.server.remove("deployments", "mlflow")
    clinic.server.services = {"https:tracking:443": clinic.server.services["mlflow:5000"]}
    _told(clinic, "https://tracking.lingraft.svc")
    assert all(each.is_good for each in clinic.findings().values())


def test_a_path_before_mlflows_own_is_kept(clinic: Clinic) -> None:
    clinic.mlflow.by_path = {f"/mlflow{path}": answer for path, answer in clinic.mlflow.by_path.items()}
    _told(clinic, f"{INSIDE}/mlflow/")
    assert all(each.is_good for each in _found(clinic, f"{INSIDE}/mlflow"))


def test_a_service_that_is_not_there_is_a_gap(clinic: Clinic) -> None:
    clinic.server.services.clear()
    itself, store = _found(clinic)
    assert itself.gap == 'answers /health with 404 services "mlflow:5000" not found'
    assert store.is_lacking


def test_a_pod_that_does_not_listen_is_a_gap(clinic: Clinic) -> None:
    clinic.server.services["mlflow:5000"] = "127.0.0.1:9"
    itself, _ = _found(clinic)
    assert "503 error trying to reach service" in itself.gap
    assert itself.is_lacking
    assert "port-forward service/mlflow 5000:5000" in itself.remedy


def test_a_proxy_that_we_may_not_use_is_a_gap(clinic: Clinic) -> None:
    clinic.server.refusals["GET", "services/proxy"] = 'cannot get resource "services/proxy"'
    itself, _ = _found(clinic)
    assert itself.gap == 'we may not ask: 403 cannot get resource "services/proxy"'
    assert "the right to get services/proxy" in itself.remedy


def test_no_answer_is_a_warning_while_the_kubelet_gets_one(clinic: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "_HEALTH_S", 0.2)
    clinic.mlflow.by_path[HEALTH] = (SILENT, "")
    itself, store = _found(clinic)
    assert not itself.is_lacking
    assert not itself.is_good
    assert "Network policies" in itself.remedy
    assert (store.is_good, store.is_lacking) == (False, False)
    clinic.server.objects["deployments", "mlflow"]["status"] = {}
    assert all(each.is_lacking for each in _found(clinic))


@pytest.mark.parametrize(
    ("answer", "is_lacking", "gap"),
    [
        ((500, "<!doctype html>"), True, "cannot be reached by MLflow: 500"),
        ((503, '{"message": "--no-serve-artifacts"}'), True, "cannot be reached by MLflow: 503 --no-serve-artifacts"),
        ((403, "Invalid Host header"), True, "MLflow does not know itself by the name 'mlflow:5000'"),
        ((401, "You are not authenticated"), False, "could not be looked at: 401 You are not authenticated"),
        ((404, "no such path"), False, "could not be looked at: 404 no such path"),
    ],
)
def test_what_mlflow_answers_of_its_store(clinic: Clinic, answer: tuple[int, str], is_lacking: bool, gap: str) -> None:
    clinic.mlflow.by_path[ARTIFACTS] = answer
    itself, store = _found(clinic)
    assert itself.is_good
    assert (store.is_lacking, store.gap.startswith(gap)) == (is_lacking, True)


def test_a_store_that_is_waited_for_in_vain_is_a_gap(clinic: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "_STORE_S", 0.2)
    clinic.mlflow.by_path[ARTIFACTS] = (SILENT, "")
    _, store = _found(clinic)
    assert store.is_lacking
    assert "timed out" in store.gap


@pytest.fixture
def outside(clinic: Clinic) -> str:
    """Address of the same server, outside of the cluster."""
    return f"http://{clinic.server.services['mlflow:5000']}"


def test_a_server_outside_is_asked_from_here_with_what_steps_know(clinic: Clinic, outside: str) -> None:
    clinic.server.remove("deployments", "mlflow")
    _told(clinic, outside, MLFLOW_TRACKING_USERNAME="us", MLFLOW_TRACKING_PASSWORD="secret")
    assert all(each.is_good for each in _found(clinic, outside))
    assert "deployment mlflow" not in clinic.findings()
    given = {headers["authorization"] for _, headers in clinic.mlflow.asked}
    assert given == {f"Basic {base64.b64encode(b'us:secret').decode()}"}
    clinic.mlflow.asked.clear()
    _told(clinic, outside, MLFLOW_TRACKING_TOKEN="secret")
    assert all(each.is_good for each in _found(clinic, outside))
    assert {headers["Authorization"] for _, headers in clinic.mlflow.asked} == {"Bearer secret"}


def test_a_server_outside_that_refuses_or_is_not_there_is_a_gap(clinic: Clinic, outside: str) -> None:
    _told(clinic, outside)
    clinic.mlflow.by_path[ARTIFACTS] = (401, "You are not authenticated")
    assert _found(clinic, outside)[1].is_lacking
    _told(clinic, "http://127.0.0.1:9")
    itself, _ = _found(clinic, "http://127.0.0.1:9")
    assert itself.is_lacking
    assert "its address is right" in itself.remedy


def test_a_password_in_the_address_is_not_told(clinic: Clinic, outside: str) -> None:
    _told(clinic, outside.replace("http://", "http://us:0therw1se@"))
    assert all(each.is_good for each in _found(clinic, outside))
    assert "0therw1se" not in str(clinic.findings())
