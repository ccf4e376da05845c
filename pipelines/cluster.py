"""Kubernetes settings of KFP tasks, from the recipe's profiles. Local runs ignore them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kfp import dsl, kubernetes
from kfp.dsl import pipeline_channel

from lingraft import ranks
from lingraft.config.cluster import Cluster, Profile, StageName
from lingraft.steps.launch import launcher
from lingraft.steps.launch.pods import METRICS_LABEL, METRICS_PORT, USER_ID, annotations, secrets, variables
from lingraft.training import metrics


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
    _annotate(task, step_settings.cluster.data_profile)
    return _place(task, step_settings.cluster, step_settings.cluster.data_profile, {})


def configure_training(task: dsl.PipelineTask, step_settings: StepSettings, stage: StageName) -> dsl.PipelineTask:
    """Configure a step that trains, with one process for each accelerator.

    Profiles that KFP cannot express or survive are launched from a small step: accelerators, preemptible nodes,
    several nodes, ephemeral storage, priority classes, time limits.
    """
    cluster = step_settings.cluster
    profile = step_settings.cluster.profile_of(stage)
    _annotate(task, cluster.launcher if profile.launched else profile)
    if profile.launched:
        task.set_env_variable(launcher.STAGE, stage)
        return _place(task, cluster, cluster.launcher, {})
    if profile.accelerator:
        task.set_env_variable(ranks.PROCESSES_VARIABLE, ranks.ALL_PROCESSES)  # a run may set a larger number
    task.set_env_variable(metrics.PORT, str(METRICS_PORT))
    kubernetes.add_pod_label(task, METRICS_LABEL, "true")
    own = f"{stage}_"
    asked = {name.removeprefix(own): value for name, value in step_settings.asks.items() if name.startswith(own)}
    # KFP's setters of resources do not register channels, and a loop around the step would lack the parameters.
    task.register_pipeline_channels(pipeline_channel.extract_pipeline_channels_from_any([*asked.values()]))
    return _place(task, cluster, profile, asked)


def _annotate(task: dsl.PipelineTask, profile: Profile) -> None:
    for name, value in annotations(profile).items():
        kubernetes.add_pod_annotation(task, name, value)


def _place(task: dsl.PipelineTask, cluster: Cluster, profile: Profile, asked: Mapping[str, Any]) -> dsl.PipelineTask:
    task.set_container_image(cluster.image).set_caching_options(False)
    task.set_env_variable(launcher.RETRIES, str(profile.retries))
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
