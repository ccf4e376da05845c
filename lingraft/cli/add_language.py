"""The command `lingraft add-language`, which runs all stages of a new language."""

import os
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from lingraft.cli.options import (
    MiniOption,
    SourceEvaluationOption,
    TasksOption,
    VectorsOption,
    announce_registry,
    load_recipe,
)
from lingraft.errors import ArtifactError, RecipeError

# What the command needs is imported by it, so that --help does not wait for torch.

_SOURCE = "source"
"""Folder, within that of the results, of what --results brings."""


def add_language(
    text: Annotated[
        list[Path],
        typer.Option(
            "--text",
            help="Files of the language, or folders of files: .txt, .md, .html, .jsonl, .csv or .tsv, each optionally "
            ".gz, .xz or .zst, or .parquet.",
        ),
    ],
    language: Annotated[str, typer.Option("--lang", help="Tag of the language to add, such as 'de' or 'pt-BR'.")],
    model: Annotated[
        str | None,
        typer.Option(
            help="Pretrained model: a hub id such as sentence-transformers/all-MiniLM-L6-v2, a folder of its files, or "
            "models:/NAME@champion. It is imported once.",
        ),
    ] = None,
    pairs: Annotated[
        list[Path] | None,
        typer.Option(
            help="Sentences with their translations, from which the language learns and by which it is tested: a file "
            "of source<TAB>target; given twice: two files line by line, the source's first.",
        ),
    ] = None,
    dictionary: Annotated[
        Path | None, typer.Option(help="Words with their translations: a word list such as MUSE's, or FreeDict.")
    ] = None,
    source_text: Annotated[
        list[Path] | None,
        typer.Option(
            help="Text of the source language, such as the documents that are searched; without --pairs, sentence "
            "pairs are mined from it.",
        ),
    ] = None,
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit of --model on the hub.")] = None,
    source_language: Annotated[str | None, typer.Option(help="Language that --model knows; 'en' if absent.")] = None,
    results: Annotated[
        Path | None,
        typer.Option(
            help="Folder of results of `make demo` or `python -m pipelines`, such as .demo: brings primary, tasks, "
            "recipe and all else that the language needs.",
        ),
    ] = None,
    primary: Annotated[
        Path | None,
        typer.Option(help="From `lingraft pretrain` or `lingraft import`, where there are no such results."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder of all results, named as the language if absent; stages that it has results of are skipped."
        ),
    ] = None,
    more_text: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILES", help="More of the language's text, so that --text *.txt works."),
    ] = None,
    task: TasksOption = None,
    mini: MiniOption = None,
    source_evaluation: SourceEvaluationOption = None,
    recipe: Annotated[
        Path | None,
        typer.Option(
            help="The primary's recipe, for settings that no option names. Absent: chosen by primary and text."
        ),
    ] = None,
    depth: Annotated[
        int | None,
        typer.Option(
            help="Bottom layers to learn over. Absent: the recipe's, else those of the mini-model or of the shallowest "
            "head; all layers of an embedding model."
        ),
    ] = None,
    vocabulary: Annotated[
        int | None,
        typer.Option(
            help="Pieces of the tokenizer. Absent: the recipe's, else the primary's, at most 50,000 (15,000 for an "
            "embedding model) or what the text supports."
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(
            help="Updates. Absent: the recipe's, else ten epochs of text (500 to 125,000), or one of pairs (from 100)."
        ),
    ] = None,
    batch: Annotated[int | None, typer.Option(help="Blocks in one update. Absent: the recipe's, else 32.")] = None,
    learning_rate: Annotated[
        float | None,
        typer.Option(help="Peak learning rate. Absent: the recipe's, else 0.002, or 0.003 by pairs."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of initial rows, order of text, and masks. Absent: the recipe's, else 1.")
    ] = None,
    text_column: Annotated[
        str | None, typer.Option(help="Column that holds the text in .csv, .tsv, .parquet and .jsonl. Absent: 'text'.")
    ] = None,
    vectors: VectorsOption = None,
    project: Annotated[
        str | None, typer.Option(help="Name of the recipe, where --results has those of several projects.")
    ] = None,
) -> None:
    """Add a language to a pretrained model in one resumable command: text to swapped, judged and exported model.

    The model is --model; or that of --results; or --primary, with --task for each task and seed. An embedding model
    learns by sentence pairs (--pairs), or by pairs that are mined from its documents (--source-text); a dictionary
    helps where there are none. A command that was stopped goes on with the stage that it was at.
    """
    out = out or Path(language)
    given: dict[str, Any] = {
        "primary": primary,
        "tasks": task or [],
        "mini": mini,
        "vectors": vectors,
        "source_evaluation": source_evaluation,
        "recipe": recipe,
    }
    _require_one_model({"--model": model, "--results": results, "--primary": primary})
    _require_read("--model", model, {"--revision": revision, "--source-language": source_language})
    _require_read("--results", results, {"--project": project})
    if results:
        given |= _from_results(results, project, out, given)
    elif model:
        given |= _from_model(model, source_language or "en", revision, given)
    from lingraft.new_language.recipe import Resources, Wanted
    from lingraft.new_language.run import add_language as run

    if recipe:
        given["recipe"] = load_recipe(recipe)
    wanted = Wanted(
        depth=depth,
        vocabulary=vocabulary,
        steps=steps,
        batch_blocks=batch,
        learning_rate=learning_rate,
        seed=seed,
        text_column=text_column,
    )
    resources = Resources.of(pairs, dictionary, source_text or ())
    texts = [*text, *(more_text or [])]
    print(run(text=texts, language=language, out=out, wanted=wanted, resources=resources, **given).summary())
    if results:
        from lingraft.console import command_line

        command = command_line("lingraft", "registry", "add", out)
        registry = shlex.quote(os.environ["MLFLOW_TRACKING_URI"])
        print(f"to serve it beside the others: MLFLOW_TRACKING_URI={registry} {command}")


def _require_one_model(places: dict[str, object]) -> None:
    if len(given := [option for option, value in places.items() if value]) == 1:
        return
    raise RecipeError(
        f"the language needs one model to be added to, and {given or 'none'} was given. Give --model, such as "
        "sentence-transformers/all-MiniLM-L6-v2; or --results, the folder that `make demo` or `python -m pipelines` "
        "has filled; or --primary."
    )


def _require_read(needed: str, place: object, options: dict[str, str | None]) -> None:
    if unread := [option for option, value in options.items() if value is not None and not place]:
        raise RecipeError(f"{' and '.join(unread)} is read only with {needed}. Leave it out, or give {needed}.")


def _from_model(model: str, language: str, revision: str | None, given: dict[str, Any]) -> dict[str, Any]:
    """Primary and tasks of a model, which is imported if that was not done before."""
    from lingraft.api import Primary

    found = Primary.from_pretrained(model, language, revision, given["tasks"])
    return {"primary": found.folder, "tasks": found.tasks}


def _from_results(results: Path, project: str | None, out: Path, given: dict[str, Any]) -> dict[str, Any]:
    """Inputs that a folder of results brings, downloaded once; a recipe that is given goes before its own."""
    from lingraft.artifacts.names import task_folders
    from lingraft.config.recipe import Recipe
    from lingraft.jobs.evaluation import SOURCE_RECIPE, SourceDirs

    if doubled := [name for name, value in given.items() if value and name != "recipe"]:
        raise RecipeError(f"--results brings {', '.join(doubled)} itself. Leave these out, or leave out --results.")
    _use_registry_of(results)
    folders, recorded = SourceDirs.under(out / _SOURCE), out / _SOURCE / SOURCE_RECIPE
    if not recorded.exists():
        announce_registry()
        _download_source(project, out / _SOURCE)
    own = Recipe.parse(recorded.read_text(encoding="utf-8"), str(recorded))
    return {
        "primary": folders.primary,
        "tasks": task_folders(own, folders.tasks),
        "mini": folders.mini if own.builds_mini else None,
        "vectors": folders.vectors if own.needs_vectors else None,
        "source_evaluation": folders.evaluation,
        "recipe": given["recipe"] or own,
    }


def _use_registry_of(results: Path) -> None:
    """Have MLflow look where a local run keeps its registry, unless it kept it where the environment says."""
    from lingraft.artifacts.addresses import sqlite_address
    from lingraft.tracking.environment import LOCAL_STORE, TRACKING

    database = results.resolve() / LOCAL_STORE
    if database.is_file():
        os.environ[TRACKING] = sqlite_address(database)
    elif not os.environ.get(TRACKING):
        raise ArtifactError(
            f"{results} has no results: {database} is not there. Give the folder that was --out (or DEMO) of a run, "
            f"or set {TRACKING} if the run had it set."
        )


def _download_source(project: str | None, out: Path) -> None:
    from lingraft.cli.registry import chosen_project
    from lingraft.tracking import connect
    from lingraft.tracking.source import download_project

    download_project(connect(), chosen_project(project), out)
