"""The InferenceService of a deployment, as plain as its YAML.

Init containers bring bundles from the registry, verified, before the server starts; the server is ready when every
language has given its golden answers. Where champions are followed, a sidecar (an init container that goes on, as
Kubernetes has them since 1.29) asks the registry and publishes into a folder of the pod: the process that strangers
talk to has no credentials of the registry.
"""

from typing import Any

from lingraft.deployment.deployment import Deployment, RegisteredBundle, parse_model_uri
from lingraft.steps.launch.pods import CREDENTIAL_KEYS, TRACKING_KEYS, USER_ID, container_security

GROUP, API_VERSION, PLURAL = "serving.kserve.io", "v1beta1", "inferenceservices"
LABEL = f"{GROUP}/inferenceservice"
MODE, AUTOSCALER = f"{GROUP}/deploymentMode", f"{GROUP}/autoscalerClass"
SERVER = "kserve-container"
_BUNDLES, _PUBLISHED, _PORT = "/bundles", "/published", 8080
_READY: dict[str, Any] = {"httpGet": {"path": "/v2/health/ready", "port": _PORT}}
_LIVE: dict[str, Any] = {"httpGet": {"path": "/v2/health/live", "port": _PORT}}
_SLOWEST_START_S = 600
"""For reading and trying large bundles; a failure ends the pod at once and not only then."""
_DRAIN_S = 60
"""From SIGTERM to SIGKILL; the server finishes what it has taken on within 30."""
_HELPER = {"requests": {"cpu": "100m", "memory": "512Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}}

Manifest = dict[str, Any]


def inference_service(deployment: Deployment) -> Manifest:
    """An object for `kubectl apply`, or for the Kubernetes API."""
    annotations = {MODE: deployment.mode} | ({AUTOSCALER: "keda"} if _scales_by_prometheus(deployment) else {})
    return {
        "apiVersion": f"{GROUP}/{API_VERSION}",
        "kind": "InferenceService",
        "metadata": {"name": deployment.name, "annotations": annotations},
        "spec": {"predictor": _scale(deployment) | _pod(deployment)},
    }


def _scale(deployment: Deployment) -> Manifest:
    """How many pods there are."""
    found: Manifest = {"minReplicas": deployment.replicas, "maxReplicas": deployment.max_replicas}
    if deployment.mode == "Knative":
        found |= {"scaleMetric": "concurrency", "scaleTarget": deployment.concurrency}
        return found if deployment.canary is None else found | {"canaryTrafficPercent": deployment.canary}
    if _scales_by_prometheus(deployment):
        metric = {
            "backend": "prometheus",
            "serverAddress": deployment.prometheus,
            "query": f'avg(lingraft_requests{{pod=~"{deployment.name}-predictor-.*"}})',
        }
        target = {"type": "Value", "value": str(deployment.concurrency)}
        found["autoScaling"] = {"metrics": [{"type": "External", "external": {"metric": metric, "target": target}}]}
    return found


def _scales_by_prometheus(deployment: Deployment) -> bool:
    return deployment.mode == "Standard" and deployment.max_replicas > deployment.replicas


def _pod(deployment: Deployment) -> Manifest:
    models = [parse_model_uri(uri) for uri in deployment.models]
    champions = [model for model in models if deployment.follow and model.version is None]
    volumes = {"bundles": deployment.room, "tmp": "1Gi"} | ({"published": deployment.room} if deployment.follow else {})
    return _placement(deployment) | {
        "serviceAccountName": "lingraft-serving",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "priorityClassName": "lingraft-service",
        "terminationGracePeriodSeconds": _DRAIN_S,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER_ID,
            "runAsGroup": USER_ID,
            "fsGroup": USER_ID,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "initContainers": [
            *(_pull(deployment, model) for model in models),
            *(_follower(deployment, model) for model in champions),
        ],
        "containers": [_server(deployment, models)],
        "volumes": [{"name": name, "emptyDir": {"sizeLimit": room}} for name, room in volumes.items()],
    }


def _placement(deployment: Deployment) -> Manifest:
    """GPU nodes let in only those who say that they may."""
    gpu = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    return {"tolerations": [gpu]} if deployment.gpus else {}


def _pull(deployment: Deployment, model: RegisteredBundle) -> Manifest:
    """Brings a bundle; what is damaged does not arrive, and the pod does not start."""
    command = ["lingraft", "registry", "pull", model.name, *([str(model.version)] if model.version else [])]
    return _container(
        deployment, f"pull-{_container_name(model)}", [*command, f"--out={_bundle_folder(model)}"], _HELPER
    ) | {"env": _environment(deployment)}


def _server(deployment: Deployment, models: list[RegisteredBundle]) -> Manifest:
    gpus = {"nvidia.com/gpu": str(deployment.gpus)} if deployment.gpus else {}
    room = {"cpu": deployment.cpu, "memory": deployment.memory, **gpus}
    published = [f"--follow={_PUBLISHED}"] if deployment.follow else []
    command = ["lingraft", "serve", *map(_bundle_folder, models), f"--port={_PORT}", "--grpc-port=0", *published]
    return _container(deployment, SERVER, command, {"requests": room, "limits": dict(room)}) | {
        "env": [{"name": "HOME", "value": "/tmp"}],
        "ports": [{"name": "http1", "containerPort": _PORT, "protocol": "TCP"}],
        "startupProbe": _READY | {"periodSeconds": 2, "failureThreshold": _SLOWEST_START_S // 2},
        "readinessProbe": _READY | {"periodSeconds": 5, "timeoutSeconds": 2},
        "livenessProbe": _LIVE | {"periodSeconds": 10, "timeoutSeconds": 5},
    }


def _follower(deployment: Deployment, model: RegisteredBundle) -> Manifest:
    command = [
        "lingraft",
        "publish",
        "champion",
        model.name,
        f"--to={_PUBLISHED}",
        f"--started={_bundle_folder(model)}",
    ]
    command += [f"--endpoint={deployment.name}"]
    return _container(deployment, f"follow-{_container_name(model)}", command, _HELPER) | {
        "restartPolicy": "Always",
        "env": _environment(deployment),
    }


def _container(deployment: Deployment, name: str, command: list[str], resources: Manifest) -> Manifest:
    mounts = {"bundles": _BUNDLES, "tmp": "/tmp"} | ({"published": _PUBLISHED} if deployment.follow else {})
    return {
        "name": name,
        "image": deployment.image,
        "command": command[:2],
        "args": command[2:],
        "resources": resources,
        "securityContext": container_security(),
        "volumeMounts": [{"name": volume, "mountPath": path} for volume, path in mounts.items()],
    }


def _environment(deployment: Deployment) -> list[Manifest]:
    """Of those who ask the registry."""
    keys = [(key, key not in TRACKING_KEYS) for key in (*TRACKING_KEYS, *CREDENTIAL_KEYS) if key.startswith("MLFLOW_")]
    return [{"name": "HOME", "value": "/tmp"}] + [
        {"name": key, "valueFrom": {"secretKeyRef": {"name": deployment.secret, "key": key, "optional": optional}}}
        for key, optional in keys
    ]


def _bundle_folder(model: RegisteredBundle) -> str:
    return f"{_BUNDLES}/{model.name}"


def _container_name(model: RegisteredBundle) -> str:
    """As Kubernetes allows names of containers, which are shorter than the registry's."""
    return model.name.lower().replace(".", "-").replace("_", "-")[:50].rstrip("-")
