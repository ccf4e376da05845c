"""The command that looks at a cluster before its first run."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from lingraft.cli.options import RecipeOption

if TYPE_CHECKING:
    from lingraft.doctor import Finding


def doctor(
    recipe: RecipeOption,
    namespace: Annotated[str, typer.Option(help="Where runs are to take place.")] = "lingraft",
) -> None:
    """Look at the cluster that kubectl is set to, and say what it lacks for a recipe, and what to do about it.

    Ends with 1 if anything is lacking; a warning is about what only you can tell.
    """
    from lingraft.config.recipe import Recipe
    from lingraft.doctor import examine
    from lingraft.steps.launch.on_cluster import connect

    cluster, (api, _) = Recipe.load(recipe).cluster, connect()
    lacking = 0
    for finding in examine(api, namespace, cluster):
        print(_line(finding), flush=True)
        lacking += finding.is_lacking
    sys.exit(1 if lacking else 0)


def _line(finding: "Finding") -> str:
    if finding.is_good:
        return f"ok       {finding.what}"
    weight = "LACKING" if finding.is_lacking else "warning"
    return f"{weight}  {finding.what}: {finding.gap}\n         {finding.remedy}"
