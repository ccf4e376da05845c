"""Text to blocks: how fast, in how much memory, and beside what a user of transformers would do.

    python -m benchmarks.data --data DIR [--languages sw el ...] [--flat LANGUAGE] [--rounds 1] --out FILE

DIR holds <language>.txt, plain or .gz, .xz, .zst. Each side starts from that file and ends with blocks on disk;
training the tokenizer, which both share, is timed apart. Whatever `--out`.json holds is not measured again, so an
interrupted run goes on where it was; the page (.md) is written anew each time. Text stays in a temporary folder that is
gone afterwards.
"""

import argparse
import json
import os
import re
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import zstandard

from benchmarks.data_page import page
from benchmarks.pages import RECORD_SUFFIX, read_record, write_record
from benchmarks.process_tree import CommandError, Ran, run
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.files import write_json, write_text
from lingraft.artifacts.manifest import Kind
from lingraft.config.recipe import Recipe
from lingraft.data.lines import read_lines
from lingraft.data.splits import SPLITS
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.huggingface.fast_tokenizer import fast_tokenizer, tokenizer_config

CORES = 2
COMPARED_LINES = 2_000
COPIES = 4
"""How often the corpus is taken to see whether memory grows with it."""
RECIPE = """
name = "data"
source = "{language}"
targets = ["{other}"]
[text]
kind = "files"
paths.{language} = {paths}
{cleaning}
[split]
dev_share = 0.01
test_share = 0.01
[tokenizer]
vocabulary = {vocabulary}
sample_lines = {sample_lines}
[encoder]
width = 768
layers = 12
attention_heads = 12
mlm_heads = [12]
block_tokens = {block_tokens}
[pretraining]
steps = 1
batch_blocks = 8
learning_rate = 1e-4
warmup_steps = 0
[adaptation]
depth = 12
steps = 1
batch_blocks = 8
learning_rate = 1e-4
warmup_steps = 0
"""


class Bench:
    """One language's files in a folder, and the commands that make them."""

    def __init__(self, folder: Path, language: str, settings: argparse.Namespace) -> None:
        self.folder, self.language, self.settings = folder, language, settings
        self.vocabulary = settings.vocabulary

    def recipe(self, name: str, paths: Iterable[Path], cleaned: bool = True) -> Path:
        """Write a recipe."""
        path = self.folder / f"{name}.toml"
        content = RECIPE.format(
            language=self.language,
            other="de" if self.language == "en" else "en",
            paths=json.dumps([str(path) for path in paths]),
            cleaning="[text.cleaning]" if cleaned else "",
            vocabulary=self.vocabulary,
            sample_lines=self.settings.sample_lines,
            block_tokens=self.settings.block_tokens,
        )
        path.write_text(content)
        return path

    def text(self, recipe: Path, out: str) -> Ran:
        """Make a text artifact from files."""
        return self._lingraft("text", recipe, language=self.language, out=self.folder / out)

    def tokenizer(self, paths: Sequence[Path]) -> Ran:
        """Train it, with as many pieces as wanted or as the text supports; a training in vain counts too."""
        made = {"text": self.folder / "text", "out": self.folder / "tokenizer"}
        try:
            return self._lingraft("tokenize", self.recipe("cleaned", paths), **made)
        except CommandError as error:
            supported = re.search(r"it supports (\d+) at most", str(error))
            if not supported:
                raise
            self.vocabulary = int(supported[1])
            again = self._lingraft("tokenize", self.recipe("cleaned", paths), **made)
            peak_bytes = max(error.ran.peak_bytes, again.peak_bytes)
            return Ran(round(error.ran.elapsed_s + again.elapsed_s, 2), peak_bytes)

    def blocks(self, recipe: Path, text: str, out: str) -> Ran:
        """Pack a text artifact into blocks."""
        return self._lingraft(
            "blocks",
            recipe,
            text=self.folder / text,
            tokenizer=self.folder / "tokenizer",
            out=self.folder / out,
        )

    def peer(self, file: Path) -> Ran:
        """Make the peer's blocks from a file, with the same pieces."""
        pieces, shape = Tokenizer.load(self.folder / "tokenizer"), self._recipe().primary_shape
        home = self.folder / "fast"
        home.mkdir()
        fast_tokenizer(pieces, shape).save(str(home / "tokenizer.json"))
        write_json(home / "tokenizer_config.json", tokenizer_config(pieces, shape) | {"model_max_length": 10**9})
        command = [sys.executable, "-m", "benchmarks.data_peer", "--text", str(file), "--tokenizer", str(home)]
        lengths = ["--block-tokens", str(self.settings.block_tokens), "--processes", str(CORES)]
        return run(
            [*command, *lengths, "--out", str(self.folder / "peer")],
            # As its own warning recommends where processes are forked, which would otherwise each start threads.
            {
                **os.environ,
                "TOKENIZERS_PARALLELISM": "false",
                "HF_HUB_OFFLINE": "1",
                "HF_HOME": str(self.folder / "hf"),
            },
        )

    def equal_lines(self, file: Path) -> float:
        """Share of lines that both sides cut alike."""
        pieces = Tokenizer.load(self.folder / "tokenizer")
        fast = fast_tokenizer(pieces, self._recipe().primary_shape)
        lines = [line for line in islice(read_lines(file), COMPARED_LINES) if line.strip()]
        return sum(fast.encode(line, add_special_tokens=False).ids == pieces.encode(line) for line in lines) / len(
            lines
        )

    def counts(self, file: Path) -> dict[str, Any]:
        """How much there was, and what became of it."""
        found = Artifact.open(self.folder / "blocks", Kind.BLOCKS).manifest.details
        return {
            "text_bytes": sum(len(line.encode()) + 1 for line in read_lines(file)),
            "tokens": sum(found["tokens"][split] for split in SPLITS),
            "vocabulary": found["vocabulary"],
            "equal_lines": self.equal_lines(file),
        }

    def _recipe(self) -> Recipe:
        return Recipe.load(self.folder / "cleaned.toml")

    def _lingraft(self, command: str, recipe: Path, **options: Path | str) -> Ran:
        given = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        start = [sys.executable, "-c", "from lingraft.cli import main; main()"]
        return run([*start, command, "--recipe", str(recipe), *given])


