"""A node of the tests' cluster: runs the pods of Jobs and TrainJobs as processes of this machine, and may vanish."""

import contextlib
import datetime
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.launch.api_server import ApiServer

Document = dict[str, Any]


@dataclass
class Node:
    """Where pods run."""

    server: ApiServer
    secrets: Mapping[str, str]
    """What the Secret of tracking has."""
    processes: dict[str, subprocess.Popen[str]] = field(default_factory=dict)
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
        _kill(self.processes[pod])

    def kill_for_memory(self, pod: str) -> None:
        """As the kernel does."""
        self.server.objects["pods", pod]["reason of death"] = "OOMKilled"
        _kill(self.processes[pod])

    def close(self) -> None:
        """End everything."""
        for process in self.processes.values():
            _kill(process)
        for thread in self._threads:
            thread.join()

    def _created(self, plural: str, made: Document) -> None:
        if plural == "jobs":
            container = made["spec"]["template"]["spec"]["containers"][0]
            labels = {"batch.kubernetes.io/job-name": made["metadata"]["name"]}
            self._start(plural, made, container, labels, {})
        if plural == "trainjobs":
            trainer, port = made["spec"]["trainer"], _free_port()
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
                self._start(plural, made, trainer, labels, place)

    def _start(
        self, plural: str, owner: Document, container: Document, labels: dict[str, str], more: Mapping[str, str]
    ) -> None:
        """Start a pod's one container."""
        number = labels.get("batch.kubernetes.io/job-completion-index", "0")
        name = f"{owner['metadata']['name']}-{number}"
        environment = {one["name"]: self._value(one) for one in container["env"]} | more
        known = {name: value for name, value in environment.items() if value is not None}
        command = [sys.executable, *container["command"][1:]]
        self.server.put("pods", {"metadata": {"name": name, "labels": labels}, "status": {"phase": "Running"}})
        process = subprocess.Popen(
            command,
            env=os.environ | known,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.processes[name] = process
        thread = threading.Thread(target=self._follow, args=(plural, owner, name, process), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _follow(self, plural: str, owner: Document, name: str, process: subprocess.Popen[str]) -> None:
        with process:
            for line in process.stdout or ():
                self.server.logs[name].append(line.rstrip("\n"))
        code = process.returncode
        exit_code = code if code >= 0 else 128 - code
        if pod := self.server.objects.get(("pods", name)):
            now = datetime.datetime.now(datetime.UTC).isoformat()
            ended = {
                "exitCode": exit_code,
                "finishedAt": now,
                "reason": pod.get("reason of death", "Error" if code else "Completed"),
            }
            status = {"name": "step", "image": "", "imageID": "", "ready": False, "restartCount": 0}
            pod["status"] |= {
                "phase": "Failed" if code else "Succeeded",
                "containerStatuses": [status | {"state": {"terminated": ended}}],
            }
            self.server.put("pods", pod)
        others = [one for other, one in self.processes.items() if other.startswith(owner["metadata"]["name"])]
        if code:
            self.server.end(
                plural, owner["metadata"]["name"], "Failed", "BackoffLimitExceeded", "has reached the limit"
            )
        elif all(one.poll() == 0 for one in others):
            self.server.end(plural, owner["metadata"]["name"], "Complete")

    def _deleted(self, plural: str, gone: Document) -> None:
        """As Kubernetes ends the pods of what was deleted."""
        for name, process in self.processes.items():
            if plural in ("jobs", "trainjobs") and name.startswith(gone["metadata"]["name"]) and process.poll() is None:
                process.send_signal(signal.SIGTERM)

    def _value(self, one: Document) -> str | None:
        return str(one["value"]) if "value" in one else self.secrets.get(one["valueFrom"]["secretKeyRef"]["key"])


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _kill(process: subprocess.Popen[str]) -> None:
    """With all that it has started: nothing in a pod outlives it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
