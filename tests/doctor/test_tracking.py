"""How MLflow is reached: by the API server's proxy, by the name that steps use."""

import pytest

from lingraft import doctor
from lingraft.doctor import Finding
from tests.doctor.clinic import ARTIFACTS, SILENT, Clinic

INSIDE = "http://mlflow:5000"


def _found(clinic: Clinic, uri: str = INSIDE) -> Finding:
    return clinic.findings()[f"MLflow with its store of artifacts at {uri}"]


def test_a_secret_without_its_key_is_a_gap(clinic: Clinic) -> None:
    clinic.add_secret("lingraft-mlflow", OTHER="x")
    found = clinic.findings()
    assert found["Secret lingraft-mlflow"].gap == "has no key MLFLOW_TRACKING_URI"
    assert found["MLflow"].is_lacking


@pytest.mark.parametrize("uri", ["sqlite:///mlflow.db", "mlflow:5000", "http://"])
def test_what_is_no_address_of_a_server_is_a_gap(clinic: Clinic, uri: str) -> None:
    clinic.add_secret("lingraft-mlflow", MLFLOW_TRACKING_URI=uri)
    assert "names no server, such as http://mlflow:5000" in clinic.the_gap().gap


@pytest.mark.parametrize(
    ("uri", "service", "path"),
    [
        ("http://mlflow.lingraft:5000", "mlflow:5000", ""),
        ("http://mlflow.lingraft.svc.cluster.local:5000", "mlflow:5000", ""),
        ("https://tracking.lingraft.svc", "https:tracking:443", ""),
        ("http://mlflow:5000/mlflow/", "mlflow:5000", "/mlflow"),
    ],
)
def test_a_service_is_asked_through_the_api_server_by_the_name_that_steps_use(
    clinic: Clinic, uri: str, service: str, path: str
) -> None:
    clinic.server.services = {service: clinic.server.services["mlflow:5000"]}
    clinic.mlflow.by_path = {f"{path}{ARTIFACTS}": (200, "{}")}
    clinic.add_secret("lingraft-mlflow", MLFLOW_TRACKING_URI=uri.replace("://", "://us:0therw1se@"))
    assert _found(clinic, uri.rstrip("/")).is_good
    assert "0therw1se" not in str(clinic.findings())
    assert {headers["Host"] for _, headers in clinic.mlflow.asked} == {uri.split("/")[2]}


def test_a_server_outside_of_the_cluster_is_not_asked(clinic: Clinic) -> None:
    clinic.add_secret("lingraft-mlflow", MLFLOW_TRACKING_URI="https://mlflow.example.org")
    assert not [what for what in clinic.findings() if what.startswith("MLflow")]


@pytest.mark.parametrize(
    ("answer", "is_lacking", "gap"),
    [
        ((500, "<!doctype html><title>500</title> <p>It broke."), True, "answers 500: 500 It broke."),
        ((401, "You are not authenticated"), False, "answers 401: You are not authenticated"),
    ],
)
def test_an_answer_that_is_no_list_of_artifacts_is_shown(
    clinic: Clinic, answer: tuple[int, str], is_lacking: bool, gap: str
) -> None:
    clinic.mlflow.by_path[ARTIFACTS] = answer
    found = _found(clinic)
    assert (found.gap, found.is_lacking) == (gap, is_lacking)
    assert "docs/operations/install.md" in found.remedy


def test_a_service_that_is_not_there_a_pod_that_does_not_listen_and_a_proxy_that_is_refused_are_gaps(
    clinic: Clinic,
) -> None:
    clinic.server.services["mlflow:5000"] = "127.0.0.1:9"
    assert "503" in _found(clinic).gap
    clinic.server.services.clear()
    assert "not found" in _found(clinic).gap
    clinic.server.refusals["GET", "services/proxy"] = 'cannot get resource "services/proxy"'
    assert _found(clinic).gap.startswith("answers 403: ")
    assert _found(clinic).is_lacking


def test_no_answer_is_a_warning(clinic: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_TIMEOUT_S", 0.2)
    clinic.mlflow.by_path[ARTIFACTS] = (SILENT, "")
    found = _found(clinic)
    assert (found.is_good, found.is_lacking) == (False, False)
    assert "Network policies" in found.remedy
