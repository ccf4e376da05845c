"""The command for the paper's comparison."""

from pathlib import Path
from typing import Annotated

import typer

from lingraft.cli.options import RecipeOption, say

# What a command needs is imported by it, so that --help does not wait for torch.


def paper(
    recipe: RecipeOption,
    out: Annotated[
        Path, typer.Option("--out", help="Folder for everything that is made; a run that was stopped goes on there.")
    ],
) -> None:
    """Compare the systems that the recipe's [paper] names in all languages and tasks, and write tables and figures.

    A job that failed is a hole in them, with its reason, and no error; the same command tries it again.
    """
    from lingraft.comparison import runner as comparison
    from lingraft.config import Recipe
    from lingraft.paper.report import PAGE_FILE

    made = comparison.run(Recipe.load(recipe), out)
    say(made)
    print((made.folder / PAGE_FILE).resolve())
