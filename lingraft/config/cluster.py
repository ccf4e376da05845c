"""The part of a recipe that only Kubernetes reads: images, storage, and what a step asks of a node."""

import re
from typing import Annotated, Literal, Self

import pydantic
from pydantic import AfterValidator, Field, PositiveInt

from lingraft.config.section import Section

StageName = Literal["pretraining", "mini", "finetuning", "adaptation", "judging", "search"]
_UNITS = {"": 1, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_QUANTITY = re.compile(rf"(\d+(?:\.\d+)?)({'|'.join(sorted(_UNITS, reverse=True))})")


def parse_quantity(quantity: str) -> float:
    """Return the value of a Kubernetes quantity, such as 4294967296.0 for '4Gi'."""
    found = _QUANTITY.fullmatch(quantity)
    if not found:
        raise ValueError(f"{quantity!r} must be a Kubernetes quantity, such as '2', '500m' or '16Gi'")
    return float(found[1]) * _UNITS[found[2]]


def _is_positive(quantity: str) -> str:
    if parse_quantity(quantity) <= 0:
        raise ValueError(f"{quantity!r} must be more than nothing")
    return quantity


Quantity = Annotated[str, AfterValidator(_is_positive)]


class Toleration(Section):
    """A Kubernetes toleration."""

    key: str = Field(description="Key of the taint that is tolerated.")
    operator: Literal["Equal", "Exists"] = Field("Exists", description="Whether the taint's value matters.")
    value: str = Field("", description="Value of the taint, for Equal.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = Field(
        "NoSchedule", description="Effect of the taint that is tolerated."
    )


class Profile(Section):
    """Resources and placement of a step on the cluster; local runs ignore them."""

    cpu: Quantity = Field("2", description="CPU cores, as a Kubernetes quantity; request and limit.")
    memory: Quantity = Field("4Gi", description="Memory in bytes, as a Kubernetes quantity; request and limit.")
    accelerator: str | None = Field(None, description="Resource name, such as 'nvidia.com/gpu'.")
    accelerator_count: PositiveInt = Field(1, description="Accelerators of a step, where accelerator names one.")
    node_selector: dict[str, str] = Field({}, description="Labels that a node must have.")
    tolerations: tuple[Toleration, ...] = Field((), description="Taints that a node may have.")
    shared_memory: Quantity | None = Field(
        None, description="Size of /dev/shm, which counts as memory; Kubernetes' own 64 MB if absent."
    )
    retries: int = Field(3, ge=0, description="Attempts after the first, where an error is transient.")

    @property
    def processes(self) -> int:
        """Number of processes that train together: one for each accelerator, or one without any."""
        return self.accelerator_count if self.accelerator else 1

    @pydantic.model_validator(mode="after")
    def _is_possible(self) -> Self:
        if self.accelerator is None and self.accelerator_count > 1:
            raise ValueError(f"{self.accelerator_count} accelerators need the name of one, such as 'nvidia.com/gpu'")
        if self.shared_memory and parse_quantity(self.shared_memory) >= parse_quantity(self.memory):
            raise ValueError(
                f"shared_memory {self.shared_memory} counts as memory, of which there are {self.memory}. "
                "Ask for less of the one, or more of the other"
            )
        if self.accelerator_count > 1 and not self.shared_memory:
            raise ValueError(
                f"{self.accelerator_count} processes need shared_memory to exchange gradients: Kubernetes' own 64 MB "
                "are too little. Set it, for example to '8Gi'"
            )
        return self


class Cluster(Section):
    """Resources of the pipelines on Kubernetes."""

    image: str = Field("ghcr.io/lingraft/train:0.1.0", description="Image of every step.")
    tracking_secret: str = Field("lingraft-mlflow", description="Secret whose keys become MLFLOW_* variables.")
    storage_secret: str | None = Field(
        None, description="Secret whose AWS_* keys open the object storage of results, where pods have no such right."
    )
    hub_secret: str | None = Field(
        None,
        description="Secret whose key HF_TOKEN opens private and gated models and datasets of the Hugging Face hub.",
    )
    storage_claim: str = Field("lingraft-data", description="PersistentVolumeClaim mounted at storage_path.")
    storage_path: str = Field("/data", description="Where the claim is mounted in every step.")
    results: str | None = Field(
        None, description="Folder or URI of results and checkpoints that steps share; on the claim if absent."
    )
    light: Profile = Field(Profile(), description="Steps that check, look up, register and report.")
    data: Profile | None = Field(
        None,
        description="Steps that read all text, from cleaning to initial embeddings; as light if absent.",
    )
    training: Profile = Field(Profile(), description="Steps that train, and have no profile of their own.")
    stages: dict[StageName, Profile] = Field({}, description="Profiles of single stages.")
    parallel_languages: PositiveInt = Field(
        8, description="Languages, depths or seeds trained at the same time, in each loop of a pipeline."
    )

    def profile_of(self, stage: StageName) -> Profile:
        """Return the profile of a stage."""
        return self.stages.get(stage, self.training)

    @property
    def data_profile(self) -> Profile:
        """Profile of steps that read all text."""
        return self.data or self.light

    @property
    def results_place(self) -> str:
        """Folder or URI where results and checkpoints are shared."""
        return self.results or f"{self.storage_path}/results"
