"""Commands for a whole recipe: writing one, its cost, and the paper's comparison."""

from pathlib import Path
from typing import Annotated

import typer

from lingraft.cli.options import RecipeOption, load_recipe, print_artifact
from lingraft.config.systems import System
from lingraft.model.flops import V100_FLOPS_PER_S

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


def cost(
    recipe: Annotated[Path, typer.Option("--recipe", help="TOML recipe; the ones we ship are in recipes/.")],
    tflops: Annotated[
        float, typer.Option(min=1e-3, help="TFLOP/s that training reaches; 30 is what the paper takes a V100 to reach.")
    ] = V100_FLOPS_PER_S / 1e12,
    languages: Annotated[int | None, typer.Option(min=1, help="Target languages; the recipe's if absent.")] = None,
    system: Annotated[
        list[System] | None,
        typer.Option(metavar="SYSTEM", help=f"{', '.join(System)}, once each; all that the recipe allows if absent."),
    ] = None,
    depth: Annotated[
        list[int] | None, typer.Option(help="Layers of the mini-model, once each; adaptation.depth if absent.")
    ] = None,
) -> None:
    """Compute FLOPs and hours of each system and step of a recipe before training, by the paper's equations A1, A3, A4.

    Try: lingraft cost --recipe recipes/base.toml --tflops 250
    """
    from lingraft.reports.cost import as_text, bills

    settings = load_recipe(recipe)
    found, omitted = bills(settings, system or (), depth or ())
    print(as_text(settings, found, omitted, languages or len(settings.targets), tflops))


def paper(
    recipe: RecipeOption,
    out: Annotated[Path, typer.Option("--out", help="Folder of all results; a run that was stopped goes on there.")],
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="Begin although some text or examples are missing or wrong.")
    ] = False,
) -> None:
    """Compare the systems that the recipe's [paper] names in all languages and tasks, and write tables and figures.

    All text and task examples are checked first, and everything that is wrong with them is listed at once. Where a job
    fails later, its cells are missing from the tables, which give the reason. Run the same command to try it again.
    """
    from lingraft import preflight
    from lingraft.comparison import runner as comparison
    from lingraft.reports.paper.report import PAGE_FILE

    settings = load_recipe(recipe)
    if allow_missing:
        preflight.require_some_ready(settings, settings.targets, out, source=True)
    else:
        preflight.require_ready(settings, out)
    made = comparison.run(settings, out)
    print_artifact(made)
    print((made.folder / PAGE_FILE).resolve())
