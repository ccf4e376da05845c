"""`python -m pipelines compile|submit|follow|run|demo`: a recipe's pipelines, for a cluster or on this machine."""

from pathlib import Path
from typing import Annotated

import typer
from kfp import compiler

from lingraft.cli import run_app
from lingraft.config import Recipe
from lingraft.errors import LingraftError
from lingraft.files import make_folder, writable
from lingraft.progress import say
from pipelines import local
from pipelines.catalogue import PIPELINES, pipeline_named
from pipelines.server import commands
from pipelines.server.commands import RecipeOption

app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)

OutOption = Annotated[Path, typer.Option("--out", help="Folder for everything that is made.")]
TextOption = Annotated[
    Path | None, typer.Option("--text", help="Text of your own: a folder with one file or folder per language.")
]
CompareOption = Annotated[bool, typer.Option("--compare", help="Adapt over all layers as well, to compare with.")]


DropOption = Annotated[
    list[str] | None,
    typer.Option("--drop-language", help="Language to take out of production; repeatable. Others never leave it."),
]
NewPrimaryOption = Annotated[
    bool, typer.Option("--new-primary", help="Let bundles of another primary than the champion's into production.")
]
NewLabelsOption = Annotated[
    bool, typer.Option("--new-labels", help="Let bundles with other labels than the champion's into production.")
]


@app.command("compile")
def compile_all(recipe: RecipeOption, out: OutOption = Path("compiled")) -> None:
    """Write the pipelines as YAML, to be uploaded to Kubeflow Pipelines; those of another recipe do not stay beside."""
    settings = Recipe.load(recipe)
    make_folder(out)
    with writable(out):
        wanted = {"depth-search": settings.search, "paper": settings.paper}
        for name, pipeline in PIPELINES.items():
            file = out / f"{name}.yaml"
            if wanted.get(name, settings):
                compiler.Compiler().compile(pipeline(settings), str(file))
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
    allowed = {"drop_languages": drop_language or [], "new_primary": new_primary, "new_labels": new_labels}
    if pipeline != "language" and any(allowed.values()):
        raise LingraftError(
            "--drop-language, --new-primary and --new-labels are for the pipeline 'language', and not for "
            f"{pipeline!r}."
        )
    arguments = {"compare": compare, **allowed} if pipeline == "language" else {}
    local.run(pipeline_named(pipeline)(_recipe(recipe, text)), out, **arguments)


@app.command()
def demo(
    recipe: RecipeOption = Path("recipes/demo.toml"),
    out: OutOption = Path(".demo"),
    text: TextOption = None,
    compare: CompareOption = False,
    drop_language: DropOption = None,
) -> None:
    """Run the main job from text to a served answer: all three pipelines, the report, and the endpoint."""
    from pipelines import demo as main_job

    main_job.run(_recipe(recipe, text), out, compare, drop_language or [])


app.command()(commands.submit)
app.command()(commands.follow)


def _recipe(path: Path, text: Path | None) -> Recipe:
    recipe = Recipe.load(path)
    return recipe.with_folder(text) if text else recipe


if __name__ == "__main__":
    run_app(app)
