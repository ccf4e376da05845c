"""What a step asks of Kubernetes, set on KFP tasks from the recipe's profiles. Local runs ignore it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kfp import dsl, kubernetes
from kfp.dsl import pipeline_channel

from lingraft import ranks
from lingraft.config.cluster import Cluster, Profile, StageName
from lingraft.steps.launch import launcher
from lingraft.steps.launch.pods import METRICS_LABEL, METRICS_PORT, USER_ID, secrets, variables
from lingraft.training import metrics


@dataclass(frozen=True)
class StepSettings:
    """What steps are set up with."""

    cluster: Cluster
    asks: Mapping[str, Any]
    """What a run may ask for in place of the recipe: values or pipeline channels, by names such as `mini_memory`."""


def tolerated(profile: Profile) -> list[dict[str, str]]:
    """Taints that its nodes may have, as plain data."""
    return [each.model_dump() for each in profile.tolerations]


def configure_light(task: dsl.PipelineTask, nodes: StepSettings) -> dsl.PipelineTask:
    """Set up a step that moves or reads data."""
    return _place(task, nodes.cluster, nodes.cluster.light, {})


def configure_training(task: dsl.PipelineTask, nodes: StepSettings, stage: StageName) -> dsl.PipelineTask:
    """Set up a step that trains, on a process an accelerator where it has any.

    What KFP has no setter for, or could not survive, is launched from a small step: nodes that vanish, several nodes,
    ephemeral storage, priority classes, time limits.
    """
    cluster, profile = nodes.cluster, nodes.cluster.profile_of(stage)
    if profile.launched:
        task.set_env_variable(launcher.STAGE, stage)
        return _place(task, cluster, cluster.launcher, {})
    if profile.accelerator:
        task.set_env_variable(ranks.PROCESSES_VARIABLE, ranks.ALL_PROCESSES)  # a run may ask for more of them
    task.set_env_variable(metrics.PORT, str(METRICS_PORT))
    kubernetes.add_pod_label(task, METRICS_LABEL, "true")
    own = f"{stage}_"
    asked = {name.removeprefix(own): value for name, value in nodes.asks.items() if name.startswith(own)}
    # As KFP's setters of resources do not do themselves: a loop around the step would not be handed the parameters.
    task.register_pipeline_channels(pipeline_channel.extract_pipeline_channels_from_any([*asked.values()]))
    return _place(task, cluster, profile, asked)


def _place(task: dsl.PipelineTask, cluster: Cluster, profile: Profile, asked: Mapping[str, Any]) -> dsl.PipelineTask:
    task.set_container_image(cluster.image).set_caching_options(False)
    task.set_env_variable(launcher.RETRIES, str(profile.retries))
    cpu, memory = asked.get("cpu", profile.cpu), asked.get("memory", profile.memory)
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
