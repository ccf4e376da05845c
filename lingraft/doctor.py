"""What a cluster lacks for a recipe, before its first run: every gap with what to do about it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import urllib3
from kubernetes import client
from kubernetes.client.rest import ApiException

from lingraft.cluster import Cluster, Profile, amount
from lingraft.config import Recipe
from lingraft.launch.pods import TRACKING_KEYS

_NOT_FOUND, _FORBIDDEN = 404, 403
_PIPELINE = "lingraft-pipeline"
"""Service account of steps that launch others."""
_LAUNCHING = (
    ("batch", "jobs", "create"),
    ("batch", "jobs", "watch"),
    ("batch", "jobs", "delete"),
    ("", "pods", "list"),
    ("", "pods/log", "get"),
)


class Finding(NamedTuple):
    """What was looked at, and what is wrong with it."""

    what: str
    gap: str = ""
    """Empty if nothing is."""
    remedy: str = ""

    @property
    def is_good(self) -> bool:
        """Whether nothing is to be done."""
        return not self.gap


@dataclass(frozen=True)
class Doctor:
    """Looks at one namespace of a cluster, for one recipe."""

    api: client.ApiClient
    namespace: str
    recipe: Recipe

    @property
    def _cluster(self) -> Cluster:
        return self.recipe.cluster

    def findings(self) -> Iterator[Finding]:
        """Everything that was looked at, in the order in which to mend it."""
        yield self._there("the cluster's API", lambda: client.VersionApi(self.api).get_code(), "Check KUBECONFIG.")
        yield self._there(
            f"namespace {self.namespace}",
            lambda: self._core.read_namespace(self.namespace),
            "Apply an overlay: kubectl apply -k manifests/overlays/prod",
        )
        yield from self._kinds()
        yield from self._storage()
        yield self._secret()
        yield from (self._room(name, profile) for name, profile in self._profiles().items())
        yield from self._priorities()
        yield from self._rights()
        yield self._mlflow()
        if self._cluster.results and "://" in self._cluster.results:
            yield _object_store(self._cluster.results)

    @property
    def _core(self) -> client.CoreV1Api:
        return client.CoreV1Api(self.api)

    def _profiles(self) -> dict[str, Profile]:
        cluster = self._cluster
        stages = {str(stage): profile for stage, profile in cluster.stages.items()}
        return {"light": cluster.light, "training": cluster.training, **stages}

    def _kinds(self) -> Iterator[Finding]:
        wanted = {
            "workflows.argoproj.io": "Install Kubeflow Pipelines, with this namespace as one of its profiles.",
            "inferenceservices.serving.kserve.io": "Install KServe 0.17 or later, to serve what is learned.",
        }
        together = any(profile.launched == "TrainJob" for profile in self._profiles().values())
        if together:
            wanted["trainjobs.trainer.kubeflow.org"] = (
                "Install Kubeflow Trainer 2.3 or later: stages on nodes together."
            )
        definitions = client.ApiextensionsV1Api(self.api)
        for name, remedy in wanted.items():
            read = definitions.read_custom_resource_definition
            yield self._there(f"kind {name}", lambda read=read, name=name: read(name), remedy)  # type: ignore[misc]
        if together:
            runtime = self._cluster.runtime
            where = "trainer.kubeflow.org", "v1alpha1", "clustertrainingruntimes", runtime
            read_runtime = client.CustomObjectsApi(self.api).get_cluster_custom_object
            remedy = "Apply manifests/overlays/prod/training.yaml, or name yours in cluster.runtime of the recipe."
            yield self._there(f"training runtime {runtime}", lambda: read_runtime(*where), remedy)

    def _storage(self) -> Iterator[Finding]:
        claim = self._cluster.storage_claim
        what = f"volume claim {claim}"
        remedy = "Apply an overlay, or name yours in cluster.storage_claim of the recipe."
        found: list[Any] = []
        yield self._there(what, lambda: found.append(self._claim(claim)), remedy)
        for each in found:
            if each.status.phase != "Bound":
                name = each.spec.storage_class_name
                classes = [one.metadata.name for one in client.StorageV1Api(self.api).list_storage_class().items]
                gap = f"is {each.status.phase}, of storage class {name!r}; the cluster has {classes}"
                yield Finding(
                    what,
                    gap,
                    "Choose one of them in an overlay's storage.yaml; a claim that waits for its first pod is well.",
                )
            elif self._cluster.parallel_languages > 1 and "ReadWriteMany" not in each.spec.access_modes:
                gap = f"can be mounted on one node only ({', '.join(each.spec.access_modes)})"
                remedy = "On a cluster of several nodes, choose a storage class that can do ReadWriteMany."
                yield Finding(f"{what} on several nodes", gap, remedy)

    def _claim(self, name: str) -> Any:
        return self._core.read_namespaced_persistent_volume_claim(name, self.namespace)

    def _secret(self) -> Finding:
        name = self._cluster.tracking_secret
        remedy = (
            f"Create it: kubectl -n {self.namespace} create secret generic {name} --from-literal={TRACKING_KEYS[0]}=..."
        )
        found: list[Any] = []
        read = self._core.read_namespaced_secret
        finding = self._there(f"Secret {name}", lambda: found.append(read(name, self.namespace)), remedy)
        missing = [key for each in found for key in TRACKING_KEYS if key not in (each.data or {})]
        return Finding(f"Secret {name}", f"has no key {', '.join(missing)}", remedy) if missing else finding

    def _room(self, name: str, profile: Profile) -> Finding:
        """Whether a node of today could take a pod; a pool that grows may have none before it is asked."""
        what = f"a node for profile {name!r}"
        nodes = [node for node in self._core.list_node().items if _fits(node.metadata.labels or {}, profile)]
        if any(_takes(node.status.allocatable, profile) for node in nodes):
            return Finding(what)
        wanted = f"{profile.cpu} CPU, {profile.memory}"
        if profile.accelerator:
            wanted += f", {profile.accelerator_count} {profile.accelerator}"
        gap = f"none of {len(nodes)} nodes with its labels {profile.node_selector or '(any)'} could ever give {wanted}"
        remedy = (
            "Check the pool's labels and device plugin, or ask for less. Where the pool grows on demand, it may do."
        )
        return Finding(what, gap, remedy)

    def _priorities(self) -> Iterator[Finding]:
        read = client.SchedulingV1Api(self.api).read_priority_class
        for name in sorted({each.priority_class for each in self._profiles().values() if each.priority_class}):
            remedy = "Apply an overlay, or name one that `kubectl get priorityclasses` has."
            yield self._there(f"priority class {name}", lambda name=name: read(name), remedy)  # type: ignore[misc]

    def _rights(self) -> Iterator[Finding]:
        if not any(profile.launched for profile in self._profiles().values()):
            return
        user, what = f"system:serviceaccount:{self.namespace}:{_PIPELINE}", f"{_PIPELINE} may launch steps"
        missing = [f"{verb} {kind}" for group, kind, verb in _LAUNCHING if not self._may(user, group, kind, verb)]
        gap = f"it may not {', '.join(missing)}" if missing else ""
        yield Finding(what, gap, "Apply manifests/base/launcher.yaml, and submit runs with that service account.")

    def _may(self, user: str, group: str, kind: str, verb: str) -> bool:
        resource, _, part = kind.partition("/")
        asked = client.V1ResourceAttributes(
            namespace=self.namespace, group=group, resource=resource, subresource=part or None, verb=verb
        )
        review = client.V1SubjectAccessReview(
            spec=client.V1SubjectAccessReviewSpec(user=user, resource_attributes=asked)
        )
        return bool(client.AuthorizationV1Api(self.api).create_subject_access_review(review).status.allowed)

    def _mlflow(self) -> Finding:
        remedy = f"Look at it: kubectl -n {self.namespace} describe deployment mlflow, and its log."
        found: list[Any] = []
        read = client.AppsV1Api(self.api).read_namespaced_deployment
        finding = self._there("MLflow", lambda: found.append(read("mlflow", self.namespace)), remedy)
        idle = [each for each in found if not each.status.available_replicas]
        return Finding("MLflow", "none of its replicas is available", remedy) if idle else finding

    def _there(self, what: str, look: Callable[[], object], remedy: str) -> Finding:
        try:
            look()
        except ApiException as error:
            if error.status == _FORBIDDEN:
                return Finding(what, f"we may not look: {error.reason}", "Ask with the rights of an administrator.")
            return Finding(what, "is not there" if error.status == _NOT_FOUND else f"{error.reason}", remedy)
        except urllib3.exceptions.HTTPError as error:
            return Finding(what, f"cannot be reached: {error}", "Check KUBECONFIG and the network.")
        return Finding(what)


def _fits(labels: Mapping[str, str], profile: Profile) -> bool:
    return profile.node_selector.items() <= labels.items()


def _takes(allocatable: Mapping[str, str], profile: Profile) -> bool:
    wanted = {"cpu": profile.cpu, "memory": profile.memory}
    if profile.accelerator:
        wanted[profile.accelerator] = str(profile.accelerator_count)
    return all(amount(allocatable.get(name, "0")) >= amount(quantity) for name, quantity in wanted.items())


def _object_store(uri: str) -> Finding:
    """Whether it can be read from here, with the keys of this environment."""
    from lingraft.errors import LingraftError
    from lingraft.places import Remote, names_in

    what = f"object store {uri}"
    try:
        names_in(Remote.of(uri))
    except FileNotFoundError:
        return Finding(what)  # nothing has been put there yet
    except (LingraftError, OSError) as error:
        return Finding(what, f"cannot be read: {error}", "Check the address, and the keys in the environment.")
    return Finding(what)
