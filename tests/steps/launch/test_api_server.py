"""The tests' Kubernetes API server answers as Kubernetes is documented to, also where that is inconvenient."""

import json
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client
from kubernetes.client.rest import ApiException

from lingraft.steps.launch.on_cluster import connect
from tests.steps.launch.api_server import NAMESPACE, ApiServer, Document

JOBS = "batch", "v1", NAMESPACE, "jobs"
TRAIN_JOBS = "trainer.kubeflow.org", "v1alpha1", NAMESPACE, "trainjobs"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    made = ApiServer()
    with made.serving(tmp_path) as kubeconfig:
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
        yield made


@pytest.fixture
def objects(server: ApiServer) -> client.CustomObjectsApi:
    return client.CustomObjectsApi(connect()[0])


def a_job(name: str, restart: str = "Never", **metadata: Any) -> Document:
    pod = {"restartPolicy": restart, "containers": [{"name": "step", "image": "x"}]}
    named = {"name": name, "labels": {"of": "tests"}} | metadata
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": named, "spec": {"template": {"spec": pod}}}


def a_train_job(name: str) -> Document:
    return {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": name}, "spec": {}}


def refused(ask: Callable[[], object]) -> Document:
    """The Status that refuses something."""
    with pytest.raises(ApiException) as caught:
        ask()
    status: Document = json.loads(caught.value.body)
    assert (status["kind"], status["apiVersion"], status["status"]) == ("Status", "v1", "Failure")
    assert status["code"] == caught.value.status
    return status


def events(objects: client.CustomObjectsApi, version: str, **selected: Any) -> list[Document]:
    """What a watch from a version on is told within a second."""
    answer = objects.list_namespaced_custom_object(
        *JOBS, watch=True, resource_version=version, timeout_seconds=1, _preload_content=False, **selected
    )
    return [json.loads(line) for line in answer.data.splitlines()]


def test_items_of_a_list_of_a_built_in_kind_do_not_say_it(objects: client.CustomObjectsApi) -> None:
    objects.create_namespaced_custom_object(*JOBS, a_job("one"))
    objects.create_namespaced_custom_object(*TRAIN_JOBS, a_train_job("one"))
    jobs, train_jobs = (objects.list_namespaced_custom_object(*kind) for kind in (JOBS, TRAIN_JOBS))
    assert (jobs["kind"], jobs["apiVersion"]) == ("JobList", "batch/v1")
    assert not {"kind", "apiVersion"} & jobs["items"][0].keys()
    assert (train_jobs["items"][0]["kind"], train_jobs["kind"]) == ("TrainJob", "TrainJobList")
    assert int(jobs["metadata"]["resourceVersion"]) >= int(jobs["items"][0]["metadata"]["resourceVersion"])
    assert objects.get_namespaced_custom_object(*JOBS, "one")["kind"] == "Job"


def test_what_is_created_gets_its_metadata_and_defaults_and_no_status_of_the_clients(
    objects: client.CustomObjectsApi,
) -> None:
    made = objects.create_namespaced_custom_object(*JOBS, a_job("one") | {"status": {"succeeded": 1}})
    assert made["metadata"].keys() >= {"uid", "creationTimestamp", "resourceVersion"}
    assert (made["metadata"]["generation"], made["metadata"]["namespace"]) == (1, NAMESPACE)
    assert (made["spec"]["backoffLimit"], made["status"]) == (6, {})
    labels = made["spec"]["template"]["metadata"]["labels"]
    assert labels["batch.kubernetes.io/job-name"] == "one"
    assert made["spec"]["selector"]["matchLabels"].items() <= labels.items()
    named = objects.create_namespaced_custom_object(*JOBS, a_job("", generateName="some-") | {})
    assert named["metadata"]["name"].startswith("some-")


@pytest.mark.parametrize(
    ("made", "code", "reason", "field"),
    [
        (a_job("there"), 409, "AlreadyExists", None),
        (a_job("Upper"), 422, "Invalid", "metadata.name"),
        (a_job("n" * 64), 422, "Invalid", "metadata.name"),
        (a_job("one", labels={"of": "a:b"}), 422, "Invalid", "metadata.labels"),
        (a_job("one", restart="Always"), 422, "Invalid", "spec.template.spec.restartPolicy"),
        (a_job("one", namespace="other"), 400, "BadRequest", None),
        (a_job("one") | {"kind": "CronJob"}, 400, "BadRequest", None),
    ],
    ids=["again", "name", "long name", "label", "restart policy", "namespace", "kind"],
)
def test_what_cannot_be_created_is_refused_with_a_status(
    objects: client.CustomObjectsApi, made: Document, code: int, reason: str, field: str | None
) -> None:
    objects.create_namespaced_custom_object(*JOBS, a_job("there"))
    status = refused(lambda: objects.create_namespaced_custom_object(*JOBS, made))
    assert (status["code"], status["reason"]) == (code, reason)
    assert field is None or [cause["field"] for cause in status["details"]["causes"]] == [field]


def test_an_update_needs_the_version_that_is_there_and_leaves_status_and_template(
    objects: client.CustomObjectsApi,
) -> None:
    def update(**more: Any) -> Any:
        return objects.replace_namespaced_custom_object(*JOBS, "one", {**made, **more})

    made = objects.create_namespaced_custom_object(*JOBS, a_job("one"))
    assert update(spec=made["spec"] | {"backoffLimit": 1}, status={"succeeded": 1})["status"] == {}
    assert refused(update)["reason"] == "Conflict"
    made = objects.get_namespaced_custom_object(*JOBS, "one")
    assert made["metadata"]["generation"] == 2
    other = refused(lambda: update(spec=made["spec"] | {"template": {"spec": {}}}))
    assert (other["code"], other["details"]["causes"][0]["field"]) == (422, "spec.template")
    custom = objects.create_namespaced_custom_object(*TRAIN_JOBS, a_train_job("one"))
    del custom["metadata"]["resourceVersion"]
    unversioned = refused(lambda: objects.replace_namespaced_custom_object(*TRAIN_JOBS, "one", custom))
    assert unversioned["details"]["causes"][0]["field"] == "metadata.resourceVersion"


@pytest.mark.parametrize(("policy", "ended"), [(None, False), ("Orphan", False), ("Background", True)])
def test_a_deleted_job_leaves_its_pods_unless_it_is_told_not_to(
    server: ApiServer, objects: client.CustomObjectsApi, policy: str | None, ended: bool
) -> None:
    deleted: list[str] = []
    server.deleted = lambda _, gone: deleted.append(gone["metadata"]["name"])
    objects.create_namespaced_custom_object(*JOBS, a_job("one"))
    given = {"propagation_policy": policy} if policy else {}
    assert objects.delete_namespaced_custom_object(*JOBS, "one", **given)["status"] == "Success"
    assert deleted == (["one"] if ended else [])
    absent = refused(lambda: objects.delete_namespaced_custom_object(*JOBS, "one"))
    assert (absent["reason"], absent["message"]) == ("NotFound", 'jobs.batch "one" not found')


def test_what_has_finalizers_or_waits_for_its_pods_is_marked_and_stays(objects: client.CustomObjectsApi) -> None:
    objects.create_namespaced_custom_object(*JOBS, a_job("one"))
    objects.create_namespaced_custom_object(*JOBS, a_job("two", finalizers=["tests/stay"]))
    objects.delete_namespaced_custom_object(*JOBS, "one", propagation_policy="Foreground")
    objects.delete_namespaced_custom_object(*JOBS, "two", propagation_policy="Background")
    items = objects.list_namespaced_custom_object(*JOBS)["items"]
    assert ["deletionTimestamp" in item["metadata"] for item in items] == [True, True]


def test_a_watch_tells_all_that_has_happened_since_a_version(objects: client.CustomObjectsApi) -> None:
    begun = objects.create_namespaced_custom_object(*JOBS, a_job("one"))["metadata"]["resourceVersion"]
    objects.create_namespaced_custom_object(*JOBS, a_job("two"))
    objects.delete_namespaced_custom_object(*JOBS, "one")
    told = events(objects, begun)
    assert [(each["type"], each["object"]["metadata"]["name"]) for each in told] == [
        ("ADDED", "two"),
        ("DELETED", "one"),
    ]
    assert told[0]["object"]["kind"] == "Job"
    versions = [int(each["object"]["metadata"]["resourceVersion"]) for each in told]
    assert int(begun) < versions[0] < versions[1]
    assert [each["type"] for each in events(objects, "0")] == ["ADDED"]
    assert events(objects, begun, field_selector="metadata.name=other") == []


def test_a_version_that_is_too_old_is_told_by_an_event_at_the_start_and_within_a_watch(
    server: ApiServer, objects: client.CustomObjectsApi
) -> None:
    begun = objects.create_namespaced_custom_object(*JOBS, a_job("one"))["metadata"]["resourceVersion"]
    objects.create_namespaced_custom_object(*JOBS, a_job("two"))
    server.forget()
    [error] = events(objects, begun)
    assert (error["type"], error["object"]["code"], error["object"]["reason"]) == ("ERROR", 410, "Expired")
    threading.Timer(0.1, server.expire).start()
    assert [each["type"] for each in events(objects, "0")][-1] == "ERROR"


def test_field_selectors_choose_or_are_refused(server: ApiServer) -> None:
    core = client.CoreV1Api(connect()[0])
    for name, kind in (("a", "Normal"), ("b", "Warning")):
        about = {"involvedObject": {"kind": "Job", "name": "x"}, "metadata": {"name": name}}
        server.put("events", about | {"type": kind, "reason": "", "message": ""})
    found = core.list_namespaced_event(NAMESPACE, field_selector="type=Warning").items
    assert [each.metadata.name for each in found] == ["b"]
    status = refused(lambda: core.list_namespaced_event(NAMESPACE, field_selector="message=x"))
    assert status["message"] == "field label not supported: message"


def test_a_log_is_of_a_container_that_there_is_and_that_has_run(server: ApiServer) -> None:
    core = client.CoreV1Api(connect()[0])
    waiting = {"name": "late", "ready": False, "restartCount": 0, "image": "", "imageID": ""}
    pod = {"spec": {"containers": [{"name": "step"}, {"name": "late"}]}, "metadata": {"name": "one"}}
    status = {"phase": "Running", "containerStatuses": [waiting | {"state": {"waiting": {}}}]}
    server.put("pods", pod | {"status": status})
    server.logs["one"] = ["said"]
    assert core.read_namespaced_pod_log("one", NAMESPACE, container="step") == "said"
    for name, container, code in (
        ("one", "other", 400),
        ("one", "late", 400),
        ("one", None, 400),
        ("two", "step", 404),
    ):
        given = {"container": container} if container else {}
        assert refused(partial(core.read_namespaced_pod_log, name, NAMESPACE, **given))["code"] == code


def test_what_the_server_does_not_know_or_has_per_namespace_is_refused(objects: client.CustomObjectsApi) -> None:
    for group, version, plural in (("batch", "v2", "jobs"), ("", "v1", "jobs"), ("batch", "v1", "cronjobs")):
        status = refused(partial(objects.list_namespaced_custom_object, group, version, NAMESPACE, plural))
        assert status["reason"] == "NotFound"
    assert refused(lambda: objects.list_cluster_custom_object("batch", "v1", "jobs"))["reason"] == "Forbidden"


def test_nodes_are_in_no_namespace(server: ApiServer) -> None:
    assert "namespace" not in server.put("nodes", {"metadata": {"name": "one"}})["metadata"]
