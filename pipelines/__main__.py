"""`python -m pipelines compile|submit|follow|run|demo`: a recipe's pipelines, for a cluster or on this machine."""

if __name__ == "__main__":
    from lingraft.signals import end_quietly_on_ctrl_c

    end_quietly_on_ctrl_c()  # before the imports, in which a program spends its first moments

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lingraft.cli.options import run_app
from lingraft.cli.registry import DropOption, NewLabelsOption, NewPrimaryOption
from lingraft.errors import LingraftError
from pipelines.catalogue import COMPARE, PIPELINES, languages_of, pipeline_builder
from pipelines.server import commands
from pipelines.server.commands import RecipeOption

if TYPE_CHECKING:
    from lingraft.config.recipe import Recipe

# Commands import what they need, so that --help does not wait for KFP.

app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)

OutOption = Annotated[Path, typer.Option("--out", help="Folder for everything that is made.")]
TextOption = Annotated[
    Path | None, typer.Option("--text", help="Text of your own: a folder with one file or folder per language.")
]
CompareOption = Annotated[bool, typer.Option("--compare", help=COMPARE)]


@app.command("compile")
def compile_all(recipe: RecipeOption, out: OutOption = Path("compiled")) -> None:
    """Write the pipelines as YAML, to be uploaded to Kubeflow Pipelines; those of another recipe do not stay beside."""
    from kfp import compiler

    from lingraft.artifacts.files import explain_write_errors, make_folder
    from lingraft.console import say
    from lingraft.source_model import load_recipe

    settings = load_recipe(recipe)
    make_folder(out)
    with explain_write_errors(out):
        wanted = {"depth-search": settings.search, "paper": settings.paper}
        for name, pipeline in PIPELINES.items():
            file = out / f"{name}.yaml"
            if wanted.get(name, settings):
                compiler.Compiler().compile(pipeline(settings, recipe.name), str(file))
                print(file)
            elif file.exists():
                file.unlink()
                say(f"removed {file}: this recipe has no such pipeline")


@app.command()
def run(
    pipeline: Annotated[
        str, typer.Argument(help="source, depth-search or language, source first; or paper, by itself.")
    ],
    recipe: RecipeOption,
    out: OutOption = Path(".lingraft"),
    text: TextOption = None,
    compare: CompareOption = False,
    drop_language: DropOption = None,
    new_primary: NewPrimaryOption = False,
    new_labels: NewLabelsOption = False,
) -> None:
    """Run one pipeline on this machine, without a cluster.

    `language` adds to what is in production, whatever languages the recipe names; the last three options are for it.
    """
    make = pipeline_builder(pipeline)
    allowed = {"drop_languages": drop_language or [], "new_primary": new_primary, "new_labels": new_labels}
    if pipeline != "language" and any(allowed.values()):
        raise LingraftError(
            "--drop-language, --new-primary and --new-labels are for the pipeline 'language', and not for "
            f"{pipeline!r}."
        )
    settings = _starting(_recipe(recipe, text))
    from lingraft import preflight
    from pipelines import local

    built = make(settings, recipe.name)
    preflight.require_ready(settings, out, languages_of(pipeline, settings))
    arguments = {"compare": compare, **allowed} if pipeline == "language" else {}
    if report := local.run(built, out, **arguments):
        print(f"Report: {report}")


@app.command()
def demo(
    recipe: RecipeOption = Path("recipes/demo.toml"),
    out: OutOption = Path(".demo"),
    text: TextOption = None,
    compare: CompareOption = False,
    drop_language: DropOption = None,
) -> None:
    """Run the main job from text to a served answer: all three pipelines, the report, and the endpoint."""
    settings = _starting(_recipe(recipe, text))
    from lingraft import preflight
    from pipelines import demo as main_job

    preflight.require_ready(settings, out)
    main_job.run(settings, out, compare, drop_language or [])


app.command()(commands.submit)
app.command()(commands.follow)


def _recipe(path: Path, text: Path | None) -> "Recipe":
    from lingraft.source_model import load_recipe

    recipe = load_recipe(path)
    return recipe.with_folder(text) if text else recipe


def _starting(recipe: "Recipe") -> "Recipe":
    """Return the recipe after printing its name and languages; steps' imports take seconds, and begin now."""
    from pipelines import forkserver

    print(f"{recipe.name}: {recipe.source.language} to {', '.join(recipe.targets)}. Starting...", flush=True)
    forkserver.start()
    return recipe


if __name__ == "__main__":
    run_app(app)
