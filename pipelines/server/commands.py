"""`submit` and `follow`: the pipelines on a Kubeflow Pipelines server, from the command line."""

import json
import os
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lingraft.errors import RecipeError
from pipelines.catalogue import PIPELINES, pipeline_builder
from pipelines.server import IN_CLUSTER

if TYPE_CHECKING:
    from kfp.dsl import base_component

    from lingraft.config.recipe import Recipe
    from pipelines.server.connection import Connection

# Commands import what they need, so that --help does not wait for KFP.

_DIGEST = "@sha256:"
_TEXT = "String"
"""KFP's name for parameters that are text, such as a quantity; all others are given as JSON."""

PipelineArgument = Annotated[str, typer.Argument(help=f"{', '.join(PIPELINES)}; source comes first.")]
RecipeOption = Annotated[Path, typer.Option("--recipe", help="TOML recipe; the ones we ship are in recipes/.")]
HostOption = Annotated[
    str, typer.Option("--host", envvar="KF_PIPELINES_ENDPOINT", help="Address of the server's API, http(s)://...")
]
NamespaceOption = Annotated[
    str,
    typer.Option(
        "--namespace", envvar="KF_PIPELINES_NAMESPACE", help="Namespace of a profile, on a multi-user installation."
    ),
]
TokenFileOption = Annotated[
    Path | None,
    typer.Option("--token-file", help="File with a bearer token, read for every request; or set KF_PIPELINES_TOKEN."),
]
CertificateOption = Annotated[
    Path | None, typer.Option("--ca", envvar="KF_PIPELINES_CA", help="CA certificate of the server, as PEM.")
]
PageOption = Annotated[
    str, typer.Option("--ui", envvar="KF_PIPELINES_UI_ENDPOINT", help="Address of the UI, for links; --host if absent.")
]
SetOption = Annotated[
    list[str], typer.Option("--set", help="A parameter of the pipeline, name=value; JSON, or text where it takes text.")
]
CronOption = Annotated[
    str, typer.Option("--cron", help="Run on this schedule: six fields, seconds first ('0 0 3 * * *': every night).")
]


def submit(
    pipeline: PipelineArgument,
    recipe: RecipeOption,
    host: HostOption = IN_CLUSTER,
    namespace: NamespaceOption = "",
    token_file: TokenFileOption = None,
    ca: CertificateOption = None,
    ui: PageOption = "",
    experiment: Annotated[
        str, typer.Option(help="Experiment, created if there is none of that name; the recipe's name if absent.")
    ] = "",
    name: Annotated[str, typer.Option(help="Name of the run; pipeline and time if absent.")] = "",
    service_account: Annotated[
        str, typer.Option(help="Service account of the steps; the server's choice if absent.")
    ] = "",
    given: SetOption = [],  # noqa: B006 - typer copies it
    cron: CronOption = "",
    wait: Annotated[bool, typer.Option(help="Follow the run to its end, which decides the exit code.")] = True,
    image: Annotated[str, typer.Option(help="Image of every step, name@sha256:...; the recipe's if absent.")] = "",
    unpinned: Annotated[bool, typer.Option("--unpinned", help="Take an image without a digest, as for kind.")] = False,
) -> None:
    """Upload a pipeline as a version, start a run of it or a schedule, and wait until the run has ended well."""
    from kfp import compiler

    from lingraft.console import say
    from lingraft.source_model import load_recipe
    from pipelines.server import follow as following
    from pipelines.server.runs import RunRequest, schedule, start_run, upload

    settings = _with_image(load_recipe(recipe), image)
    _require_pinned(settings, unpinned)
    made = pipeline_builder(pipeline)(settings, recipe.name)
    connection = _connection(host, namespace, token_file, ca, ui)
    client = connection.client()
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / f"{made.name}.yaml"
        compiler.Compiler().compile(made, str(package))
        version = upload(connection, client, package)
    say(f"pipeline {made.name}, version {version.display_name or version.name}")
    run_name = name or (made.name if cron else f"{made.name} {time.strftime('%Y-%m-%d %H:%M:%S')}")
    request = RunRequest(version, experiment or settings.name, run_name, _parameters(made, given), service_account)
    if cron:
        say(f"recurring run {run_name} ({cron}): {schedule(connection, client, request, cron)}")
        return
    run_id = start_run(connection, client, request)
    print(connection.link(run_id), flush=True)
    if wait:
        following.follow(connection, client, run_id, say)
        say(f"{run_name}: succeeded")


def follow(
    run_id: Annotated[str, typer.Argument(help="Id of the run; its link ends with it.")],
    host: HostOption = IN_CLUSTER,
    namespace: NamespaceOption = "",
    token_file: TokenFileOption = None,
    ca: CertificateOption = None,
    ui: PageOption = "",
) -> None:
    """Wait until a run has ended well, and tell what its steps do meanwhile."""
    from lingraft.console import say
    from pipelines.server import follow as following

    connection = _connection(host, namespace, token_file, ca, ui)
    following.follow(connection, connection.client(), run_id, say)
    say("succeeded")


def _connection(host: str, namespace: str, token_file: Path | None, ca: Path | None, ui: str) -> "Connection":
    from pipelines.server.connection import Connection

    return Connection(
        host=host,
        namespace=namespace,
        token=os.environ.get("KF_PIPELINES_TOKEN", ""),
        token_file=token_file,
        certificate=ca,
        page=ui,
    )


def _with_image(recipe: "Recipe", image: str) -> "Recipe":
    cluster = recipe.cluster.model_copy(update={"image": image} if image else {})
    return recipe.model_copy(update={"cluster": cluster})


def _require_pinned(recipe: "Recipe", unpinned: bool) -> None:
    """Refuse an image without a digest: its tag may name another image after a node is replaced during a run."""
    if not unpinned and _DIGEST not in recipe.cluster.image:
        raise RecipeError(
            f"cluster.image {recipe.cluster.image!r} has no digest, so nobody can say what will run. Give "
            "--image name@sha256:..., or put that in the recipe: `skopeo inspect` reads the digest from the registry. "
            "--unpinned takes the image as it is."
        )


def _parameters(pipeline: "base_component.BaseComponent", given: Iterable[str]) -> dict[str, Any]:
    """Parse the parameters of a run.

    Raises:
        RecipeError: one is not name=value, or the pipeline has no such parameter.
    """
    known = pipeline.component_spec.inputs or {}
    found = {}
    for word in given:
        name, separator, value = word.partition("=")
        if not separator or name not in known:
            raise RecipeError(f"--set {word!r} is not NAME=VALUE with one of {sorted(known)}.")
        found[name] = value if known[name].type == _TEXT else _json(name, value)
    return found


def _json(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise RecipeError(f"--set {name}={text} is not JSON, as its kind of parameter must be: {error}.") from error
