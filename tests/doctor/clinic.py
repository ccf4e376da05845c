"""A cluster that has all that a recipe asks for, until a test takes something away."""

import base64
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from lingraft.config.cluster import Cluster, Profile
from lingraft.doctor import Finding, examine
from lingraft.steps.launch.on_cluster import connect
from tests.steps.launch.api_server import ApiServer

GPU = Profile(
    accelerator="nvidia.com/gpu", accelerator_count=4, nodes=2, shared_memory="1Gi", node_selector={"pool": "gpu"}
)
CLUSTER = Cluster(stages={"pretraining": GPU, "adaptation": Profile(priority_class="lingraft-training")})
KINDS = ("workflows.argoproj.io", "inferenceservices.serving.kserve.io", "trainjobs.trainer.kubeflow.org")
ROOM = {"cpu": "64", "memory": "256Gi", "nvidia.com/gpu": "8"}
ARTIFACTS = "/api/2.0/mlflow-artifacts/artifacts"
SILENT = 0
"""Status of an answer that does not come."""


@dataclass
class Answers:
    """A server that answers as MLflow does when all is well, or as a test says; the real one is in tests/manifests."""

    by_path: dict[str, tuple[int, str]] = field(default_factory=lambda: {ARTIFACTS: (200, "{}")})
    asked: list[tuple[str, Mapping[str, str]]] = field(default_factory=list)
    """Paths, with headers."""

    @contextmanager
    def serving(self) -> Iterator[str]:
        """Its address."""
        server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"answers": self}))
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    answers: Answers

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self.answers.asked.append((self.path, dict(self.headers)))
        status, text = self.answers.by_path.get(self.path, (404, "no such path"))
        if status == SILENT:
            return time.sleep(1)
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text.encode())


@dataclass
class Clinic:
    """The cluster, its MLflow, and what the doctor finds there."""

    server: ApiServer
    mlflow: Answers
    cluster: Cluster = CLUSTER

    @classmethod
    @contextmanager
    def opened(cls, folder: Path) -> Iterator["Clinic"]:
        """One that kubectl is set to, and that has everything; its configuration lies in a folder."""
        clinic = cls(ApiServer(), Answers())
        with clinic.server.serving(folder) as kubeconfig, clinic.mlflow.serving() as address:
            os.environ["KUBECONFIG"] = str(kubeconfig)
            clinic.server.services["mlflow:5000"] = address
            clinic._furnish()
            yield clinic

    def findings(self) -> dict[str, Finding]:
        """By what was looked at."""
        api, namespace = connect()
        return {each.what: each for each in examine(api, namespace, self.cluster)}

    def the_gap(self) -> Finding:
        """The only one."""
        (gap,) = (each for each in self.findings().values() if not each.is_good)
        return gap

    def add(self, plural: str, name: str, **more: Any) -> None:
        """Put an object there."""
        self.server.put(plural, {"metadata": {"name": name}, **more})

    def add_node(self, name: str, room: Mapping[str, str], labels: Mapping[str, str], **spec: Any) -> None:
        """Put a node there."""
        self.server.put("nodes", {"metadata": {"name": name, "labels": labels}, "spec": spec, **_gives(room)})

    def add_secret(self, name: str, **values: str) -> None:
        """Put a Secret there."""
        self.add("secrets", name, data={key: base64.b64encode(each.encode()).decode() for key, each in values.items()})

    def end_preparation(self, claim: str = "lingraft-data", **status: Any) -> None:
        """Put the Job there that tries to write to a claim."""
        volume = {"name": "data", "persistentVolumeClaim": {"claimName": claim}}
        containers = [{"name": "prepare", "image": "x"}]
        pod = {"containers": containers, "restartPolicy": "Never", "volumes": [volume]}
        self.add("jobs", "prepare-claim", spec={"template": {"spec": pod}}, status=status)

    def _furnish(self) -> None:
        self.add("namespaces", "lingraft")
        for kind in KINDS:
            names = {"kind": "X", "plural": "xs"}
            self.add(
                "customresourcedefinitions", kind, spec={"group": "x", "names": names, "scope": "x", "versions": []}
            )
        self.add("clustertrainingruntimes", "lingraft-torch")
        claim = {"accessModes": ["ReadWriteMany"], "storageClassName": "shared"}
        self.add("persistentvolumeclaims", "lingraft-data", spec=claim, status={"phase": "Bound"})
        self.add("storageclasses", "shared", provisioner="x", volumeBindingMode="Immediate")
        for name in ("one", "two"):
            self.add_node(name, ROOM, {"pool": "gpu"})
        self.add("priorityclasses", "lingraft-training", value=1000)
        self.add("serviceaccounts", "lingraft-pipeline")
        self.end_preparation(succeeded=1)
        self.add_secret("lingraft-mlflow", MLFLOW_TRACKING_URI="http://mlflow:5000")


def _gives(room: Mapping[str, str]) -> dict[str, Any]:
    return {"status": {"allocatable": dict(room)}}
