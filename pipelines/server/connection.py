"""How a Kubeflow Pipelines server is reached, and what its refusals mean."""

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
"""Fields of an error's body: of the API, of its upload, and of servers without either."""
_TRIES, _PAUSE_S, _SHORT_LIVED = 4, 0.5, (429, 500, 502, 503, 504)


class ServerError(LingraftError):
    """A Kubeflow Pipelines server refused, failed, or cannot be reached."""


@dataclass(frozen=True)
class Connection:
    """Where the server is, and who asks."""

    host: str = IN_CLUSTER
    """Address of the API."""
    namespace: str = ""
    """Profile of a multi-user installation; empty for a single-user one."""
    token: str = ""
    """Bearer token, unless a file has it."""
    token_file: Path | None = None
    """Read again before every request, since a projected token is renewed."""
    certificate: Path | None = None
    """CA that has signed the server's certificate; the system's usual ones if absent."""
    page: str = ""
    """Address of the UI; `host` if empty."""

    def client(self) -> kfp.ApiClient:
        """A client of the API; a request that may be repeated is, where the server has failed.

        Raises:
            ServerError: the host is no address, or a file cannot be read.
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
        """The page of a run in the UI."""
        return f"{(self.page or self.host).rstrip('/')}/#/runs/details/{run_id}"


@contextlib.contextmanager
def server_errors(connection: Connection, what: str) -> Iterator[None]:
    """Turn what the client raises into an error that says what was asked, of whom, and what to do.

    Raises:
        ServerError: the server refused, failed or was not there.
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
    """What the server says, without its stack trace; a proxy before it may answer otherwise than in JSON."""
    body = error.body.decode(errors="replace") if isinstance(error.body, bytes) else error.body
    said = str(body or error.reason or "").strip()
    with contextlib.suppress(ValueError):
        told = json.loads(said)
        if isinstance(told, dict):
            said = next((str(told[key]) for key in _MESSAGES if told.get(key)), said)
    return said.splitlines()[0][:300].rstrip(".") if said else ""


def _hint(error: kfp.ApiException) -> str:
    return _HINTS.get(error.status, "Its own log says more: kubectl logs -n kubeflow deploy/ml-pipeline")
