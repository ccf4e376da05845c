"""Kubernetes settings of KFP tasks, from the recipe's profiles. Local runs ignore them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kfp import dsl, kubernetes
from kfp.dsl import pipeline_channel

from lingraft import ranks
from lingraft.artifacts.cache import RESULTS_VARIABLE
from lingraft.config.cluster import Cluster, Profile, StageName
from lingraft.config.search import SEARCH_STORAGE
from lingraft.steps import runner
from lingraft.training import metrics

USER_ID = 10001
"""User id of the images; the namespace's pod security admits no root."""
TRACKING_KEYS = ("MLFLOW_TRACKING_URI",)
CREDENTIAL_KEYS = ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN", SEARCH_STORAGE)
"""Keys that the same Secret may have."""
STORAGE_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "AWS_REGION")
HUB_KEYS = ("HF_TOKEN",)
CACHES = {"LINGRAFT_CACHE": "lingraft", "HF_HOME": "huggingface"}
"""Cache folders on the claim by environment variable, so that downloads outlive the pods."""
METRICS_PORT = 9400
METRICS_LABEL = "lingraft.io/metrics"
"""Label of pods that serve metrics at that port while they train, by which Prometheus finds them."""
UNDISTURBED = {"karpenter.sh/do-not-disrupt": "true", "cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
"""Annotations by which Karpenter and the cluster autoscaler leave a pod's node alone until the pod has ended."""


@dataclass(frozen=True)
class StepSettings:
    """Settings of all steps of a pipeline."""

    cluster: Cluster
    asks: Mapping[str, Any]
    """Settings of a run that replace the recipe's: values or pipeline channels, by names such as `mini_memory`."""


def tolerated(profile: Profile) -> list[dict[str, str]]:
    """Return the tolerations of a profile as plain data."""
    return [each.model_dump() for each in profile.tolerations]


def configure_light(task: dsl.PipelineTask, step_settings: StepSettings) -> dsl.PipelineTask:
    """Configure a step that checks, looks up, registers or reports."""
    return _place(task, step_settings.cluster, step_settings.cluster.light, {})


def configure_data(task: dsl.PipelineTask, step_settings: StepSettings) -> dsl.PipelineTask:
    """Configure a step that reads all text of a language, for hours where there is much."""
    _leave_undisturbed(task)
    return _place(task, step_settings.cluster, step_settings.cluster.data_profile, {})


def configure_training(task: dsl.PipelineTask, step_settings: StepSettings, stage: StageName) -> dsl.PipelineTask:
    """Configure a step that trains, with one process for each accelerator."""
    cluster = step_settings.cluster
    profile = step_settings.cluster.profile_of(stage)
    _leave_undisturbed(task)
    if profile.accelerator:
        task.set_env_variable(ranks.PROCESSES_VARIABLE, ranks.ALL_PROCESSES)  # a run may set a larger number
    task.set_env_variable(metrics.PORT, str(METRICS_PORT))
    kubernetes.add_pod_label(task, METRICS_LABEL, "true")
    own = f"{stage}_"
    asked = {name.removeprefix(own): value for name, value in step_settings.asks.items() if name.startswith(own)}
    # KFP's setters of resources do not register channels, and a loop around the step would lack the parameters.
    task.register_pipeline_channels(pipeline_channel.extract_pipeline_channels_from_any([*asked.values()]))
    return _place(task, cluster, profile, asked)


def _leave_undisturbed(task: dsl.PipelineTask) -> None:
    for name, value in UNDISTURBED.items():
        kubernetes.add_pod_annotation(task, name, value)


def _place(task: dsl.PipelineTask, cluster: Cluster, profile: Profile, asked: Mapping[str, Any]) -> dsl.PipelineTask:
    task.set_container_image(cluster.image).set_caching_options(False)
    task.set_env_variable(runner.RETRIES, str(profile.retries))
    cpu = asked.get("cpu", profile.cpu)
    memory = asked.get("memory", profile.memory)
    task.set_cpu_request(cpu).set_cpu_limit(cpu).set_memory_request(memory).set_memory_limit(memory)
    for name, value in variables(cluster).items():
        task.set_env_variable(name, value)
    _add_nodes(task, profile, asked)
    kubernetes.set_security_context(task, run_as_user=USER_ID, run_as_group=USER_ID, run_as_non_root=True)
    for secret, keys, optional in secrets(cluster):
        kubernetes.use_secret_as_env(task, secret, {key: key for key in keys}, optional=optional)
    kubernetes.mount_pvc(task, pvc_name=cluster.storage_claim, mount_path=cluster.storage_path)
    return task


def _add_nodes(task: dsl.PipelineTask, profile: Profile, asked: Mapping[str, Any]) -> None:
    if profile.accelerator:
        task.set_accelerator_type(asked.get("accelerator", profile.accelerator))
        task.set_accelerator_limit(asked.get("accelerator_count", profile.accelerator_count))
    if selector := asked.get("node_selector", profile.node_selector):
        kubernetes.add_node_selector_json(task, selector)
    kubernetes.add_toleration_json(task, asked.get("tolerations", tolerated(profile)))
    if profile.shared_memory:
        kubernetes.empty_dir_mount(
            task, volume_name="shm", mount_path="/dev/shm", medium="Memory", size_limit=profile.shared_memory
        )


def variables(cluster: Cluster) -> dict[str, str]:
    """Return the environment variables of every step; the image's user has no home folder."""
    plain = {"HOME": "/tmp", RESULTS_VARIABLE: cluster.results_place}
    return plain | {name: f"{cluster.storage_path}/{folder}" for name, folder in CACHES.items()}


def secrets(cluster: Cluster) -> Sequence[tuple[str, Sequence[str], bool]]:
    """Return the Secrets of every step: name, keys, and whether they are optional."""
    tracking = (cluster.tracking_secret, TRACKING_KEYS, False), (cluster.tracking_secret, CREDENTIAL_KEYS, True)
    storage = ((cluster.storage_secret, STORAGE_KEYS, True),) if cluster.storage_secret else ()
    hub = ((cluster.hub_secret, HUB_KEYS, False),) if cluster.hub_secret else ()
    return *tracking, *storage, *hub
