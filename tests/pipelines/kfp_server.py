"""A Kubeflow Pipelines server's REST API (v2beta1), as much of it as lingraft asks, with state and faults.

Requests and answers are read and written by kfp-server-api's own models: a field that they do not know fails the test.
What it refuses follows `backend/src/apiserver` of kubeflow/pipelines.
"""

import threading
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.message import Message
from http.server import ThreadingHTTPServer
from typing import Any

import kfp_server_api as kfp

from tests.pipelines.kfp_http import RefusedError, handler_of, read, uploaded

TOKEN = "a token"
_FILTERED_BY = {
    "pipelines": {"pipeline_id", "name", "display_name", "created_at", "namespace"},
    "pipeline_versions": {"pipeline_version_id", "name", "display_name", "created_at"},
    "experiments": {"experiment_id", "display_name", "created_at", "namespace"},
    "recurring_runs": {"recurring_run_id", "display_name", "created_at", "namespace"},
}
WORKFLOW = "adapt-source-x7k2p"
"""Of a recipe that is named like a step."""


class KfpServer:
    """What the server has, what it was asked, and how it fails."""

    def __init__(self) -> None:
        self.pipelines: list[kfp.V2beta1Pipeline] = []
        self.versions: list[kfp.V2beta1PipelineVersion] = []
        self.packages: dict[str, bytes] = {}
        """What was uploaded, by the names of versions."""
        self.experiments: list[kfp.V2beta1Experiment] = []
        self.runs: dict[str, kfp.V2beta1Run] = {}
        self.schedules: list[kfp.V2beta1RecurringRun] = []
        self.asked: list[tuple[str, str]] = []
        self.token: str | None = None
        """What a request must bring; none if None."""
        self.serves_several = False
        """Whether it is a multi-user installation: experiments and schedules are somebody's, in a namespace."""
        self.faults: dict[tuple[str, str], list[int]] = defaultdict(list)
        """Answers, each once, to a method and the end of a path."""
        self.story: list[dict[str, str]] = [{}, {"adapt": "RUNNING"}, {"adapt": "SUCCEEDED"}]
        """States of the steps at each look at a run; when it is told the run has ended."""
        self.end, self.error = "SUCCEEDED", ""
        self.raced: Callable[[], None] | None = None
        """What somebody else does just before a thing is made here, once."""
        self._seconds = 0

    @contextmanager
    def serving(self) -> Iterator[str]:
        """Its address."""
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler_of(self))
        thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.01), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    def answer(self, method: str, path: str, query: dict[str, str], body: bytes, kind: str) -> Any:
        """What is answered to a request.

        Raises:
            RefusedError: it is not done.
        """
        for (of_method, ending), statuses in self.faults.items():
            if method == of_method and path.endswith(ending) and statuses:
                raise RefusedError(statuses.pop(0))
        match method, path.split("/"):
            case "GET", ["runs", run_id]:
                return self._look(_found(self.runs, run_id))
            case "GET", _:
                return self._list(path, query)
            case "DELETE", ["recurringruns", schedule_id]:
                _found({one.recurring_run_id: one for one in self.schedules}, schedule_id)
                self.schedules = [one for one in self.schedules if one.recurring_run_id != schedule_id]
                return {}
        return self._make(path, query, body, kind)

    def _list(self, path: str, query: dict[str, str]) -> Any:
        match path.split("/"):
            case ["pipelines"]:
                given = _page(self._of_namespace(self.pipelines, query), "pipelines", query)
                return kfp.V2beta1ListPipelinesResponse(**given)
            case ["pipelines", pipeline_id, "versions"]:
                of_pipeline = [one for one in self.versions if one.pipeline_id == pipeline_id]
                return kfp.V2beta1ListPipelineVersionsResponse(**_page(of_pipeline, "pipeline_versions", query))
            case ["experiments"]:
                self._require_namespace(query.get("namespace"))
                given = _page(self._of_namespace(self.experiments, query), "experiments", query)
                return kfp.V2beta1ListExperimentsResponse(**given)
            case ["recurringruns"]:
                self._require_namespace(query.get("namespace") or query.get("experiment_id"))
                wanted = query.get("experiment_id")
                there = [one for one in self.schedules if wanted in (None, one.experiment_id)]
                return kfp.V2beta1ListRecurringRunsResponse(**_page(there, "recurring_runs", query))
        raise RefusedError(501)

    def _make(self, path: str, query: dict[str, str], body: bytes, kind: str) -> Any:
        match path:
            case "pipelines":
                made = read(body, "V2beta1Pipeline")
                if not made.name:
                    raise RefusedError(400, "name is required")
                return self._add(self.pipelines, made, "pipeline_id", ("name", "namespace"))
            case "pipelines/upload_version":
                return self._upload(query, uploaded(body, kind))
            case "experiments":
                made = read(body, "V2beta1Experiment")
                self._require_namespace(made.namespace)
                return self._add(self.experiments, made, "experiment_id", ("display_name", "namespace"))
            case "runs":
                run = self._checked(read(body, "V2beta1Run"))
                run.run_id, run.created_at, run.state = str(uuid.uuid4()), self._now(), "PENDING"
                self.runs[run.run_id] = run
                return run
            case "recurringruns":
                schedule = self._checked(read(body, "V2beta1RecurringRun"))
                return self._add(self.schedules, schedule, "recurring_run_id")
        raise RefusedError(501)

    def _upload(self, query: dict[str, str], part: Message) -> Any:
        words = "Failed to create a pipeline version"
        known = {one.pipeline_id for one in self.pipelines}
        if query.get("pipelineid") not in known:
            raise RefusedError(400, words)
        name = query.get("name") or query.get("display_name") or part.get_filename()
        made = kfp.V2beta1PipelineVersion(
            pipeline_id=query["pipelineid"], name=name, display_name=query.get("display_name") or name
        )
        try:
            added = self._add(self.versions, made, "pipeline_version_id", ("pipeline_id", "name"))
        except RefusedError as refused:
            raise RefusedError(refused.status, words) from refused
        self.packages[str(name)] = part.get_payload(decode=True)
        return added

    def _checked(self, wanted: Any) -> Any:
        """A run or a recurring one that can be made.

        Raises:
            RefusedError: it names what is not there.
        """
        if not wanted.display_name:
            raise RefusedError(400, "The run name is empty. Please specify a valid name")
        if wanted.experiment_id or self.serves_several:
            _found({one.experiment_id: one for one in self.experiments}, wanted.experiment_id)
        reference = wanted.pipeline_version_reference
        version = _found({one.pipeline_version_id: one for one in self.versions}, reference.pipeline_version_id)
        assert version.pipeline_id == reference.pipeline_id
        return wanted

    def _require_namespace(self, namespace: str | None) -> None:
        if self.serves_several and not namespace:
            raise RefusedError(400, "An experiment cannot have an empty namespace in multi-user mode")

    def _of_namespace(self, there: list[Any], query: dict[str, str]) -> list[Any]:
        """A single-user server has no namespaces."""
        return [one for one in there if not self.serves_several or (one.namespace or "") == query.get("namespace", "")]

    def _add(self, there: list[Any], made: Any, id_field: str, unique: tuple[str, ...] = ()) -> Any:
        if self.raced:
            raced, self.raced = self.raced, None
            raced()
        if unique and any(all(getattr(one, key) == getattr(made, key) for key in unique) for one in there):
            raise RefusedError(409, f"Failed to create: the name {made.display_name} already exists")
        setattr(made, id_field, str(uuid.uuid4()))
        made.created_at = self._now()
        there.append(made)
        return made

    def _now(self) -> datetime:
        self._seconds += 1
        return datetime(2025, 1, 1, tzinfo=UTC) + timedelta(seconds=self._seconds)

    def _look(self, run: kfp.V2beta1Run) -> kfp.V2beta1Run:
        """The run as it is at this look."""
        states = self.story.pop(0) if len(self.story) > 1 else self.story[0]
        ended = len(self.story) == 1 and not set(states.values()) & {"RUNNING", "PENDING"}
        run.state = self.end if ended else "RUNNING" if states else "PENDING"
        run.error = kfp.GoogleRpcStatus(code=2, message=self.error) if self.error and ended else None
        nodes = enumerate(_nodes(states, run.state))
        tasks = [_task(f"{run.run_id}-{number}", name, state, self._now()) for number, (name, state) in nodes]
        run.run_details = kfp.V2beta1RunDetails(task_details=tasks) if tasks else None
        return run


