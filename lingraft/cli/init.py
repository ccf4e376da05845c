"""The command that writes a recipe for a folder of text."""

from pathlib import Path
from typing import Annotated

import typer

# What a command needs is imported by it, so that --help does not wait for torch.


def init(
    folder: Annotated[
        Path,
        typer.Argument(
            help="Folder of text: a file or folder for each language, named after it, such as en.txt, de.jsonl.gz, "
            "corpus.sw.txt or tr/."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", help="The recipe's file.")] = Path("recipe.toml"),
    source: Annotated[
        str | None,
        typer.Option("--source", help="Source language. Absent: en if it is there, else the one with the most text."),
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="The project's name. Absent: the folder's.")] = None,
    hours: Annotated[
        float, typer.Option("--hours", min=0.01, help="About how long training may take on this machine.")
    ] = 0.5,
    force: Annotated[bool, typer.Option("--force", help="Replace a recipe that is there.")] = False,
) -> None:
    """Write a recipe for a folder of text: languages, task and sizes by what is there, every line explained.

    Text: .txt (a document a line, or documents between blank lines), .jsonl ({"text": ..., "label": ...} a line), both
    also as .gz, .xz or .zst, .parquet, or folders of these; sub-folders are labels. With a label for every document,
    the recipe has a task, learned in the source language and judged in all. Encoder, vocabulary, updates, blocks and
    batches follow from the amount of text, from this machine and from --hours.

    Text that cannot be read or is too short is listed, with file and line, and no recipe is written.
    """
    from lingraft.console import say
    from lingraft.errors import ArtifactError

    if out.exists() and not force:
        raise ArtifactError(f"{out} exists already. Choose another --out, or replace it with --force.")
    say(f"Looking at {folder}")
    from lingraft.new_recipe import NewRecipe

    made = NewRecipe.of(folder, source=source, name=name, hours=hours)
    made.write(out, force)
    print(f"{made.summary()}\nwritten   {out}")
    print(f"\nNext:\n  python -m pipelines demo --recipe {out} --out {made.recipe.name}-results")
