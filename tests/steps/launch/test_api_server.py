"""The tests' API server answers as the real one does, where a kinder one would let mistakes pass."""

import json
from typing import Any

import pytest
from kubernetes import client
from kubernetes.client.rest import ApiException

from lingraft.steps.launch.on_cluster import connect
from tests.steps.launch.api_kinds import now
from tests.steps.launch.api_server import ApiServer

Document = dict[str, Any]
JOBS = ("batch", "v1", "lingraft", "jobs")
TRAIN_JOBS = ("trainer.kubeflow.org", "v1alpha1", "lingraft", "trainjobs")


@pytest.fixture
def objects(server: ApiServer) -> client.CustomObjectsApi:
    """A client of the server."""
    assert server.objects == {}
    return client.CustomObjectsApi(connect()[0])


def job(**spec: Any) -> Document:
    pod = {"restartPolicy": "Never", "containers": [{"name": "step", "image": "x:1"}]}
    metadata = {"name": "one", "labels": {"a": "b"}}
    whole = {"template": {"spec": pod}} | spec
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": whole}


def train_job() -> Document:
    about = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": "one"}}
    return about | {"spec": {"runtimeRef": {"name": "lingraft-torch"}}}


def refused(call: Any, *arguments: Any) -> Document:
    """The Status of a refusal."""
    with pytest.raises(ApiException) as caught:
        call(*arguments)
    status: Document = json.loads(caught.value.body)
    assert (status["kind"], status["code"]) == ("Status", caught.value.status)
    return status


def test_items_of_lists_name_their_kind_only_where_the_kind_is_a_custom_resource(
    objects: client.CustomObjectsApi,
) -> None:
    objects.create_namespaced_custom_object(*JOBS, job())
    objects.create_namespaced_custom_object(*TRAIN_JOBS, train_job())
    jobs, train_jobs = (objects.list_namespaced_custom_object(*where) for where in (JOBS, TRAIN_JOBS))
    assert (jobs["kind"], jobs["items"][0].keys()) == ("JobList", {"metadata", "spec", "status"})
    assert train_jobs["items"][0]["kind"] == "TrainJob"
    assert jobs["metadata"].keys() == {"resourceVersion"}
    assert train_jobs["metadata"].keys() == {"resourceVersion", "continue"}
    assert objects.get_namespaced_custom_object(*JOBS, "one")["kind"] == "Job"


def test_a_new_job_has_the_servers_defaults_and_none_of_the_clients_status(objects: client.CustomObjectsApi) -> None:
    made = objects.create_namespaced_custom_object(*JOBS, job() | {"status": {"succeeded": 1}})
    assert made["status"] == {}
    assert made["spec"]["podReplacementPolicy"] == "TerminatingOrFailed"
    pod = made["spec"]["template"]["spec"]
    assert (pod["schedulerName"], pod["containers"][0]["imagePullPolicy"]) == ("default-scheduler", "IfNotPresent")
    assert made["spec"]["template"]["metadata"]["labels"]["batch.kubernetes.io/job-name"] == "one"
    [manager] = made["metadata"]["managedFields"]
    assert manager["fieldsV1"].keys() == {"f:spec", "f:status"}


def test_an_update_is_refused_with_what_is_wrong_and_makes_a_version_only_if_it_changes_something(
    objects: client.CustomObjectsApi,
) -> None:
    made = objects.create_namespaced_custom_object(*JOBS, job())
    same = objects.replace_namespaced_custom_object(*JOBS, "one", made)
    assert same["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    changed = made | {"spec": made["spec"] | {"completions": 2, "completionMode": "Indexed"}}
    status = refused(objects.replace_namespaced_custom_object, *JOBS, "one", changed)
    assert (status["code"], status["reason"]) == (422, "Invalid")
    assert status["message"].startswith('Job.batch "one" is invalid: [spec.completionMode: Invalid value')
    fields = [cause["field"] for cause in status["details"]["causes"]]
    assert fields == ["spec.completionMode", "spec.completions"]
    newer = objects.replace_namespaced_custom_object(*JOBS, "one", made | {"spec": made["spec"] | {"backoffLimit": 1}})
    assert newer["metadata"]["generation"] == 2
    status = refused(objects.replace_namespaced_custom_object, *JOBS, "one", made)
    assert (status["code"], status["reason"]) == (409, "Conflict")
    assert status["message"].startswith(
        'Operation cannot be fulfilled on jobs.batch "one": the object has been modified'
    )


def test_what_is_there_or_is_not_is_said_with_its_name(objects: client.CustomObjectsApi) -> None:
    objects.create_namespaced_custom_object(*JOBS, job())
    status = refused(objects.create_namespaced_custom_object, *JOBS, job())
    assert (status["reason"], status["message"]) == ("AlreadyExists", 'jobs.batch "one" already exists')
    status = refused(objects.get_namespaced_custom_object, *JOBS, "two")
    assert (status["reason"], status["message"]) == ("NotFound", 'jobs.batch "two" not found')
    assert status["details"] == {"name": "two", "group": "batch", "kind": "jobs"}


def test_a_group_that_nobody_has_installed_is_not_found_in_plain_words(objects: client.CustomObjectsApi) -> None:
    with pytest.raises(ApiException) as caught:
        objects.list_namespaced_custom_object("kueue.x-k8s.io", "v1beta1", "lingraft", "workloads")
    assert (caught.value.status, caught.value.body) == (404, "404 page not found\n")


def test_a_foreground_deletion_answers_with_the_object_which_stays(objects: client.CustomObjectsApi) -> None:
    objects.create_namespaced_custom_object(*JOBS, job())
    going = objects.delete_namespaced_custom_object(*JOBS, "one", propagation_policy="Foreground")
    assert going["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert len(going["metadata"]["deletionTimestamp"]) == len("2026-01-01T00:00:00Z")


def test_whoever_has_no_valid_token_is_not_known(server: ApiServer, objects: client.CustomObjectsApi) -> None:
    server.tokens = {"another"}
    assert refused(objects.list_namespaced_custom_object, *JOBS)["reason"] == "Unauthorized"


@pytest.mark.parametrize("parameter", [{"watch": True}, {"limit": 1}, {"resource_version": "1"}])
def test_what_the_server_does_not_serve_it_refuses(objects: client.CustomObjectsApi, parameter: Document) -> None:
    with pytest.raises(ApiException, match="does not serve"):
        objects.list_namespaced_custom_object(*JOBS, **parameter)


@pytest.mark.parametrize(
    ("node", "state", "previous", "reason"),
    [
        ({}, {}, False, "does not have a host assigned"),
        (
            {"nodeName": "one"},
            {"waiting": {"reason": "PodInitializing"}},
            False,
            "is waiting to start: PodInitializing",
        ),
        ({"nodeName": "one"}, {"running": {"startedAt": now()}}, True, "previous terminated container"),
    ],
    ids=["no node", "waits", "has not run before"],
)
def test_a_log_that_is_not_there_is_refused(
    server: ApiServer, node: Document, state: Document, previous: bool, reason: str
) -> None:
    spec = {"containers": [{"name": "step", "image": "x"}], **node}
    status = {"containerStatuses": [{"name": "step", "state": state, "restartCount": 0}]} if state else {}
    server.put("pods", {"metadata": {"name": "pod"}, "spec": spec, "status": status})
    core = client.CoreV1Api(connect()[0])
    with pytest.raises(ApiException, match=reason) as caught:
        core.read_namespaced_pod_log("pod", "lingraft", container="step", previous=previous)
    assert caught.value.status == 400
