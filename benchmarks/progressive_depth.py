"""`python -m benchmarks.progressive_depth --text DIR --out DIR`: progressive adaptation against every fixed depth.

A primary with several MLM heads is pretrained, unless one is given, and each language is learned at equal FLOPs over
each of its depths, over all of them by equal shares, and over all of them by the dev loss. What is in `--out` already
is used again: a run that was stopped goes on. `--page` writes tables, records and picture.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.pages import command_line, write_page
from benchmarks.progressive.page import draw, page
from benchmarks.progressive.runs import Bench, known, pretrained
from benchmarks.speed.machine import commit, cores
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.config.recipe import Recipe
from lingraft.training.precision import device

RECIPE = Path(__file__).parents[1] / "recipes" / "progressive.toml"
_FOLDERS = {"--text": "DIR", "--out": "DIR", "--primary": "PRIMARY", "--page": "PAGE"}
"""Names of folders on the page, in place of their paths."""


def measured(recipe: Recipe, out: Path, primary: Path | None, seeds: Sequence[int]) -> dict[str, Any]:
    """Everything that was found.

    Args:
        recipe: recipe whose adaptation goes progressively over all heads of the primary, by the dev loss.
        out: folder of results.
        primary: primary whose shape goes before the recipe's; None: one is pretrained.
        seeds: seeds of adaptation.
    """
    if primary:
        raw = recipe.model_dump(mode="json")
        shape = Artifact.load(primary, Kind.PRIMARY).manifest.details["shape"]
        recipe = Recipe.parse(raw | {"encoder": shape})
    body = primary or pretrained(recipe, out)
    accuracies = None if primary else known(recipe, body, out)
    records = [record for target in recipe.targets for record in Bench(recipe, body, target, out).records(seeds)]
    found, shape = Artifact.load(body, Kind.PRIMARY), recipe.encoder
    facts = {"fingerprint": found.fingerprint, "steps": found.manifest.cost.steps, "tokens": found.manifest.cost.tokens}
    facts |= {"layers": shape.layers, "width": shape.width, "heads": list(shape.mlm_heads), "known": accuracies}
    machine = {"device": device().type, "cores": cores(), "commit": commit()}
    return {
        "steps": recipe.adaptation.steps,
        "seeds": [*seeds],
        "primary": facts,
        "machine": machine,
        "records": records,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is missing, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, required=True, help="folder of text, as [text] kind = 'folder' takes it")
    parser.add_argument("--out", type=Path, required=True, help="folder of everything that is made")
    parser.add_argument("--recipe", type=Path, default=RECIPE, help="its size; recipes/progressive.toml if absent")
    parser.add_argument("--primary", type=Path, help="of the recipe's source language, with several MLM heads")
    parser.add_argument("--languages", nargs="+", help="targets; the recipe's if absent")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument(
        "--page", type=Path, help="writes PAGE.md, PAGE.json.xz and PAGE.png; OUT/progressive-depth if absent"
    )
    given = parser.parse_args(arguments)
    recipe = Recipe.load(given.recipe).with_folder(given.text)
    if given.languages:
        recipe = Recipe.parse(recipe.model_dump(mode="json") | {"targets": given.languages})
    found = measured(recipe, given.out, given.primary, given.seeds)
    given_words = sys.argv[1:] if arguments is None else arguments
    found["command"] = command_line("benchmarks.progressive_depth", given_words, _FOLDERS)
    at = given.page or given.out / "progressive-depth"
    text = page(found, at.with_suffix(".png").name)
    write_page(at, found, text, draw(found))
    print(text)


if __name__ == "__main__":
    main()
