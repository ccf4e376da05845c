"""The connection to a Kubeflow Pipelines server, and its errors."""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import kfp_server_api as kfp
import urllib3

from lingraft.errors import LingraftError
from pipelines.server import IN_CLUSTER

_HINTS = {
    401: "The token is missing, or has expired: set KF_PIPELINES_TOKEN, or --token-file to a file that is renewed.",
    403: "The token's owner may not do this in this namespace: bind it to the Role kubeflow-pipelines-edit.",
    404: "Is --host the server's API, and --namespace a profile of it?",
}
_MESSAGES = "message", "error_message", "error"
"""Fields with the message in an error's body: of the API, of its upload, and of other servers."""
_TRIES = 4
_PAUSE_S = 0.5
_SHORT_LIVED = (429, 500, 502, 503, 504)


class ServerError(LingraftError):
    """A Kubeflow Pipelines server refused, failed, or cannot be reached."""


@dataclass(frozen=True)
class Connection:
    """Address of the server, and credentials."""

    host: str = IN_CLUSTER
    """Address of the API."""
    namespace: str = ""
    """Namespace of the profile in a multi-user installation; empty for a single-user one."""
    token: str = ""
    """Bearer token; empty if `token_file` has it."""
    token_file: Path | None = None
    """File with the bearer token, read before every request, since a projected token is renewed."""
    certificate: Path | None = None
    """CA certificate of the server; the system's certificates if None."""
    page: str = ""
    """Address of the UI; `host` if empty."""

    def client(self) -> kfp.ApiClient:
        """Return a client of the API that retries idempotent requests after errors of the server.

        Raises:
            ServerError: the host is not a URL, or a file does not exist.
        """
        if not self.host.startswith(("http://", "https://")):
            raise ServerError(f"--host is {self.host!r}, but must begin with http:// or https://.")
        settings = kfp.Configuration(host=self.host.rstrip("/"))
        for file in (self.certificate, self.token_file):
            if file and not file.is_file():
                raise ServerError(f"there is no file {file}.")
        settings.ssl_ca_cert = str(self.certificate) if self.certificate else None
        settings.retries = urllib3.Retry(
            _TRIES, backoff_factor=_PAUSE_S, status_forcelist=_SHORT_LIVED, raise_on_status=False
        )
        settings.refresh_api_key_hook = self._authorise
        settings.api_key_prefix["authorization"] = "Bearer"
        self._authorise(settings)
        return kfp.ApiClient(settings)

    def _authorise(self, settings: kfp.Configuration) -> None:
        token = self.token_file.read_text(encoding="utf-8").strip() if self.token_file else self.token
        if token:
            settings.api_key["authorization"] = token

    def link(self, run_id: str) -> str:
        """Return the URL of a run's page in the UI."""
        return f"{(self.page or self.host).rstrip('/')}/#/runs/details/{run_id}"


@contextlib.contextmanager
def server_errors(connection: Connection, what: str) -> Iterator[None]:
    """Turn exceptions of the client into errors that name the request, the server, and a remedy.

    Raises:
        ServerError: the server refused, failed or does not answer.
    """
    try:
        yield
    except kfp.ApiException as error:
        raise ServerError(
            f"{what}: {connection.host} answers {error.status} {_message(error)}. {_hint(error)}"
        ) from error
    except urllib3.exceptions.HTTPError as error:
        raise ServerError(
            f"{what}: {connection.host} cannot be reached: {error}. Check --host, or forward a port: "
            "kubectl port-forward -n kubeflow svc/ml-pipeline 8888:8888"
        ) from error


def _message(error: kfp.ApiException) -> str:
    """Return the server's message without its stack trace; a proxy may answer in another format than JSON."""
    body = error.body.decode(errors="replace") if isinstance(error.body, bytes) else error.body
    said = str(body or error.reason or "").strip()
    with contextlib.suppress(ValueError):
        told = json.loads(said)
        if isinstance(told, dict):
            said = next((str(told[key]) for key in _MESSAGES if told.get(key)), said)
    return said.splitlines()[0][:300].rstrip(".") if said else ""


def _hint(error: kfp.ApiException) -> str:
    return _HINTS.get(error.status, "Its own log says more: kubectl logs -n kubeflow deploy/ml-pipeline")
