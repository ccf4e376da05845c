"""KServe's controller, as far as `lingraft deploy` looks: it makes a pod, and says in the status what became of it.

As the real one, it copies the predictor's annotations to pods, counts generations of the Deployment that it makes in
`observedGeneration` and not those of the InferenceService, and leaves an old pod until the new one is ready.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from lingraft.cli import app
from tests.steps.launch.api_server import ApiServer

Document = dict[str, Any]
PLURAL, LABEL = "inferenceservices", "serving.kserve.io/inferenceservice"
ADDRESS = "http://lingraft.example"


def container_status(name: str, waiting: Document | None = None, exit_code: int | None = None) -> Document:
    """As the kubelet reports a container."""
    ended = {"terminated": {"exitCode": exit_code}} if exit_code is not None else {}
    state = {"waiting": waiting} if waiting else {"running": {}}
    facts = {"name": name, "image": "x", "imageID": "x", "ready": waiting is None, "restartCount": int(bool(ended))}
    return facts | {"state": state, "lastState": ended}


@dataclass
class Cluster:
    """An API server, and a controller whose pods come to what a test says."""

    server: ApiServer
    containers: list[Document] = field(default_factory=list)
    """Statuses of init containers of new pods; none: all is well."""
    unscheduled: str = ""
    generation: int = 0
    child_generations: int = 0
    """By which the Deployment's generation is ahead, as after autoscaling."""
    status: Document = field(default_factory=dict)
    is_slow: bool = False
    """Whether the status stays that of the generation before."""

    @classmethod
    @contextmanager
    def opened(cls, folder: Path) -> Iterator["Cluster"]:
        """One that kubectl is set to."""
        cluster = cls(ApiServer())
        cluster.server.created = cluster._reconciled
        with cluster.server.serving(folder) as kubeconfig, pytest.MonkeyPatch.context() as patch:
            patch.setenv("KUBECONFIG", str(kubeconfig))
            yield cluster

    def service(self) -> Document:
        return self.server.objects[PLURAL, "lingraft"]

    def predictor(self) -> Document:
        found: Document = self.service()["spec"]["predictor"]
        return found

    def _reconciled(self, plural: str, made: Document) -> None:
        if plural != PLURAL:
            return
        self.generation += 1
        made["metadata"]["generation"] = self.generation
        made["spec"]["predictor"].setdefault("timeout", 60)  # KServe's webhook sets defaults of its own
        statuses = {"initContainerStatuses": self.containers, "phase": "Pending"}
        if self.unscheduled:
            condition = {"type": "PodScheduled", "status": "False", "message": self.unscheduled}
            statuses["conditions"] = [condition]
        annotations = made["spec"]["predictor"].get("annotations", {})
        metadata = {"name": self._pod(), "labels": {LABEL: "lingraft"}, "annotations": annotations}
        spec = {"containers": []} if self.unscheduled else {"containers": [], "nodeName": "one"}
        self.server.put("pods", {"metadata": metadata, "spec": spec, "status": statuses})
        made["status"] = self.status  # which a change of the object leaves as it is
        if not self.is_slow:
            self.settle(made)

    def settle(self, made: Document | None = None) -> None:
        """Say what has become of the newest generation."""
        service = json.loads(json.dumps(made or self.service()))
        is_well = not self.containers and not self.unscheduled
        ready: Document = {"type": "Ready", "status": str(is_well)}
        if not is_well:
            ready |= {"reason": "PredictorNotReady", "message": "no pod is ready"}
        observed = self.child_generations + self.generation
        self.status = {"observedGeneration": observed, "conditions": [ready], "url": ADDRESS}
        if is_well:
            pod = self.server.objects["pods", self._pod()]
            running = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
            self.server.put("pods", pod | {"status": running})
            for kind, name in [*self.server.objects]:
                if kind == "pods" and name != self._pod():
                    del self.server.objects[kind, name]
        self.server.put(PLURAL, service | {"status": self.status})

    def _pod(self) -> str:
        """Name of the newest pod."""
        return f"lingraft-predictor-{self.generation}"


def deploy(*arguments: str) -> str:
    """What `lingraft deploy ...` prints; its errors are raised."""
    ended = CliRunner().invoke(app, ["deploy", *arguments], catch_exceptions=False)
    assert ended.exit_code == 0, ended.output
    return ended.stdout


def told(*arguments: str) -> tuple[str, BaseException | None]:
    """What it says meanwhile, and the error that it ends with."""
    ended = CliRunner().invoke(app, ["deploy", *arguments])
    return ended.stderr, ended.exception