def measure(language: str, file: Path, settings: argparse.Namespace) -> dict[str, Any]:
    """Both sides on one language, in turns: median times, and the most memory of all rounds."""
    rounds = [_round(language, file, settings) for _ in range(settings.rounds)]
    return rounds[-1][1] | {"rounds": len(rounds)} | over_rounds([ran for ran, _ in rounds])


def over_rounds(rounds: Sequence[dict[str, Ran]]) -> dict[str, Any]:
    """Return the median time of each part, that of every round, and the most memory."""
    return {
        name: {
            "elapsed_s": statistics.median(ran[name].elapsed_s for ran in rounds),
            "rounds_s": [ran[name].elapsed_s for ran in rounds],
            "peak_bytes": max(ran[name].peak_bytes for ran in rounds),
        }
        for name in rounds[0]
    }


def _round(language: str, file: Path, settings: argparse.Namespace) -> tuple[dict[str, Ran], dict[str, Any]]:
    """Return what each part took, and how much there was."""
    with tempfile.TemporaryDirectory(dir=settings.work) as folder:
        bench = Bench(Path(folder), language, settings)
        cleaned, plain = bench.recipe("cleaned", [file]), bench.recipe("plain", [file], cleaned=False)
        ran = {
            "text": bench.text(cleaned, "text"),
            "tokenizer": bench.tokenizer([file]),
            "blocks": bench.blocks(cleaned, "text", "blocks"),
            "peer": bench.peer(file),
            "plain_text": bench.text(plain, "plain-text"),
            "plain_blocks": bench.blocks(plain, "plain-text", "plain-blocks"),
        }
        return ran, bench.counts(file)


def flatness(language: str, file: Path, settings: argparse.Namespace) -> dict[str, Any]:
    """Memory on a corpus, and on one of several times its size: copies whose lines all differ."""
    with tempfile.TemporaryDirectory(dir=settings.work) as folder:
        bench = Bench(Path(folder), language, settings)
        copies = [_copy(file, Path(folder) / f"{number}.txt.zst", number) for number in range(COPIES)]
        bench.text(bench.recipe("cleaned", copies[:1]), "text")
        bench.tokenizer(copies[:1])
        found: dict[str, Any] = {"language": language, "copies": COPIES}
        for name, paths in (("once", copies[:1]), ("copied", copies)):
            recipe = bench.recipe("cleaned", paths)
            text = bench.text(recipe, f"text-{name}")
            blocks = bench.blocks(recipe, f"text-{name}", f"blocks-{name}")
            found[name] = {"text": text._asdict(), "blocks": blocks._asdict()}
        return found


def _copy(file: Path, to: Path, number: int) -> Path:
    with zstandard.open(to, "wt", encoding="utf-8") as stream:
        for line in read_lines(file):
            # A word in front of each line, so that none is taken for one that was read before.
            stream.write(f"{'x' * number} {line}\n" if number and line.strip() else f"{line}\n")
    return to


def record(path: Path, found: dict[str, Any], name: str, measured: Callable[[], dict[str, Any]]) -> None:
    """Measure what is not on disk yet, and put it there."""
    if name not in found:
        found[name] = measured()
        print(name, json.dumps(found[name]), flush=True)
        write_record(path, found)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--languages", nargs="*", default=[], help="only these; all if absent")
    parser.add_argument("--flat", help="language whose corpus is also taken four times over")
    parser.add_argument("--rounds", type=int, default=1, help="of both sides, in turns, on each language")
    parser.add_argument("--vocabulary", type=int, default=50_000)
    parser.add_argument("--sample-lines", type=int, default=100_000, help="on which a tokenizer is trained, at most")
    parser.add_argument("--block-tokens", type=int, default=512)
    parser.add_argument("--work", type=Path, help="where temporary folders lie")
    parser.add_argument("--out", type=Path, required=True, help="records (.json.xz) and page (.md), without the suffix")
    settings = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    files = {path.name.partition(".")[0]: path for path in sorted(settings.data.glob("*.txt*"))}
    records = settings.out.with_suffix(RECORD_SUFFIX)
    found: dict[str, Any] = read_record(records) if records.exists() else {}
    for language in settings.languages or files:
        record(records, found, language, lambda: measure(language, files[language], settings))  # noqa: B023
    if settings.flat:
        record(records, found, "flatness", lambda: flatness(settings.flat, files[settings.flat], settings))
    text = page(found, settings.vocabulary, settings.sample_lines, settings.block_tokens)
    write_text(settings.out.with_suffix(".md"), text)
    print(text)


if __name__ == "__main__":
    main()
