"""Everything that a GPU is to be asked, in one command, by worth.

    python -m benchmarks.gpu --minutes 25 --out DIR --page docs/benchmarks/gpu.md [--text FOLDER]

Each part runs in a process of its own with a time limit of its own, and leaves a record under `--out` as soon as it has
ended; one that fails or takes too long does not keep the next from running. The same command again goes on with what
has not ended. `--page` is written from all records that there are. Without a GPU everything runs on the CPU, which
`--tiny` makes a matter of a minute.

    python -m benchmarks.gpu --pack DIR [--data DATA]

writes one folder with everything that another machine needs, see `benchmarks.gpu.pack`.
"""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.gpu.parts import Given, Part, measure, run
from lingraft.errors import LingraftError

SHARES = {
    "environment": 0.05,
    "exactness": 0.16,
    "settings": 0.12,
    "speed": 0.34,
    "profile": 0.06,
    "serving": 0.12,
    "comparison": 1.0,
}
"""Stages in order of worth, with the share of all time that each may take; the last one takes what is left."""


def all_parts(tiny: bool) -> list[Part]:
    """Return all parts in their order."""
    from benchmarks.gpu import environment, exactness, serving, training

    return [
        Part("environment", "device", environment.measured),
        *(
            Part("exactness", name, partial(exactness.measured, name))
            for name in (exactness.UNCOMPILED if tiny else exactness.CHECKS)
        ),
        *training.parts(tiny),
        Part("serving", "onnxruntime", serving.measured),
        Part("comparison", "medium", _compare_systems),
    ]


def _compare_systems(given: Given, keep: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    from benchmarks.gpu import comparison  # imports most of the library, which the processes of other parts do without

    return comparison.measured(given, keep)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(".gpu"), help="folder of the records")
    parser.add_argument("--minutes", type=float, default=25.0, help="for all parts; 0: only write the page")
    parser.add_argument("--page", type=Path, help="page in Markdown, written from the records")
    parser.add_argument("--text", type=Path, help="folder of text for the comparison, as --pack makes it")
    parser.add_argument("--tiny", action="store_true", help="at sizes that a CPU does at once")
    parser.add_argument("--only", nargs="*", choices=SHARES, default=list(SHARES), help="stages to run")
    parser.add_argument("--pack", type=Path, help="write a folder for another machine, and do nothing else")
    parser.add_argument("--data", type=Path, help="folder with the text and tasks of recipes/medium.toml, for --pack")
    parser.add_argument("--megabytes", type=float, default=20.0, help="of text in the pack, over all languages")
    parser.add_argument("--part", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--ends-at", type=float, default=float("inf"), help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    given = Given(asked.out.resolve(), asked.tiny, asked.text and asked.text.resolve(), asked.ends_at)
    if asked.pack:
        from benchmarks.gpu.pack import write_pack

        write_pack(asked.pack, asked.data, asked.megabytes, asked.tiny)
        return
    found = all_parts(given.tiny)
    if asked.part:
        measure(next(part for part in found if [part.stage, part.name] == asked.part), given)
        sys.stdout.flush()
        os._exit(0)  # all is on disk, and threads of native libraries may keep a process from ending
    shares = {stage: share for stage, share in SHARES.items() if stage in asked.only}
    if asked.page and asked.minutes:  # now, not after all these minutes
        from benchmarks.gpu.page import require_replaceable
        from lingraft.training.precision import device

        require_replaceable(asked.page, {device().type})
    if asked.minutes:
        run(found, shares, given, asked.minutes)
    if asked.page:
        from benchmarks.gpu.page import write

        write(asked.page, found, given)
        print(asked.page)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except LingraftError as error:
        sys.exit(f"error: {error}")
