"""What a step asks of Kubernetes, set on KFP tasks from the recipe's profiles. Local runs ignore it."""

from kfp import dsl, kubernetes

from lingraft import ranks
from lingraft.cluster import Cluster, Profile

_USER_ID = 10001
"""The images' user: the namespace's pod security admits no root."""
_TRACKING_KEYS = ("MLFLOW_TRACKING_URI",)
_CREDENTIAL_KEYS = ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN")
"""Taken from the same Secret where it has them."""
_CACHES = {"LINGRAFT_CACHE": "lingraft", "HF_HOME": "huggingface"}
"""Folders on the claim, so that text is brought once and not into a pod that goes."""


def light(task: dsl.PipelineTask, cluster: Cluster) -> dsl.PipelineTask:
    """Set up a step that moves or reads data."""
    return _place(task, cluster, cluster.light)


def training(task: dsl.PipelineTask, cluster: Cluster) -> dsl.PipelineTask:
    """Set up a step that trains, on a process an accelerator where it has several."""
    profile = cluster.training
    if profile.accelerator and profile.accelerator_count > 1:
        task.set_env_variable(ranks.WANTED, str(profile.accelerator_count))
    return _place(task, cluster, profile)


def _place(task: dsl.PipelineTask, cluster: Cluster, profile: Profile) -> dsl.PipelineTask:
    task.set_container_image(cluster.image).set_caching_options(False)
    task.set_cpu_request(profile.cpu).set_cpu_limit(profile.cpu)
    task.set_memory_request(profile.memory).set_memory_limit(profile.memory)
    task.set_env_variable("HOME", "/tmp")  # the user id has no home of its own in the image
    _add_accelerator(task, profile)
    kubernetes.set_security_context(task, run_as_user=_USER_ID, run_as_group=_USER_ID, run_as_non_root=True)
    for keys, optional in ((_TRACKING_KEYS, False), (_CREDENTIAL_KEYS, True)):
        names = {key: key for key in keys}
        kubernetes.use_secret_as_env(task, cluster.tracking_secret, names, optional=optional)
    for name, folder in _CACHES.items():
        task.set_env_variable(name, f"{cluster.storage_path}/{folder}")
    kubernetes.mount_pvc(task, pvc_name=cluster.storage_claim, mount_path=cluster.storage_path)
    return task


def _add_accelerator(task: dsl.PipelineTask, profile: Profile) -> None:
    if profile.accelerator:
        task.set_accelerator_type(profile.accelerator).set_accelerator_limit(profile.accelerator_count)
    for key, value in profile.node_selector.items():
        kubernetes.add_node_selector(task, label_key=key, label_value=value)
    for toleration in profile.tolerations:
        kubernetes.add_toleration(task, **toleration.model_dump())
    if profile.shared_memory:
        kubernetes.empty_dir_mount(
            task, volume_name="shm", mount_path="/dev/shm", medium="Memory", size_limit=profile.shared_memory
        )
