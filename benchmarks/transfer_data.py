"""`python -m benchmarks.transfer_data --data DIR --out DIR`: the data folder that recipes/transfer.toml reads.

It has samples of the corpora, so that reading them takes less time than training; the tasks' files, as links, of XNLI
and PAN-X in halves, since there are no others to develop and to test by; and pages of LibreOffice's help with their
topics, from Debian's packages, which are translations of each other. Examples in `labels/` have labels of each target,
to learn and to test by: what the comparison calls a ceiling.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks.samples import sample
from lingraft.artifacts.files import write_text
from lingraft.config.recipe import Recipe
from lingraft.config.text import Split
from lingraft.data.libreoffice import help_documents
from lingraft.data.splits import SPLITS, split_of
from lingraft.errors import LingraftError

RECIPE = Path(__file__).parents[1] / "recipes" / "transfer.toml"
SOURCE_MB, TARGET_MB = 60, 16
_SPLIT = Split(dev_share=0.1, test_share=0.2)
"""The demo's, of whose pages the same ones test."""
_HELP, _LABELS = "help", "labels"
_HALVED = {"xnli": "\n", "panx": "\n\n"}
"""Folders of examples whose development files are halved, with what stands between two examples."""
_FEWEST_LETTERS = 40
"""Letters that a page needs; shorter ones are lists of links."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with corpus/ and eval/; it is only read")
    parser.add_argument("--out", type=Path, required=True, help="folder that is made; what it has is left as it is")
    given = parser.parse_args(arguments)
    recipe = Recipe.load(RECIPE)
    for language in recipe.languages:
        size = SOURCE_MB if language == recipe.source.language else TARGET_MB
        sample(given.data / "corpus" / f"{language}.txt.xz", size, given.out / "corpus" / f"{language}.txt")
    (given.out / "eval").mkdir(parents=True, exist_ok=True)
    for folder in sorted((given.data / "eval").iterdir()):
        link = given.out / "eval" / folder.name
        if folder.name in _HALVED:
            write_halves(folder, recipe, link, _HALVED[folder.name])
        elif folder.name != _HELP and not link.exists():
            link.symlink_to(folder.resolve())
    topics = given.out / "eval" / _HELP
    for language in recipe.task("help-topic").languages:
        write_topics(language, topics)
    write_labels(given.data / "eval", topics, recipe, given.out / _LABELS)


def write_halves(folder: Path, recipe: Recipe, out: Path, between: str) -> None:
    """Write the first half of the source's development examples, and the second half of every language's as a test.

    Translations stay in the same half, where files have them row by row.

    Args:
        folder: files `dev-<language>.tsv`, some with files for training; others are linked.
        recipe: whose languages are wanted; what a language has no file for is left out.
        out: folder that is made.
        between: what stands between two examples.
    """
    out.mkdir(parents=True, exist_ok=True)
    for language in recipe.languages:
        if not (file := folder / f"dev-{language}.tsv").exists():
            continue
        first, second = _halves(file, between)
        write_text(out / f"test-{language}.tsv", second)
        if language == recipe.source.language:
            write_text(out / file.name, first)
    for file in folder.glob("train-*.tsv"):
        if not (link := out / file.name).exists():
            link.symlink_to(file.resolve())


def write_topics(language: str, out: Path) -> None:
    """Write a language's help pages and topics as JSONL, one file a split.

    Raises:
        TextError: the pages cannot be downloaded.
    """
    files = {split: out / f"{split}-{language}.jsonl" for split in SPLITS}
    if all(file.exists() for file in files.values()):
        return
    pages = [page for page in help_documents(language, Counter()) if len(page.text) >= _FEWEST_LETTERS]
    for split, file in files.items():
        chosen = [page for page in pages if split_of(page.name, _SPLIT) == split]
        lines = (json.dumps({"text": page.text, "label": page.label}, ensure_ascii=False) for page in chosen)
        out.mkdir(parents=True, exist_ok=True)
        write_text(file, "".join(f"{line}\n" for line in lines))


def write_labels(evaluation: Path, topics: Path, recipe: Recipe, out: Path) -> None:
    """Write examples with labels of each target language, `<task>-train-<language>` and `<task>-test-<language>`.

    Topics have files to learn by; of tags, of which a language has one file, the first half is learned.
    """
    out.mkdir(parents=True, exist_ok=True)
    for language in recipe.targets:
        if (topics / f"train-{language}.jsonl").exists():
            for split in ("train", "test"):
                file = topics / f"{split}-{language}.jsonl"
                write_text(out / f"help-topic-{file.name}", file.read_text(encoding="utf-8"))
        tagged = {"pos": f"udpos/test-{language}.tsv", "pan-x": f"panx/dev-{language}.tsv"}
        for task, name in tagged.items():
            if (file := evaluation / name).exists():
                halves = _halves(file, between="\n\n")
                for split, half in zip(("train", "test"), halves, strict=True):
                    write_text(out / f"{task}-{split}-{language}.tsv", half)


def _halves(file: Path, between: str) -> tuple[str, str]:
    """Both halves of a file of examples, with what stands between two of them."""
    examples = file.read_text(encoding="utf-8").strip("\n").split(between)
    middle = len(examples) // 2
    return between.join(examples[:middle]) + "\n", between.join(examples[middle:]) + "\n"


if __name__ == "__main__":
    try:
        main()
    except LingraftError as error:
        sys.exit(f"error: {error}")
