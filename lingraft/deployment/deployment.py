"""Settings of an endpoint on a cluster: bundles of the registry, image, resources, and scaling."""

import re
from typing import Annotated, Literal, NamedTuple, Self

import pydantic
from pydantic import AfterValidator, Field, PositiveInt

from lingraft._version import __version__
from lingraft.config.section import Section, explain_problem, full_match
from lingraft.errors import DeploymentError

_MODEL = re.compile(r"models:/(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)(/(?P<version>[1-9]\d*)|@champion)")


class RegisteredBundle(NamedTuple):
    """A bundle in the registry; without a version, the champion at the start of a pod."""

    name: str
    version: int | None


def parse_model_uri(uri: str) -> RegisteredBundle:
    """Parse MLflow's URI of a registered model.

    Raises:
        ValueError: the URI has another form.
    """
    found = _MODEL.fullmatch(uri)
    if not found:
        raise ValueError("must be models:/NAME/VERSION or models:/NAME@champion")
    return RegisteredBundle(found["name"], int(found["version"]) if found["version"] else None)


def _require_model_uri(uri: str) -> str:
    parse_model_uri(uri)
    return uri


ModelUri = Annotated[str, AfterValidator(_require_model_uri)]
ServiceName = Annotated[
    str,
    # KServe requires a letter first; `<name>-predictor` is a Service, whose name has 63 characters at most.
    full_match(
        r"[a-z]([a-z0-9-]{0,51}[a-z0-9])?", "at most 53 lower-case letters, digits and inner dashes, a letter first"
    ),
]


class Deployment(Section):
    """Settings from which the manifest is made."""

    name: ServiceName = Field("lingraft", description="Name of the InferenceService and of the tag endpoint.NAME.")
    models: tuple[ModelUri, ...] = Field(
        description="Bundles, as models:/NAME/VERSION or models:/NAME@champion, each of another task.", min_length=1
    )
    follow: bool = Field(False, description="Take up champions while pods run, without new ones (`lingraft publish`).")
    mode: Literal["Standard", "Knative"] = Field(
        "Standard", description="Standard, a Deployment; or Knative, which canaries need."
    )
    image: str = Field(f"ghcr.io/lingraft/serve:{__version__}", description="Image with a tag or a digest.")
    replicas: PositiveInt = Field(1, description="Smallest number of pods.")
    max_replicas: PositiveInt = Field(1, description="Largest number of pods.")
    concurrency: PositiveInt = Field(32, description="Concurrent requests of a pod above which pods are added.")
    prometheus: str | None = Field(
        None, description="Address of Prometheus, which KEDA asks for the concurrency in mode Standard."
    )
    cpu: str = Field("2", description="CPUs of each pod, as Kubernetes writes them.")
    memory: str = Field("2Gi", description="Memory of each pod, as Kubernetes writes it.")
    gpus: int = Field(0, description="GPUs of each pod; the image must be one with the gpu extra.", ge=0)
    room: str = Field("10Gi", description="Disk of each pod for the bundles, and again for what is published.")
    secret: str = Field("lingraft-mlflow", description="Secret with the registry's address and credentials.")
    canary: int | None = Field(
        None, description="Percent of traffic for this revision; all of it if absent.", ge=0, le=100
    )

    @pydantic.model_validator(mode="after")
    def _require_possible(self) -> Self:
        bundles = [parse_model_uri(uri) for uri in self.models]
        champions = [bundle for bundle in bundles if bundle.version is None]
        if self.max_replicas < self.replicas:
            raise ValueError(f"max_replicas: {self.max_replicas} is less than replicas, {self.replicas}")
        if self.mode == "Standard" and self.max_replicas > self.replicas and not self.prometheus:
            raise ValueError(
                "prometheus: mode Standard counts requests there to scale; name it, or choose mode Knative"
            )
        if self.follow and self.mode != "Standard":
            raise ValueError("follow: mode Knative has no room for what follows beside the server; deploy new versions")
        if self.follow and not champions:
            raise ValueError("follow: no champion is named; name models:/NAME@champion")
        if self.canary is not None and self.mode != "Knative":
            raise ValueError("canary: KServe splits traffic in mode Knative only")
        if self.canary is not None and champions:
            raise ValueError(
                "canary: both revisions would serve the same champion; name versions, models:/NAME/VERSION"
            )
        if len({bundle.name for bundle in bundles}) < len(bundles):
            raise ValueError("models: one is named twice")
        return self


def validate_deployment(**settings: object) -> Deployment:
    """Return the deployment of a user's settings.

    Raises:
        DeploymentError: a setting is invalid.
    """
    try:
        return Deployment.model_validate(settings)
    except pydantic.ValidationError as error:
        raise DeploymentError(explain_problem(Deployment, error.errors()[0])) from error
