"""MLflow, asked as steps ask it: whether it answers, and whether it reaches its store."""

import contextlib
import copy
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import urlsplit

import urllib3
from kubernetes import client
from kubernetes.client.rest import ApiException

from lingraft.doctor.findings import REFUSED, Finding
from lingraft.steps.launch.watch_job import UNREACHABLE

_HEALTH, _HEALTH_S = "/health", 10.0
_STORE, _STORE_S = "/api/2.0/mlflow-artifacts/artifacts", 30.0
"""Where MLflow lists its artifacts; its clients ask a store that does not answer several times."""
_PORTS = {"http": 80, "https": 443}
_SERVICE = re.compile(r"(?P<name>[^.]+)(\.(?P<namespace>[^.]+)(?P<svc>\.svc(\..+)?)?)?")
_FOREIGN_HOST = "Invalid Host header"


@dataclass(frozen=True)
class Address:
    """Where steps ask MLflow."""

    scheme: str
    host: str
    """As the Host header has it."""
    port: int
    path: str
    service: str = ""
    """Absent: it is outside of the cluster."""
    namespace: str = ""

    @classmethod
    def of(cls, uri: str, namespace: str) -> "Address | None":
        """The address that a URI is to pods of a namespace; None if it is none."""
        try:
            url = urlsplit(uri)
            usual, port = _PORTS[url.scheme], url.port
        except (ValueError, KeyError):
            return None
        host, path = url.netloc.rpartition("@")[2], url.path.rstrip("/")
        found = _SERVICE.fullmatch(url.hostname or "")
        if found and (found["svc"] or found["namespace"] in (None, namespace)):
            return cls(url.scheme, host, port or usual, path, found["name"], found["namespace"] or namespace)
        return cls(url.scheme, host, port or usual, path) if host else None

    def __str__(self) -> str:
        return f"{self.scheme}://{self.host}{self.path}"


class _HttpAnswer(NamedTuple):
    status: int
    """0: none came."""
    said: str

    @property
    def is_good(self) -> bool:
        return self.status == HTTPStatus.OK

    def __str__(self) -> str:
        """In words, if it has any: Kubernetes and MLflow tell an error alike."""
        words = self.said
        with contextlib.suppress(ValueError, KeyError, TypeError):
            words = json.loads(self.said)["message"]
        is_page = words.lstrip().startswith("<")
        return " ".join(filter(None, (str(self.status or ""), "" if is_page else words)))


_Ask = Callable[[str, float], _HttpAnswer]
"""Asks for a path, and waits for so many seconds."""


def check_mlflow(api: client.ApiClient, address: Address, told: Mapping[str, str], runs: bool) -> Iterator[Finding]:
    """Whether MLflow answers, and reaches its store.

    Args:
        api: of the cluster.
        address: of MLflow.
        told: what the steps' Secret says, such as a name and a password.
        runs: whether a replica is available, as far as the cluster knows.
    """
    ask = _proxy_client(api, address) if address.service else _direct_client(address, told)
    what, store = f"MLflow at {address}", f"MLflow's store of artifacts at {address}"
    healthy = _health(what, ask(_HEALTH, _HEALTH_S), address, runs)
    yield healthy
    if healthy.is_good:
        yield _store(store, ask(_STORE, _STORE_S), address)
    else:
        yield Finding(store, "was not asked for", "Have MLflow answer first.", may_be_well=healthy.may_be_well)


def _proxy_client(api: client.ApiClient, address: Address) -> _Ask:
    """By the API server's proxy, which passes the Host header on: MLflow answers only to names that it knows."""
    settings = copy.copy(api.configuration)
    settings.safe_chars_for_path_param, settings.retries = "/:", False
    core = client.CoreV1Api(client.ApiClient(settings, "Host", address.host))
    get = core.connect_get_namespaced_service_proxy_with_path
    service = f"{'https:' if address.scheme == 'https' else ''}{address.service}:{address.port}"

    def ask(path: str, timeout_s: float) -> _HttpAnswer:
        where, limit = f"{address.path}{path}".lstrip("/"), (timeout_s, timeout_s)
        try:
            return _HttpAnswer(HTTPStatus.OK, get(service, address.namespace, where, _request_timeout=limit))
        except ApiException as error:
            return _HttpAnswer(error.status, error.body or str(error.reason))
        except UNREACHABLE as error:
            return _HttpAnswer(0, str(error))

    return ask


def _direct_client(address: Address, told: Mapping[str, str]) -> _Ask:
    name, password = (told.get(f"MLFLOW_TRACKING_{key}", "") for key in ("USERNAME", "PASSWORD"))
    headers = urllib3.make_headers(basic_auth=f"{name}:{password}") if name else {}
    if token := told.get("MLFLOW_TRACKING_TOKEN"):
        headers = {"Authorization": f"Bearer {token}"}
    pool = urllib3.PoolManager(retries=False)

    def ask(path: str, timeout_s: float) -> _HttpAnswer:
        try:
            answer = pool.request("GET", f"{address}{path}", headers=headers, timeout=timeout_s)
            return _HttpAnswer(answer.status, answer.data.decode(errors="replace"))
        except UNREACHABLE as error:
            return _HttpAnswer(0, str(error))

    return ask


def _health(what: str, answer: _HttpAnswer, address: Address, runs: bool) -> Finding:
    if answer.is_good:
        return Finding(what)
    if address.service and answer.status in REFUSED:
        return Finding(what, f"we may not ask: {answer}", "Ask with the right to get services/proxy in the namespace.")
    if answer.status:
        return Finding(what, f"answers {_HEALTH} with {answer}", _log_hint(address))
    if address.service and runs:
        remedy = f"Network policies that let only steps in keep the API server out as well. {_log_hint(address)}"
        return Finding(what, f"answers its probes, but not the API server: {answer}", remedy, may_be_well=True)
    return Finding(what, f"does not answer: {answer}", _log_hint(address))


def _store(what: str, answer: _HttpAnswer, address: Address) -> Finding:
    if answer.is_good:
        return Finding(what)
    if answer.status == HTTPStatus.FORBIDDEN and _FOREIGN_HOST in answer.said:
        remedy = "Add it to MLFLOW_SERVER_ALLOWED_HOSTS in MLflow's config map, or have steps use a name that is there."
        return Finding(what, f"MLflow does not know itself by the name {address.host!r}: {answer}", remedy)
    if not answer.status or answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        remedy = "See MLflow's log, its MLFLOW_ARTIFACTS_DESTINATION, and the keys in the Secret lingraft-object-store."
        return Finding(what, f"cannot be reached by MLflow: {answer}", remedy)
    remedy = (
        f"The API server passes no name and password on. {_log_hint(address)}"
        if address.service
        else _log_hint(address)
    )
    return Finding(what, f"could not be looked at: {answer}", remedy, may_be_well=bool(address.service))


def _log_hint(address: Address) -> str:
    """How a person sees more."""
    if not address.service:
        return "See that it runs, that its address is right, and the credentials in the steps' Secret."
    forward = f"kubectl -n {address.namespace} port-forward service/{address.service} {address.port}:{address.port}"
    return f"Look at its log, and yourself: {forward}"
