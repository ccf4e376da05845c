"""The command for the paper's comparison."""

from pathlib import Path
from typing import Annotated

import typer

from lingraft.cli.options import RecipeOption, print_artifact

# What a command needs is imported by it, so that --help does not wait for torch.


def paper(
    recipe: RecipeOption,
    out: Annotated[
        Path, typer.Option("--out", help="Folder for everything that is made; a run that was stopped goes on there.")
    ],
    allow_holes: Annotated[
        bool, typer.Option("--allow-holes", help="Begin although some text or examples are missing or wrong.")
    ] = False,
) -> None:
    """Compare the systems that the recipe's [paper] names in all languages and tasks, and write tables and figures.

    All text and task examples are checked first, and everything that is wrong with them is told at once. A job that
    failed later is a hole in the tables, with its reason, and no error; the same command tries it again.
    """
    from lingraft import preflight
    from lingraft.comparison import runner as comparison
    from lingraft.config.recipe import Recipe
    from lingraft.reports.paper.report import PAGE_FILE

    settings = Recipe.load(recipe)
    if allow_holes:
        preflight.require_some_ready(settings, settings.targets, out, source=True)
    else:
        preflight.require_ready(settings, out)
    made = comparison.run(settings, out)
    print_artifact(made)
    print((made.folder / PAGE_FILE).resolve())
