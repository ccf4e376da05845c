"""`python -m benchmarks.tokenizer_agreement --data DIR`: do exported tokenizers cut real text as SentencePiece does?

For every language with a file in the folder, a tokenizer is trained on a sample of its lines, written as the fast
tokenizer that `lingraft export hf` writes, and compared with SentencePiece on other lines: equal ids, or not. Text goes
through a temporary folder that is gone afterwards; only counts are printed.
"""

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from lingraft.artifacts import artifact
from lingraft.artifacts.manifest import Kind
from lingraft.config.recipe import Recipe
from lingraft.data.lines import read_lines
from lingraft.data.tokenizer import tokenizer
from lingraft.data.tokenizer.tokenizer import DEFAULT_SPECIAL_IDS, Tokenizer
from lingraft.huggingface.fast_tokenizer import fast_tokenizer


class Agreement(NamedTuple):
    """Agreement on the lines of one language."""

    language: str
    training_lines: int
    lines: int
    equal: int
    pieces: int
    unknown: int
    """Number of these pieces that are unknown."""

    def __str__(self) -> str:
        equal, share = f"{self.equal:,} of {self.lines:,}", f"{self.unknown / self.pieces:.3%}"
        return f"{self.language:<4} {equal:>16} {self.pieces:>9,} {share:>9} {self.training_lines:>12,} lines"


def main() -> None:
    """Measure, print one line a language, and fail if any line differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of <language>.txt, plain or .gz, .xz, .zst")
    parser.add_argument("--languages", nargs="*", default=[], help="only these")
    parser.add_argument("--recipe", type=Path, default=Path("recipes/demo.toml"), help="for [tokenizer] and [encoder]")
    parser.add_argument("--vocabulary", type=int, default=8000)
    parser.add_argument("--lines", type=int, default=1000, help="lines to compare")
    parser.add_argument("--characters", type=int, default=3_000_000, help="of training lines, at most")
    parser.add_argument("--seed", type=int, default=1, help="of the sample")
    settings = parser.parse_args()
    files = {path.name.partition(".")[0]: path for path in sorted(settings.data.glob("*.txt*"))}
    chosen = settings.languages or list(files)
    print(f"{'':<4} {'equal lines':>16} {'pieces':>9} {'unknown':>9} {'trained on':>18}")
    found = []
    for language in chosen:
        found.append(measured(language, files[language], settings))
        print(found[-1], flush=True)
    agreeing = sum(each.equal == each.lines for each in found)
    print(f"{agreeing} of {len(found)} languages agree in every line (vocabulary {settings.vocabulary:,})")
    sys.exit(agreeing < len(found))


def measured(language: str, path: Path, settings: argparse.Namespace) -> Agreement:
    """Train on some of a file's lines, and compare on others."""
    lines = [line for line in read_lines(path) if line.strip()]
    random.Random(settings.seed).shuffle(lines)
    compared, training = lines[: settings.lines], _first(lines[settings.lines :], settings.characters)
    recipe = Recipe.load(settings.recipe)
    wanted = recipe.tokenizer.model_copy(update={"vocabulary": settings.vocabulary})
    with tempfile.TemporaryDirectory() as folder:
        pieces = trained(recipe.model_copy(update={"tokenizer": wanted}), language, training, Path(folder))
        fast = fast_tokenizer(pieces, recipe.encoder)
        theirs = [encoding.ids for encoding in fast.encode_batch(compared, add_special_tokens=False)]
        ours = pieces.encode_all(compared)
    equal = sum(one == other for one, other in zip(ours, theirs, strict=True))
    unknown = sum(ids.count(DEFAULT_SPECIAL_IDS.unknown) for ids in ours)
    return Agreement(
        language=language,
        training_lines=len(training),
        lines=len(compared),
        equal=equal,
        pieces=sum(map(len, ours)),
        unknown=unknown,
    )


def _first(lines: Sequence[str], characters: int) -> list[str]:
    """Return the first lines that have this many characters together."""
    chosen = []
    for line in lines:
        characters -= len(line)
        if characters < 0:
            break
        chosen.append(line)
    return chosen


def trained(recipe: Recipe, language: str, lines: Sequence[str], folder: Path) -> Tokenizer:
    """A recipe's tokenizer of a language, trained on lines; its artifacts are written under a folder."""
    with artifact.create(folder / "text", Kind.TEXT) as draft:
        document = json.dumps({"name": "sample", "text": "\n".join(lines)})
        (draft.folder / "train.jsonl").write_text(document + "\n", encoding="utf-8")
        draft.facts = {"language": language}
    tokenizer.train_tokenizer(recipe, folder / "text", folder / "tokenizer")
    return Tokenizer.load(folder / "tokenizer")


if __name__ == "__main__":
    main()
