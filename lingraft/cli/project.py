"""Commands for a whole recipe: writing one, its cost, and the paper's comparison."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lingraft.cli.options import RecipeOption, load_recipe, print_artifact
from lingraft.config.systems import System
from lingraft.model.flops import CostError

if TYPE_CHECKING:
    from lingraft.reports.cost.accelerators import Accelerator

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
    accelerator: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME[:PEAK_TFLOPS[:UTILISATION[:PRICE]]], once a kind: V100 (the default, at the paper's rate), T4, "
            "A100, L4, H100, H200, or any name with its dense peak."
        ),
    ] = None,
    utilisation: Annotated[
        float | None,
        typer.Option(help="Share of peak that --accelerator does not state; 0.26 if absent (V100: the paper's)."),
    ] = None,
    measured: Annotated[
        Path | None,
        typer.Option(help="Artifact trained on one such accelerator: its manifest gives the utilisation."),
    ] = None,
    price: Annotated[
        float | None, typer.Option(help="Price of an hour that --accelerator does not state, in any currency.")
    ] = None,
    gpus: Annotated[int, typer.Option(min=1, help="Accelerators of each kind, with one job at a time on each.")] = 1,
    languages: Annotated[int | None, typer.Option(min=1, help="Target languages; the recipe's if absent.")] = None,
    system: Annotated[
        list[System] | None,
        typer.Option(metavar="SYSTEM", help=f"{', '.join(System)}, once each; all that the recipe allows if absent."),
    ] = None,
    depth: Annotated[
        list[int] | None, typer.Option(help="Layers of the mini-model, once each; adaptation.depth if absent.")
    ] = None,
    examples: Annotated[
        list[str] | None, typer.Option(help="TASK=NUMBER of training examples, once a task: counts its finetuning.")
    ] = None,
    as_machine: Annotated[bool, typer.Option("--json", help="Print JSON, unrounded, in place of tables.")] = False,
) -> None:
    """Price a recipe before training: FLOPs of each system and step, V100-days, and hours and money on your GPUs.

    FLOPs are those of the paper's equations A1, A3 and A4. With several accelerators, one job at a time runs on each:
    first pretraining (and step 1b), then the languages side by side.

    Try: lingraft cost --recipe recipes/base.toml --accelerator H100 --gpus 8
    """
    from lingraft.reports.cost.accelerators import Accelerator
    from lingraft.reports.cost.bill import bills, searched
    from lingraft.reports.cost.table import CostReport, as_json, as_text, language_names

    settings = load_recipe(recipe)
    count = len(settings.targets) if languages is None else languages
    found, left_out = bills(settings, system or (), depth or (), _examples(examples or []))
    kinds = [Accelerator.parse(text, utilisation, price) for text in accelerator or ["V100"]]
    if measured is not None:
        kinds = [_measured(kinds, measured, utilisation)]
    costs = CostReport(
        recipe=settings,
        bills=found,
        omitted=left_out,
        search=searched(settings),
        languages=language_names(settings, count),
        accelerators=kinds,
        gpus=gpus,
    )
    print(json.dumps(as_json(costs), indent=2) if as_machine else as_text(costs))


def _examples(given: list[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for text in given:
        name, _, number = text.partition("=")
        if not (name and number.isdecimal()) or name in counts:
            raise CostError(f"--examples {text!r} must be TASK=NUMBER, such as xnli=392702, once a task.")
        counts[name] = int(number)
    return counts


def _measured(kinds: "list[Accelerator]", trained: Path, utilisation: float | None) -> "Accelerator":
    if len(kinds) > 1 or utilisation is not None:
        raise CostError(
            f"--measured {trained} gives the utilisation of one --accelerator. Give one only, and no --utilisation."
        )
    return kinds[0].with_measured_utilisation(trained)


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
