"""Pseudo-words in place of text: a tokenizer of any size, and sentences of any length, without a corpus."""

import itertools
import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from lingraft.artifacts import artifact
from lingraft.artifacts.manifest import Kind
from lingraft.config.recipe import Recipe
from lingraft.data.tokenizer import training
from lingraft.data.tokenizer.tokenizer import Tokenizer

_CONSONANTS, _VOWELS = "bcdfghjklmnpqrstvwxyz", "aeiou"
_EACH_WORD, _LINE_WORDS = 4, 20
_RECIPE = Path(__file__).parents[2] / "recipes" / "demo-scratch.toml"


def words(count: int) -> list[str]:
    """So many words, all different, of two to four syllables; the same whenever it is called."""
    draw = random.Random("words")
    syllables = [*map("".join, itertools.product(_CONSONANTS, _VOWELS))]
    found: dict[str, None] = {}
    while len(found) < count:
        found["".join(draw.choices(syllables, k=draw.randint(2, 4)))] = None
    return [*found]


def train(vocabulary: int, folder: Path) -> Tokenizer:
    """A SentencePiece tokenizer of so many pieces, trained on words that each occur a few times."""
    recipe = Recipe.load(_RECIPE)
    wanted = recipe.tokenizer.model_copy(update={"vocabulary": vocabulary})
    with artifact.create(folder / "text", Kind.TEXT) as draft:
        document = json.dumps({"name": "sample", "text": "\n".join(_lines(vocabulary))})
        (draft.folder / "train.jsonl").write_text(document + "\n", encoding="utf-8")
        draft.facts = {"language": "xx"}
    training.train_tokenizer(recipe.model_copy(update={"tokenizer": wanted}), folder / "text", folder / "tokenizer")
    return Tokenizer.load(folder / "tokenizer")


def _words_for(pieces: int) -> int:
    """More than pieces, or SentencePiece does not find so many."""
    return 2 * pieces + 4000


def _lines(vocabulary: int) -> Iterator[str]:
    drawn = words(_words_for(vocabulary)) * _EACH_WORD
    random.Random("lines").shuffle(drawn)
    for start in range(0, len(drawn), _LINE_WORDS):
        yield " ".join(drawn[start : start + _LINE_WORDS])


def texts(pieces: Tokenizer, lengths: Sequence[int], seed: int = 1) -> list[str]:
    """Texts of at most so many tokens each, special ones included, and hardly fewer."""
    draw, known = random.Random(seed), words(_words_for(len(pieces)))
    sizes = {word: len(ids) for word, ids in zip(known, pieces.encode_all(known), strict=True)}
    shortest = min(known, key=sizes.__getitem__)
    return [" ".join(_sentence(draw, known, sizes, shortest, length - 2)) for length in lengths]


def _sentence(
    draw: random.Random, known: Sequence[str], sizes: dict[str, int], shortest: str, room: int
) -> Iterator[str]:
    yield shortest
    room -= sizes[shortest]
    while sizes[word := draw.choice(known)] <= room:
        yield word
        room -= sizes[word]
