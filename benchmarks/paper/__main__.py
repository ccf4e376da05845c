"""`python -m benchmarks.paper --data DIR --out DIR --page docs/results`: the paper's comparison on real text.

Everything is made under `--out`, once: stopped at any moment, `kill -9` included, the same command goes on. `--page`
is written anew after every judgement, and names what is not yet run; `reading.md` there, written by hand, becomes its
part on what the numbers mean. `--data` has corpus/<language>.txt.xz and the tasks' files that the recipe names.

Started a second time beside itself, it shares the work. On two cores, two of them with OMP_NUM_THREADS=1 do more than
one with two threads.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.pages import command_line
from benchmarks.paper.data import on_data
from benchmarks.paper.page import Page
from lingraft.artifacts import sync
from lingraft.comparison import runner
from lingraft.config.recipe import Recipe
from lingraft.reports.paper.records import PaperRecords

RECIPE = Path(__file__).parents[2] / "recipes" / "small.toml"
_FOLDERS = {"--data": "DIR", "--out": "DIR"}
"""Names of folders on the page, in place of their paths."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder that the recipe's paths are in")
    parser.add_argument("--out", type=Path, required=True, help="folder of everything that is made")
    parser.add_argument("--recipe", type=Path, default=RECIPE, help="with a [paper]; recipes/small.toml if absent")
    parser.add_argument("--page", type=Path, help="folder of the page and its tables, plots and records; OUT/page")
    given = parser.parse_args(arguments)
    os.environ.pop(sync.RESULTS_VARIABLE, None)  # what was made for something else would cost nothing here
    data, out = given.data.resolve(), given.out.resolve()
    recipe = on_data(Recipe.load(given.recipe), data, out)
    command = command_line("benchmarks.paper", sys.argv[1:] if arguments is None else arguments, _FOLDERS)
    hidden = {str(path): "DIR" for path in (data, out)}
    page = Page(recipe, out, given.page or out / "page", command, hidden)
    page.draw(PaperRecords.load(runner.run(recipe, out, page.write).folder))
    print(page.file)


if __name__ == "__main__":
    main()
