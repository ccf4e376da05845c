"""How a Kubeflow Pipelines server speaks HTTP: models as JSON, files, and what is refused."""

import json
import re
from dataclasses import dataclass
from email.message import Message
from email.parser import BytesParser
from http.server import BaseHTTPRequestHandler
from types import SimpleNamespace
from typing import Any, Protocol
from urllib.parse import parse_qs, urlsplit

import kfp_server_api as kfp

_CLIENT = kfp.ApiClient()
_API = "/apis/v2beta1"
REASON = "a reason"
_GRPC_CODES = {400: 3, 401: 16, 404: 5, 409: 6, 500: 13, 503: 14}


@dataclass
class RefusedError(Exception):
    """What is not done, and why."""

    status: int
    message: str = REASON


def read(body: bytes, model: str) -> Any:
    """A request's body as a model; fields that the model does not have are an error."""
    found = _CLIENT.deserialize(SimpleNamespace(data=body), model)
    assert _CLIENT.sanitize_for_serialization(found) == json.loads(body), f"not a {model}: {body!r}"
    return found


def uploaded(body: bytes, kind: str) -> Message:
    """The file of a form, with its name."""
    parts = BytesParser().parsebytes(b"Content-Type: " + kind.encode() + b"\r\n\r\n" + body).get_payload()
    [part] = [part for part in parts if part.get_param("name", header="content-disposition") == "uploadfile"]
    return part


def _refusal(path: str, refused: RefusedError) -> dict[str, Any]:
    """An error's body: the upload's own, or that of the gateway to gRPC, with a stack trace in its details."""
    stack = f"{refused.message}\ngithub.com/kubeflow/pipelines/backend/src/common/util.NewResourceNotFoundError"
    if "upload" in path:
        return {"error_message": refused.message, "error_details": stack}
    code = _GRPC_CODES.get(refused.status, 2)
    details = [{"@type": "type.googleapis.com/google.rpc.Status", "code": code, "message": stack}]
    return {"error": refused.message, "code": code, "message": refused.message, "details": details}


class Answering(Protocol):
    """A server without its HTTP."""

    token: str | None
    asked: list[tuple[str, str]]

    def answer(self, method: str, path: str, query: dict[str, str], body: bytes, kind: str) -> Any:
        """What is answered to a request; raises `RefusedError`."""


def handler_of(state: Answering) -> type[BaseHTTPRequestHandler]:
    """Requests as `state` takes them, and its answers as the server sends them."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _do(self) -> None:
            url = urlsplit(self.path)
            path = re.sub(f"^{_API}/", "", url.path)
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            state.asked.append((self.command, path))
            query = {key: values[0] for key, values in parse_qs(url.query).items()}
            try:
                if state.token and self.headers.get("authorization") != f"Bearer {state.token}":
                    raise RefusedError(401, "Request header error: token is not valid")
                found = state.answer(self.command, path, query, body, self.headers.get("Content-Type", ""))
                self._send(200, _CLIENT.sanitize_for_serialization(found))
            except RefusedError as refused:
                self._send(refused.status, _refusal(path, refused))

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
