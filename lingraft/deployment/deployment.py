"""Settings of an endpoint on a cluster: bundles of the registry, image, resources, and scaling."""

import re
from typing import Annotated, Literal, NamedTuple, Self

import pydantic
from pydantic import BeforeValidator, Field, NonNegativeInt, PositiveInt

from lingraft._version import __version__
from lingraft.config.section import Section, explain_problem, full_match
from lingraft.errors import DeploymentError

_MODEL = re.compile(r"models:/(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)(/(?P<version>[1-9]\d*)|@champion)")


class RegisteredBundle(NamedTuple):
    """A bundle in the registry; without a version, the champion at the start of a pod."""

    name: str
    version: int | None


def _parse_model_uri(uri: str) -> RegisteredBundle:
    found = _MODEL.fullmatch(uri)
    if not found:
        raise ValueError("must be models:/NAME/VERSION or models:/NAME@champion")
    return RegisteredBundle(found["name"], int(found["version"]) if found["version"] else None)


ServiceName = Annotated[
    str,
    # KServe requires a letter first; `<name>-predictor` is a Service, whose name has 63 characters at most.
    full_match(
        r"[a-z]([a-z0-9-]{0,51}[a-z0-9])?", "at most 53 lower-case letters, digits and inner dashes, a letter first"
    ),
]


class Deployment(Section):
    """Settings of an endpoint; the options of `lingraft deploy`, which have these names, explain them."""

    name: ServiceName = "lingraft"
    models: tuple[Annotated[RegisteredBundle, BeforeValidator(_parse_model_uri)], ...] = Field(min_length=1)
    follow: bool = False
    mode: Literal["Standard", "Knative"] = "Standard"
    image: str = f"ghcr.io/lingraft/serve:{__version__}"
    replicas: PositiveInt = 1
    max_replicas: PositiveInt = 1
    concurrency: PositiveInt = 32
    prometheus: str | None = None
    cpu: str = "2"
    memory: str = "2Gi"
    gpus: NonNegativeInt = 0
    canary: int | None = Field(None, ge=0, le=100)

    @pydantic.model_validator(mode="after")
    def _require_possible(self) -> Self:
        champions = [bundle for bundle in self.models if bundle.version is None]
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
        if len({bundle.name for bundle in self.models}) < len(self.models):
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
