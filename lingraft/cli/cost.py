"""`lingraft cost`: what a recipe costs before anything is trained."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lingraft.config.systems import System
from lingraft.model.flops import CostError

if TYPE_CHECKING:
    from lingraft.reports.cost.accelerators import Accelerator

# What the command needs is imported by it, so that --help does not wait for it.


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
        typer.Option(help="Share of the peak, of accelerators that state none; 0.4 is assumed (V100: the paper's)."),
    ] = None,
    measured: Annotated[
        Path | None,
        typer.Option(help="Artifact trained on one such accelerator: its manifest gives the utilisation."),
    ] = None,
    price: Annotated[
        float | None, typer.Option(help="Of an hour, of accelerators that state none, in any currency.")
    ] = None,
    gpus: Annotated[int, typer.Option(help="Accelerators of each kind, with one job at a time on each.")] = 1,
    languages: Annotated[int | None, typer.Option(help="Target languages; the recipe's if absent.")] = None,
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
    from lingraft.config.recipe import Recipe
    from lingraft.reports.cost.accelerators import Accelerator
    from lingraft.reports.cost.bill import bills, searched
    from lingraft.reports.cost.table import CostReport, as_json, as_text, language_names

    settings = Recipe.load(recipe)
    count = len(settings.targets) if languages is None else languages
    _require_one("--languages", count)
    _require_one("--gpus", gpus)
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


def _require_one(option: str, given: int) -> None:
    if given < 1:
        raise CostError(f"{option} {given} must be 1 or more.")


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
