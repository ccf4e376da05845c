"""Commands for a whole recipe: writing one, and comparing its systems."""

from pathlib import Path
from typing import Annotated

import typer

from lingraft.cli.options import load_recipe, print_artifact

# Commands import what they need, so that --help does not wait for PyTorch and MLflow.


def init(
    folder: Annotated[
        Path,
        typer.Argument(help="Folder of text: a file or folder for each language, named after it: en.txt, sw.jsonl.gz."),
    ],
    template: Annotated[
        str, typer.Option(help="scratch: a primary of your own; search: an embedding model that you search with.")
    ] = "scratch",
    out: Annotated[Path, typer.Option("--out", help="The recipe's file.")] = Path("recipe.toml"),
    source: Annotated[str, typer.Option("--source", help="Source language; the others are added.")] = "en",
    name: Annotated[str, typer.Option("--name", help="The project's name. Absent: the folder's.")] = "",
    model: Annotated[
        str, typer.Option("--model", help="Model of template search: a hub id or a folder.")
    ] = "sentence-transformers/all-MiniLM-L6-v2",
    force: Annotated[bool, typer.Option("--force", help="Replace a recipe that is there.")] = False,
) -> None:
    """Write a recipe for a folder of text: a template, every line explained, with the folder's languages filled in.

    Text is .txt, .md, .html, .jsonl, .csv, .tsv or .parquet, or folders of these; most may be .gz, .xz or .zst. If each
    document of the source has a label, template scratch has a task that is learned from them.
    """
    from lingraft.artifacts.files import write_text
    from lingraft.console import command_line
    from lingraft.errors import ArtifactError
    from lingraft.new_recipe import new_recipe

    if out.exists() and not force:
        raise ArtifactError(f"{out} exists already. Choose another --out, or replace it with --force.")
    write_text(out, new_recipe(folder, template, source, name, model))
    demo = command_line(*["python", "-m", "pipelines", "demo", "--recipe"], out, "--out", "results")
    print(f"{out} is written. Read it, then run\n  {demo}")


def compare(
    recipe: Annotated[Path, typer.Argument(help="Recipe with a section [paper].")],
    out: Annotated[Path, typer.Option("--out", help="Folder of all results; a run that was stopped goes on there.")],
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="Begin although some text or examples are missing or wrong.")
    ] = False,
) -> None:
    """Compare the systems that the recipe's [paper] names in all languages and tasks, and write a page of results.

    All text and task examples are checked first, and everything that is wrong with them is listed at once. Where a job
    fails later, its scores are missing from the page, which gives the reason. Run the same command to try it again.
    """
    from lingraft import preflight
    from lingraft.comparison import runner
    from lingraft.comparison.page import HTML_FILE

    settings = load_recipe(recipe)
    for start in settings.by_start().values():
        if allow_missing:
            preflight.require_some_ready(start, start.targets, out, source=True)
        else:
            preflight.require_ready(start, out)
    made = runner.run(settings, out)
    print_artifact(made)
    print((made.folder / HTML_FILE).resolve())
