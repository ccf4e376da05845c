"""A Kubeflow Pipelines server's REST API (v2beta1), as much of it as lingraft asks, with state and faults.

Requests and answers are read and written by kfp-server-api's own models: a field that they do not know fails the test.
"""

import json
import re
import threading
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.parser import BytesParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import kfp_server_api as kfp

_CLIENT = kfp.ApiClient()
_API = "/apis/v2beta1"
TOKEN = "a token"
REASON = "a reason"


def read(body: bytes, model: str) -> Any:
    """A request's body as a model; fields that the model does not have are an error."""
    found = _CLIENT.deserialize(SimpleNamespace(data=body), model)
    assert _CLIENT.sanitize_for_serialization(found) == json.loads(body), f"not a {model}: {body!r}"
    return found


class KfpServer:
    """What the server has, what it was asked, and how it fails."""

    def __init__(self) -> None:
        self.pipelines: list[kfp.V2beta1Pipeline] = []
        self.versions: list[kfp.V2beta1PipelineVersion] = []
        self.packages: dict[str, bytes] = {}
        self.experiments: list[kfp.V2beta1Experiment] = []
        self.runs: dict[str, kfp.V2beta1Run] = {}
        self.schedules: list[kfp.V2beta1RecurringRun] = []
        self.asked: list[tuple[str, str]] = []
        self.token: str | None = None
        """What a request must bring; none if None."""
        self.serves_several = False
        """Whether each experiment must be in somebody's namespace, and each run in an experiment."""
        self.faults: dict[tuple[str, str], list[int]] = defaultdict(list)
        """Answers, each once, to a method and the end of a path."""
        self.story: list[dict[str, str]] = [{"adapt": "RUNNING"}, {"adapt": "SUCCEEDED"}]
        """States of the steps at each look at a run; when it is told the run has ended."""
        self.end, self.error = "SUCCEEDED", ""
        self.raced: Callable[[], None] | None = None
        """What somebody else does just before a thing is made here, once."""

    @contextmanager
    def serving(self) -> Iterator[str]:
        """Its address."""
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    def answer(self, method: str, path: str, query: dict[str, str], body: bytes, kind: str) -> Any:
        """What is answered to a request; an HTTP status where it is refused."""
        if fault := self._fault(method, path):
            return fault
        if method == "DELETE":
            return self._delete(path)
        if path.startswith("runs"):
            return self._run(method, path, body)
        return self._list(path, query) if method == "GET" else self._make(path, query, body, kind)

    def _list(self, path: str, query: dict[str, str]) -> Any:
        of_pipeline = [one for one in self.versions if path == f"pipelines/{one.pipeline_id}/versions"]
        match path.rpartition("/")[2]:
            case "pipelines":
                return kfp.V2beta1ListPipelinesResponse(pipelines=_named(self.pipelines, query))
            case "versions":
                return kfp.V2beta1ListPipelineVersionsResponse(pipeline_versions=_named(of_pipeline, query))
            case "experiments":
                return kfp.V2beta1ListExperimentsResponse(experiments=_named(self.experiments, query))
            case "recurringruns":
                return kfp.V2beta1ListRecurringRunsResponse(recurring_runs=_named(self.schedules, query))
        return 501

    def _make(self, path: str, query: dict[str, str], body: bytes, kind: str) -> Any:
        match path:
            case "pipelines":
                return self._add(self.pipelines, read(body, "V2beta1Pipeline"), "pipeline_id")
            case "pipelines/upload_version":
                names = {"name": query["name"], "display_name": query["name"]}
                self.packages[query["name"]] = _uploaded(body, kind)
                made = kfp.V2beta1PipelineVersion(pipeline_id=query["pipelineid"], **names)
                return self._add(self.versions, made, "pipeline_version_id")
            case "experiments":
                if self.serves_several and not json.loads(body).get("namespace"):
                    return 400
                return self._add(self.experiments, read(body, "V2beta1Experiment"), "experiment_id")
            case "recurringruns":
                return self._add(self.schedules, read(body, "V2beta1RecurringRun"), "recurring_run_id", unique=False)
        return 501

    def _run(self, method: str, path: str, body: bytes) -> Any:
        if method == "GET":
            run_id = path.partition("/")[2]
            return self._look(self.runs[run_id]) if run_id in self.runs else 404
        run = read(body, "V2beta1Run")
        if self.serves_several and run.experiment_id not in {each.experiment_id for each in self.experiments}:
            return 400
        run.run_id = str(uuid.uuid4())
        self.runs[run.run_id] = run
        return run

    def _delete(self, path: str) -> Any:
        self.schedules = [one for one in self.schedules if path != f"recurringruns/{one.recurring_run_id}"]
        return {}

    def _fault(self, method: str, path: str) -> int | None:
        for (of_method, ending), statuses in self.faults.items():
            if method == of_method and path.endswith(ending) and statuses:
                return statuses.pop(0)
        return None

    def _add(self, there: list[Any], made: Any, id_field: str, unique: bool = True) -> Any:
        if self.raced:
            raced, self.raced = self.raced, None
            raced()
        if unique and any(one.display_name == made.display_name for one in there):
            return 409
        setattr(made, id_field, str(uuid.uuid4()))
        there.append(made)
        return made

    def _look(self, run: kfp.V2beta1Run) -> kfp.V2beta1Run:
        """The run as it is at this look."""
        states = self.story.pop(0) if len(self.story) > 1 else self.story[0]
        ended = len(self.story) == 1 and not set(states.values()) & {"RUNNING", "PENDING"}
        run.state = self.end if ended else "RUNNING"
        error = kfp.GoogleRpcStatus(code=2, message=self.error) if self.error and ended else None
        run.error = error
        run.run_details = kfp.V2beta1RunDetails(
            task_details=[
                kfp.V2beta1PipelineTaskDetail(task_id=f"{name}-{word}", display_name=f"{name}{word}", state=state)
                for name, state in states.items()
                for word in ("-driver", "")
            ]
        )
        return run


def _named(there: list[Any], query: dict[str, str]) -> list[Any]:
    """Those that the filter lets through."""
    [predicate] = read(query["filter"].encode(), "V2beta1Filter").predicates
    assert predicate.operation == kfp.V2beta1PredicateOperation.EQUALS
    return [one for one in there if getattr(one, predicate.key) == predicate.string_value]


def _uploaded(body: bytes, kind: str) -> bytes:
    parts = BytesParser().parsebytes(b"Content-Type: " + kind.encode() + b"\r\n\r\n" + body).get_payload()
    [part] = [part for part in parts if part.get_param("name", header="content-disposition") == "uploadfile"]
    content: bytes = part.get_payload(decode=True)
    return content


def _handler(state: KfpServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _do(self) -> None:
            url = urlsplit(self.path)
            path = re.sub(f"^{_API}/", "", url.path)
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            state.asked.append((self.command, path))
            query = {key: values[0] for key, values in parse_qs(url.query).items()}
            if state.token and self.headers.get("authorization") != f"Bearer {state.token}":
                self._send(401, {"error": "token is not valid"})
                return
            found = state.answer(self.command, path, query, body, self.headers.get("Content-Type", ""))
            if isinstance(found, int):
                self._send(found, {"error": REASON})
            else:
                self._send(200, _CLIENT.sanitize_for_serialization(found))

        do_GET = do_POST = do_DELETE = _do

        def _send(self, status: int, content: Any) -> None:
            data = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            """Nothing on the screen of a test."""

    return Handler
