"""The part of a recipe that only Kubernetes reads: images, storage, and what a step asks of a node."""

from typing import Literal

from pydantic import Field, PositiveInt

from lingraft.section import Section


class Toleration(Section):
    """A Kubernetes toleration."""

    key: str = Field(description="Key of the taint that is tolerated.")
    operator: Literal["Equal", "Exists"] = Field("Exists", description="Whether the taint's value matters.")
    value: str = Field("", description="Value of the taint, for Equal.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = Field(
        "NoSchedule", description="Effect of the taint that is tolerated."
    )


class Profile(Section):
    """What a step asks of the cluster; ignored by local runs."""

    cpu: str = Field("2", description="CPU cores, as a Kubernetes quantity; request and limit.")
    memory: str = Field("4Gi", description="Memory in bytes, as a Kubernetes quantity; request and limit.")
    accelerator: str | None = Field(None, description="Resource name, such as 'nvidia.com/gpu'.")
    accelerator_count: PositiveInt = Field(1, description="Accelerators of a step, where accelerator names one.")
    node_selector: dict[str, str] = Field({}, description="Labels that a node must have.")
    tolerations: tuple[Toleration, ...] = Field((), description="Taints that a node may have.")
    shared_memory: str | None = Field(None, description="Size of /dev/shm; Kubernetes' own 64 MB if absent.")


class Cluster(Section):
    """Where the pipelines run on Kubernetes."""

    image: str = Field("ghcr.io/lingraft/train:0.1.0", description="Image of every step.")
    tracking_secret: str = Field("lingraft-mlflow", description="Secret whose keys become MLFLOW_* variables.")
    storage_claim: str = Field("lingraft-data", description="PersistentVolumeClaim mounted at storage_path.")
    storage_path: str = Field("/data", description="Where the claim is mounted in every step.")
    light: Profile = Field(Profile(), description="Steps that only move or read data.")
    training: Profile = Field(Profile(), description="Steps that train.")
    parallel_languages: PositiveInt = Field(
        8, description="Languages, depths or seeds trained at the same time, in each loop of a pipeline."
    )
