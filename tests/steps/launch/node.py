"""A node of the tests' cluster: runs the pods of Jobs and TrainJobs as processes of this machine, and may vanish."""

import contextlib
import importlib
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fixtures import forked
from tests.steps.launch.api_kinds import Document, now
from tests.steps.launch.api_server import ApiServer
from tests.training.distributed.launch import free_port

_LOOK_EVERY_S = 0.02
_GRACE_S = 60
_NAME = "node-7"
"""As the cluster calls it."""


@dataclass
class Pod:
    """The process of a pod's one container, with all that it starts; nothing in a pod outlives it."""

    pid: int
    code: int | None = None
    """With which it has ended."""
    ended: threading.Event = field(default_factory=threading.Event)

    def send(self, number: int) -> None:
        """Send the container a signal."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill everything, also a process that has not made its group yet."""
        for kill in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError):
                kill(self.pid, signal.SIGKILL)

    def wait(self, seconds: float) -> int | None:
        """Wait for its end; returns its exit code, negative for a signal."""
        assert self.ended.wait(seconds)
        return self.code


@dataclass
class Node:
    """Where pods run."""

    server: ApiServer
    folder: Path
    """For the pods' logs."""
    secrets: Mapping[str, str]
    """What the Secret of tracking has."""
    processes: dict[str, Pod] = field(default_factory=dict)
    """By pod."""
    _threads: list[threading.Thread] = field(default_factory=list)

    def join(self) -> None:
        """Run what is created from now on."""
        self.server.created, self.server.deleted = self._created, self._deleted

    def vanish(self, pod: str, told: bool = True) -> None:
        """Lose the node of a pod: nobody on it can say a word any more."""
        if told:
            condition = {
                "type": "DisruptionTarget",
                "status": "True",
                "reason": "TerminationByKubelet",
                "message": "node is gone",
            }
            known = self.server.objects["pods", pod]
            known["status"]["conditions"] = [condition]
        else:
            self.server.remove("pods", pod)
        self.processes[pod].kill()

    def kill_for_memory(self, pod: str) -> None:
        """As the kernel does."""
        self.server.objects["pods", pod]["reason of death"] = "OOMKilled"
        self.processes[pod].kill()

    def close(self) -> None:
        """End everything."""
        for pod in self.processes.values():
            pod.kill()
        for thread in self._threads:
            thread.join()

    def _created(self, plural: str, made: Document) -> None:
        if plural == "jobs":
            template = made["spec"]["template"]
            self._start(plural, made, template["spec"]["containers"][0], template["metadata"]["labels"], {})
        if plural == "trainjobs":
            trainer, port = made["spec"]["trainer"], free_port()
            for number in range(trainer["numNodes"]):
                place = {
                    "PET_NNODES": str(trainer["numNodes"]),
                    "PET_NPROC_PER_NODE": str(trainer["numProcPerNode"]),
                    "PET_NODE_RANK": str(number),
                    "PET_MASTER_ADDR": "127.0.0.1",
                    "PET_MASTER_PORT": str(port),
                }
                labels = {
                    "jobset.sigs.k8s.io/jobset-name": made["metadata"]["name"],
                    "batch.kubernetes.io/job-completion-index": str(number),
                }
                self._start(plural, made, trainer | {"name": "node"}, labels, place)

    def _start(
        self, plural: str, owner: Document, container: Document, labels: Mapping[str, str], more: Mapping[str, str]
    ) -> None:
        """Start a pod's one container."""
        number = labels.get("batch.kubernetes.io/job-completion-index", "0")
        name = f"{owner['metadata']['name']}-{number}"
        environment = {one["name"]: self._value(one) for one in container["env"]} | more
        known = {name: value for name, value in environment.items() if value is not None}
        pod = {
            "metadata": {"name": name, "labels": dict(labels)},
            "spec": {"containers": [{"name": container["name"], "image": "x"}], "nodeName": _NAME},
        }
        running = _container_status(pod, {"running": {"startedAt": now()}})
        self.server.put("pods", pod | {"status": {"phase": "Running", "containerStatuses": [running]}})
        command, log = container["command"], self.folder / f"{name}.log"
        assert command[:2] == ["python", "-m"]
        child = forked.start(run, command[2], command[3:], known, log=log)
        self.processes[name] = Pod(child.pid)
        thread = threading.Thread(target=self._follow, args=(plural, owner, name, child), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _follow(self, plural: str, owner: Document, name: str, child: forked.Child) -> None:
        pod, workload = self.processes[name], owner["metadata"]["name"]
        with child.log.open(encoding="utf-8") as log:
            rest, runs = "", True
            while runs:
                runs = child.runs
                *lines, rest = (rest + log.read()).split("\n")
                self.server.logs[name] += lines
                time.sleep(_LOOK_EVERY_S if runs else 0)
        pod.code = child.ends()
        self._tell_of_end(name, pod.code)
        pod.ended.set()
        others = [one for other, one in self.processes.items() if other.startswith(workload)]
        if pod.code:
            self.server.end(plural, workload, "Failed", "BackoffLimitExceeded", "has reached the limit")
        elif all(one.code == 0 for one in others):
            self.server.end(plural, workload, "Complete")

    def _tell_of_end(self, name: str, code: int) -> None:
        """As the kubelet does; a pod that was deleted meanwhile goes when its process has."""
        pod = self.server.objects.get(("pods", name))
        if pod is None:
            return
        ended = {
            "exitCode": code if code >= 0 else 128 - code,
            "finishedAt": now(),
            "reason": pod.get("reason of death", "Error" if code else "Completed"),
        }
        pod["status"] |= {
            "phase": "Failed" if code else "Succeeded",
            "containerStatuses": [_container_status(pod, {"terminated": ended})],
        }
        self.server.put("pods", pod)
        if "deletionTimestamp" in pod["metadata"]:
            self.server.remove("pods", name)

    def _deleted(self, plural: str, gone: Document) -> None:
        """As Kubernetes ends the pods of what was deleted."""
        for name, process in self.processes.items():
            if plural not in ("jobs", "trainjobs") or not name.startswith(gone["metadata"]["name"]):
                continue
            if pod := self.server.objects.get(("pods", name)):
                pod["metadata"] |= {"deletionTimestamp": now(_GRACE_S), "deletionGracePeriodSeconds": _GRACE_S}
                if process.ended.is_set():
                    self.server.remove("pods", name)
            if not process.ended.is_set():
                process.send(signal.SIGTERM)

    def _value(self, one: Document) -> str | None:
        return str(one["value"]) if "value" in one else self.secrets.get(one["valueFrom"]["secretKeyRef"]["key"])


def _container_status(pod: Document, state: Document) -> Document:
    """What the kubelet reports of a pod's one container."""
    name = pod["spec"]["containers"][0]["name"]
    is_ready = "running" in state
    status = {"name": name, "image": "x", "imageID": "x", "ready": is_ready, "started": is_ready, "restartCount": 0}
    return status | {"state": state, "lastState": {}}


def run(module: str, arguments: Sequence[str], environment: Mapping[str, str]) -> Any:
    """Do what `python -m MODULE ...` would in a pod."""
    os.setsid()
    os.environ.update(environment)
    sys.argv = [module, *arguments]
    return importlib.import_module(module).main()
