"""The InferenceService of a deployment, as plain as its YAML.

Init containers download bundles from the registry, verified, before the server starts; the server is ready when every
language has passed its self-test. If champions are followed, a sidecar (an init container that keeps running, since
Kubernetes 1.29) polls the registry and publishes into a folder of the pod: the process that is open to the network has
no credentials of the registry.
"""

from lingraft.deployment.deployment import Deployment, RegisteredBundle
from lingraft.steps.launch.pods import CREDENTIAL_KEYS, TRACKING_KEYS, Manifest, container_security, pod_security

GROUP, API_VERSION, PLURAL = "serving.kserve.io", "v1beta1", "inferenceservices"
LABEL = f"{GROUP}/inferenceservice"
_PORT = 8080
_READY: Manifest = {"httpGet": {"path": "/v2/health/ready", "port": _PORT}}
_LIVE: Manifest = {"httpGet": {"path": "/v2/health/live", "port": _PORT}}
_MAX_START_S = 600
"""Time limit in seconds for reading and testing large bundles; a failure ends the pod at once."""
_ROOM = "10Gi"
"""Disk of each pod for the bundles, and again for what is published."""
_SECRET = "lingraft-mlflow"
"""Secret with the registry's address and credentials."""
_HELPER_RESOURCES = {"requests": {"cpu": "100m", "memory": "512Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}}


def inference_service(deployment: Deployment) -> Manifest:
    """Return the object for `kubectl apply`, or for the Kubernetes API."""
    annotations: Manifest = {f"{GROUP}/deploymentMode": deployment.mode}
    scaling: Manifest = {"minReplicas": deployment.replicas, "maxReplicas": deployment.max_replicas}
    if deployment.mode == "Knative":
        scaling |= {"scaleMetric": "concurrency", "scaleTarget": deployment.concurrency}
        if deployment.canary is not None:
            scaling["canaryTrafficPercent"] = deployment.canary
    elif deployment.max_replicas > deployment.replicas:
        annotations[f"{GROUP}/autoscalerClass"] = "keda"
        metric = {
            "backend": "prometheus",
            "serverAddress": deployment.prometheus,
            "query": f'avg(lingraft_requests{{pod=~"{deployment.name}-predictor-.*"}})',
        }
        target = {"type": "Value", "value": str(deployment.concurrency)}
        scaling["autoScaling"] = {"metrics": [{"type": "External", "external": {"metric": metric, "target": target}}]}
    return {
        "apiVersion": f"{GROUP}/{API_VERSION}",
        "kind": "InferenceService",
        "metadata": {"name": deployment.name, "annotations": annotations},
        "spec": {"predictor": scaling | _pod(deployment)},
    }


def _pod(deployment: Deployment) -> Manifest:
    champions = [bundle for bundle in deployment.models if deployment.follow and bundle.version is None]
    volumes = {"bundles": _ROOM, "tmp": "1Gi"} | ({"published": _ROOM} if deployment.follow else {})
    gpu_nodes = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    placement = {"tolerations": [gpu_nodes]} if deployment.gpus else {}
    return placement | {
        # In a Kubeflow profile Istio would add a sidecar, whose init container the pod security `restricted` refuses.
        "labels": {"sidecar.istio.io/inject": "false"},
        "serviceAccountName": "lingraft-serving",
        "priorityClassName": "lingraft-service",
        **pod_security(),
        "initContainers": [
            *(_downloader(deployment, bundle) for bundle in deployment.models),
            *(_follower(deployment, bundle) for bundle in champions),
        ],
        "containers": [_server(deployment)],
        "volumes": [{"name": name, "emptyDir": {"sizeLimit": room}} for name, room in volumes.items()],
    }


def _downloader(deployment: Deployment, bundle: RegisteredBundle) -> Manifest:
    version = [str(bundle.version)] if bundle.version else []
    arguments = ["registry", "pull", bundle.name, *version, f"--out=/bundles/{bundle.name}"]
    return _helper(deployment, "pull", bundle, arguments)


def _follower(deployment: Deployment, bundle: RegisteredBundle) -> Manifest:
    arguments = ["publish", "champion", bundle.name, "--to=/published", f"--started=/bundles/{bundle.name}"]
    arguments += [f"--endpoint={deployment.name}"]
    return _helper(deployment, "follow", bundle, arguments) | {"restartPolicy": "Always"}


def _helper(deployment: Deployment, work: str, bundle: RegisteredBundle, arguments: list[str]) -> Manifest:
    """Return a container that works on a bundle with the registry's credentials."""
    # Names of containers have fewer characters than those of bundles.
    name = f"{work}-{bundle.name.lower().replace('.', '-').replace('_', '-')[:50].rstrip('-')}"
    environment: list[Manifest] = [{"name": "HOME", "value": "/tmp"}]
    for key in (*TRACKING_KEYS, *CREDENTIAL_KEYS):
        if key.startswith("MLFLOW_"):
            reference = {"name": _SECRET, "key": key, "optional": key not in TRACKING_KEYS}
            environment.append({"name": key, "valueFrom": {"secretKeyRef": reference}})
    return _container(deployment, name, arguments, _HELPER_RESOURCES) | {"env": environment}


def _server(deployment: Deployment) -> Manifest:
    gpus = {"nvidia.com/gpu": str(deployment.gpus)} if deployment.gpus else {}
    resources = {"cpu": deployment.cpu, "memory": deployment.memory, **gpus}
    arguments = [
        "serve",
        *(f"/bundles/{bundle.name}" for bundle in deployment.models),
        f"--port={_PORT}",
        "--grpc-port=0",
    ]
    arguments += ["--follow=/published"] if deployment.follow else []
    return _container(deployment, "kserve-container", arguments, {"requests": resources, "limits": dict(resources)}) | {
        "env": [{"name": "HOME", "value": "/tmp"}],
        "ports": [{"name": "http1", "containerPort": _PORT, "protocol": "TCP"}],
        "startupProbe": _READY | {"periodSeconds": 2, "failureThreshold": _MAX_START_S // 2},
        "readinessProbe": _READY | {"periodSeconds": 5, "timeoutSeconds": 2},
        "livenessProbe": _LIVE | {"periodSeconds": 10, "timeoutSeconds": 5},
    }


def _container(deployment: Deployment, name: str, arguments: list[str], resources: Manifest) -> Manifest:
    mounts = {"bundles": "/bundles", "tmp": "/tmp"} | ({"published": "/published"} if deployment.follow else {})
    return {
        "name": name,
        "image": deployment.image,
        "command": ["lingraft", arguments[0]],
        "args": arguments[1:],
        "resources": resources,
        "securityContext": container_security(),
        "volumeMounts": [{"name": volume, "mountPath": path} for volume, path in mounts.items()],
    }