def _nodes(states: dict[str, str], run_state: str) -> Iterator[tuple[str, str]]:
    """Every node of the workflow, as the server lists them: itself, its root, its exit handler, and three a step."""
    if states:
        yield from ((WORKFLOW, run_state), ("root-driver", "SUCCEEDED"), ("root", run_state))
        yield from (("exit-handler-1-driver", "SUCCEEDED"), ("exit-handler-1", run_state))
    for name, state in states.items():
        yield from ((f"{name}-driver", "SUCCEEDED"), (name, state), ("executor", state))


def _task(task_id: str, name: str, state: str, at: datetime) -> kfp.V2beta1PipelineTaskDetail:
    child = kfp.PipelineTaskDetailChildTask(pod_name=f"{WORKFLOW}-{uuid.uuid4().int % 10**9}")
    return kfp.V2beta1PipelineTaskDetail(
        task_id=task_id, display_name=name, state=state, create_time=at, start_time=at, child_tasks=[child]
    )


def _found(there: dict[str, Any], key: str) -> Any:
    if key not in there:
        raise RefusedError(404, f"ResourceNotFoundError: {key} not found.")
    return there[key]


def _page(there: list[Any], noun: str, query: dict[str, str]) -> dict[str, Any]:
    """Fields of a list's answer, which has what the filter lets through, oldest first."""
    for predicate in read(query["filter"].encode(), "V2beta1Filter").predicates if "filter" in query else []:
        assert predicate.operation == kfp.V2beta1PredicateOperation.EQUALS
        if predicate.key not in _FILTERED_BY[noun]:
            raise RefusedError(400, f"no support for filtering on unrecognized field {predicate.key!r}")
        there = [one for one in there if getattr(one, predicate.key) == predicate.string_value]
    return {noun: there or None, "total_size": len(there)}
