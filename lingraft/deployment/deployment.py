"""What an endpoint on a cluster is: bundles of the registry, an image, room, and how it grows."""

import re
from typing import Annotated, Literal, NamedTuple

import pydantic
from pydantic import AfterValidator, Field, PositiveInt

from lingraft._version import __version__
from lingraft.config.section import Section, explain_problem, full_match
from lingraft.errors import DeploymentError

_MODEL = re.compile(r"models:/(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)(/(?P<version>[1-9]\d*)|@champion)")

Mode = Literal["Standard", "Knative"]
"""How KServe makes pods. Standard is a plain Deployment; Knative scales by concurrency itself, and splits traffic."""


class RegisteredBundle(NamedTuple):
    """A bundle in the registry."""

    name: str
    version: int | None
    """The champion, whichever that is when a pod starts, if absent."""


def parse_model_uri(uri: str) -> RegisteredBundle:
    """The bundle that a URI names.

    Raises:
        ValueError: it is not of MLflow's form.
    """
    found = _MODEL.fullmatch(uri)
    if not found:
        raise ValueError("must be models:/NAME/VERSION or models:/NAME@champion")
    return RegisteredBundle(found["name"], int(found["version"]) if found["version"] else None)


def _checked(uri: str) -> str:
    parse_model_uri(uri)
    return uri


Uri = Annotated[str, AfterValidator(_checked)]


ServiceName = Annotated[
    str,
    # KServe asks for a letter first; `<name>-predictor` is a Service, whose name has 63 characters at most.
    full_match(
        r"[a-z]([a-z0-9-]{0,51}[a-z0-9])?", "at most 53 lower-case letters, digits and inner dashes, a letter first"
    ),
]


class Deployment(Section):
    """Immutable; all that its manifest is made of."""

    name: ServiceName = Field(
        "lingraft", description="Of the InferenceService, and of the tag endpoint.NAME in the registry."
    )
    models: tuple[Uri, ...] = Field(
        description="Bundles, as models:/NAME/VERSION or models:/NAME@champion, each of another task.", min_length=1
    )
    follow: bool = Field(False, description="Take up champions while pods run, without new ones (`lingraft publish`).")
    mode: Mode = Field("Standard", description="Standard, or Knative, which canaries need.")
    image: str = Field(f"ghcr.io/lingraft/serve:{__version__}", description="With a tag or a digest.")
    replicas: PositiveInt = Field(1, description="At least.")
    max_replicas: PositiveInt = Field(1, description="At most.")
    concurrency: PositiveInt = Field(32, description="Requests at once that one pod is to have; more pods follow.")
    prometheus: str | None = Field(
        None, description="Address of Prometheus; mode Standard scales by concurrency through KEDA, which asks there."
    )
    cpu: str = Field("2", description="Of each pod, as Kubernetes writes it.")
    memory: str = Field("2Gi", description="The same.")
    gpus: int = Field(0, description="Of each pod; the image must be one with the gpu extra.", ge=0)
    room: str = Field("10Gi", description="For the bundles and what is published, in each pod.")
    secret: str = Field("lingraft-mlflow", description="Secret that names the registry and how to ask it.")
    canary: int | None = Field(
        None, description="Percent of traffic for this revision; all of it if absent.", ge=0, le=100
    )

    @pydantic.model_validator(mode="after")
    def _fits(self) -> "Deployment":
        if self.max_replicas < self.replicas:
            raise ValueError(f"max_replicas: {self.max_replicas} is less than replicas, {self.replicas}")
        if self.mode == "Standard" and self.max_replicas > self.replicas and not self.prometheus:
            raise ValueError(
                "prometheus: mode Standard counts requests there to scale; name it, or choose mode Knative"
            )
        if self.follow and self.mode != "Standard":
            raise ValueError("follow: mode Knative has no room for what follows beside the server; deploy new versions")
        if self.follow and not any(parse_model_uri(uri).version is None for uri in self.models):
            raise ValueError("follow: no champion is named; name models:/NAME@champion")
        if self.canary is not None and self.mode != "Knative":
            raise ValueError("canary: KServe splits traffic in mode Knative only")
        if self.canary is not None and any(parse_model_uri(uri).version is None for uri in self.models):
            raise ValueError(
                "canary: both revisions would serve the same champion; name versions, models:/NAME/VERSION"
            )
        if len({parse_model_uri(uri).name for uri in self.models}) < len(self.models):
            raise ValueError("models: one is named twice")
        return self


def validate_deployment(**given: object) -> Deployment:
    """A deployment of what a user gave.

    Raises:
        DeploymentError: a value is not possible.
    """
    try:
        return Deployment.model_validate(given)
    except pydantic.ValidationError as error:
        raise DeploymentError(explain_problem(Deployment, error.errors()[0])) from error
