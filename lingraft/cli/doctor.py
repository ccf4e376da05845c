"""The command that looks at a cluster before its first run."""

import sys
from typing import Annotated

import typer

from lingraft.cli.options import RecipeOption


def doctor(
    recipe: RecipeOption,
    namespace: Annotated[str, typer.Option(help="Where runs are to take place.")] = "lingraft",
) -> None:
    """Look at the cluster that kubectl is set to, and say what it lacks for a recipe, and what to do about it.

    Ends with 1 if anything is lacking.
    """
    from lingraft.config import Recipe
    from lingraft.doctor import Doctor
    from lingraft.launch.on_cluster import connect

    api, _ = connect()
    findings = [*Doctor(api, namespace, Recipe.load(recipe)).findings()]
    for each in findings:
        print(f"ok       {each.what}" if each.is_good else f"LACKING  {each.what}: {each.gap}\n         {each.remedy}")
    sys.exit(0 if all(each.is_good for each in findings) else 1)
