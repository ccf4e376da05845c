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
    accelerator_count: PositiveInt = Field(
        1, description="Accelerators of a step on each of its nodes, where accelerator names one."
    )
    nodes: PositiveInt = Field(1, description="Nodes that train together; more than one become a TrainJob.")
    node_selector: dict[str, str] = Field({}, description="Labels that a node must have.")
    tolerations: tuple[Toleration, ...] = Field((), description="Taints that a node may have.")
    shared_memory: Quantity | None = Field(
        None, description="Size of /dev/shm, which counts as memory; Kubernetes' own 64 MB if absent."
    )
    spot: bool = Field(
        False, description="Whether its nodes may vanish: it is then launched from a node that does not, and again."
    )
    retries: int = Field(3, ge=0, description="Attempts after the first, where a node vanished or something may heal.")
    start_limit_s: PositiveInt = Field(
        1800, description="Seconds within which launched pods must run, beside their time in a queue of Kueue."
    )
    time_limit_s: PositiveInt | None = Field(None, description="Seconds after which it is ended; never if absent.")
    launch: bool | None = Field(
        None,
        description="Whether a small step launches it as a Job, and again if its node is drained; if absent, where it "
        "asks for accelerators, or for what KFP's own pods cannot have.",
    )
    ephemeral_storage: Quantity | None = Field(None, description="Disk of the node, in bytes; request and limit.")
    priority_class: str | None = Field(None, description="PriorityClass of its pods; the cluster's own if absent.")

    @property
    def processes(self) -> int:
        """Number of processes that train together: one for each accelerator, or one for each node without any."""
        return self.nodes * (self.accelerator_count if self.accelerator else 1)

    @property
    def launched(self) -> Literal["Job", "TrainJob"] | None:
        """Kind of workload that a small step launches; None if the step is a pod of KFP's own."""
        if self.nodes > 1:
            return "TrainJob"
        launches = self.launch if self.launch is not None else bool(self.accelerator)
        return "Job" if launches or self._beyond_kfp else None

    @property
    def _beyond_kfp(self) -> list[str]:
        """Keys that a pod of KFP cannot have."""
        keys = ("spot", "time_limit_s", "ephemeral_storage", "priority_class")
        return [key for key in keys if getattr(self, key)] + (["nodes"] if self.nodes > 1 else [])

    @pydantic.model_validator(mode="after")
    def _is_possible(self) -> Self:
        if self.launch is False and self._beyond_kfp:
            raise ValueError(
                f"{self._beyond_kfp} are only for what is launched, and launch is false: leave out the one or the other"
            )
        if self.accelerator is None and self.accelerator_count > 1:
            raise ValueError(f"{self.accelerator_count} accelerators need the name of one, such as 'nvidia.com/gpu'")
        if self.nodes > 1 and self.priority_class:
            raise ValueError(
                f"the priority class of several nodes is their runtime's: name {self.priority_class!r} there, not here"
            )
        if self.shared_memory and parse_quantity(self.shared_memory) >= parse_quantity(self.memory):
            raise ValueError(
                f"shared_memory {self.shared_memory} counts as memory, of which there are {self.memory}. "
                "Ask for less of the one, or more of the other"
            )
        if self.processes > 1 and not self.shared_memory and self.accelerator:
            raise ValueError(
                f"{self.processes} processes need shared_memory to exchange gradients: Kubernetes' own 64 MB are too "
                "little. Set it, for example to '8Gi'"
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
    service_account: str | None = Field(
        None, description="Service account of launched pods, where it gives rights to object storage."
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
    launcher: Profile = Field(
        Profile(cpu="500m", memory="1Gi"), description="Small steps that launch others: on nodes that do not vanish."
    )
    stages: dict[StageName, Profile] = Field({}, description="Profiles of single stages.")
    runtime: str = Field("lingraft-torch", description="ClusterTrainingRuntime of stages on several nodes.")
    queue: str | None = Field(
        None, description="LocalQueue of Kueue that admits launched Jobs and TrainJobs; none if absent."
    )
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

    @pydantic.model_validator(mode="after")
    def _stays(self) -> Self:
        for name in ("light", "data", "launcher"):
            profile = getattr(self, name)
            if profile and (wanted := profile.launched):
                raise ValueError(
                    f"the profile {name!r} is for steps of KFP itself, but would be launched as a {wanted}: leave out "
                    "accelerators, and what only a launched step can have"
                )
        return self

    @property
    def results_place(self) -> str:
        """Folder or URI where results and checkpoints are shared."""
        return self.results or f"{self.storage_path}/results"
