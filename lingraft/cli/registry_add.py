"""`lingraft registry add`: what `lingraft add-language` left becomes part of a registered project."""

from pathlib import Path
from typing import Annotated

import typer

from lingraft.cli.registry import ByOption, current_user
from lingraft.errors import PromotionError

# What the command needs is imported by it, so that --help does not wait for MLflow.


def add(
    folder: Annotated[
        Path, typer.Argument(help="What `lingraft add-language` left (its --out); or a primary, or a task.")
    ],
    project: Annotated[
        str | None, typer.Option(help="Name of the project; of a language or task, the one with its primary if absent.")
    ] = None,
    recipe: Annotated[
        Path | None, typer.Option(help="Recipe whose [gate] counts; the gate's defaults if absent.")
    ] = None,
    by: ByOption = None,
) -> None:
    """Register a language that was added, promote it if it passes the gate, and put it into the project's bundles.

    Its primary, and the tasks that it is to be served with, are added before. Ends with 1 if the embeddings or a bundle
    are refused.
    """
    from lingraft.artifacts.artifact import MANIFEST

    if (folder / MANIFEST).is_file():
        return _add_artifact(folder, by or current_user(), project)
    from lingraft.bundle.format import bundle_languages
    from lingraft.config.gate import Gate
    from lingraft.config.recipe import Recipe
    from lingraft.tracking.promotion.adding import add_language
    from lingraft.tracking.promotion.gate import format_checks, refusal_reason

    gate = Recipe.load(recipe).gate if recipe else Gate()
    added = add_language(folder, by or current_user(), gate, project)
    model, refused = added.decided.model, []
    print(format_checks(added.decided.checks))
    if added.decided.after == added.version:
        print(f"version {added.version} of {model!r} is champion")
    else:
        refused.append(f"version {added.version} of {model!r}: {refusal_reason(added.decided.checks)}")
    for name, renewal in added.renewals.items():
        if renewal.refused:
            refused.append(f"version {renewal.version} of {name!r}: {renewal.refused}")
        else:
            languages = ", ".join(bundle_languages(renewal.made.manifest))
            print(f"version {renewal.version} of {name!r} is champion: {languages}")
    if refused:
        raise PromotionError(f"registered, and not promoted: {' '.join(refused)}")


def _add_artifact(folder: Path, asked_by: str, project: str | None) -> None:
    from lingraft.tracking.promotion.adding import add_artifact

    added = add_artifact(folder, asked_by, project)
    print(f"version {added.version} of {added.model!r} is registered; version {added.champion} is champion")
    if added.champion != added.version:
        print(f"`lingraft registry promote {added.model} {added.version}` makes it champion")
