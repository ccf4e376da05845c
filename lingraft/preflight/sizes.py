"""A check that a text is large enough for its splits, its tokenizer and its blocks.

A text that is clearly large enough is not looked at. Of any other, the tokenizer is trained for real, in seconds.
"""

from collections.abc import Iterator

import sentencepiece

from lingraft.config.recipe import Recipe
from lingraft.data.splits import SPLITS
from lingraft.data.text import empty_splits_error
from lingraft.data.tokenizer.sampling import CorpusProfile, sample_lines
from lingraft.data.tokenizer.tokenizer import TooManyPiecesError, train_sentencepiece
from lingraft.errors import TokenizerError
from lingraft.preflight.samples import TextSample

_CHARACTERS_A_PIECE, _GROWTH = 0.15, 1.8
"""A training split of 0.15 V^1.8 characters supports V pieces: twice what Swahili, Urdu and English text needed, of
100,000 and 400,000 characters (0.07 V^1.8; Chinese needs less)."""
_ENOUGH_CHARACTERS_A_TOKEN = 16
_ALWAYS_TRIED = 1_000_000
"""Characters below which no rule is trusted, since text of few different words supports few pieces."""


def size_problems(recipe: Recipe, sample: TextSample, smaller_vocabulary: bool) -> Iterator[str]:
    """Yield what a language's text is too small for; nothing can be said where the sample is not all of it.

    With `smaller_vocabulary`, a text that does not support the recipe's vocabulary gets a smaller one.
    """
    if not sample.whole or sample.errors or not sample.documents:
        return
    counts = {split: len(texts) for split, texts in sample.texts.items()}
    if message := empty_splits_error(counts, sample.language, recipe):
        yield f"{sample.language}: {message}"
    elif recipe.source.model and sample.language == recipe.source.language:
        return  # the model has its own tokenizer
    elif _in_doubt(recipe, sample):
        yield from _of_blocks(recipe, sample, smaller_vocabulary)


def enough_characters(vocabulary: int) -> float:
    """Return the characters of training text that support so many pieces without doubt."""
    return _CHARACTERS_A_PIECE * vocabulary**_GROWTH


def supported_vocabulary(characters: float) -> float:
    """Return the pieces that so many characters support without doubt; the inverse of `enough_characters`."""
    return float((characters / _CHARACTERS_A_PIECE) ** (1 / _GROWTH))


def largest_vocabulary(recipe: Recipe, sample: TextSample) -> int:
    """Return the pieces that a language's text supports, up to the recipe's.

    Raises:
        TokenizerError: the recipe's are fewer than the text has characters.
    """
    if _in_doubt(recipe, sample):
        try:
            _train_pieces(recipe, sample, recipe.tokenizer.vocabulary)
        except TooManyPiecesError as error:
            return error.supported
    return recipe.tokenizer.vocabulary


def _in_doubt(recipe: Recipe, sample: TextSample) -> bool:
    few = sample.characters["train"] < max(enough_characters(recipe.tokenizer.vocabulary), _ALWAYS_TRIED)
    return few or min(sample.characters.values()) < _ENOUGH_CHARACTERS_A_TOKEN * recipe.encoder.block_tokens


def _of_blocks(recipe: Recipe, sample: TextSample, smaller_vocabulary: bool) -> Iterator[str]:
    try:
        pieces = _train_pieces(recipe, sample, recipe.tokenizer.vocabulary)
    except TooManyPiecesError as error:
        if not smaller_vocabulary:
            yield f"{sample.language}: {error}"
        pieces = _train_pieces(recipe, sample, error.supported)
    except TokenizerError as error:
        yield f"{sample.language}: {error}"
        return
    for split in SPLITS if recipe.has_masked_tokens else ():
        # A document is followed by an end token, a block begins with one of its own.
        tokens = sum(len(ids) + 1 for ids in pieces.encode(sample.texts[split]))
        if tokens < recipe.encoder.block_tokens - 1:
            yield (
                f"{sample.language}: the {split} split has {tokens} tokens, fewer than one block "
                f"(encoder.block_tokens {recipe.encoder.block_tokens}). Give more text, raise the split's share in "
                "[split], or lower encoder.block_tokens."
            )


def _train_pieces(recipe: Recipe, sample: TextSample, vocabulary: int) -> sentencepiece.SentencePieceProcessor:
    settings = recipe.tokenizer
    lines = [line for text in sample.texts["train"] for line in text.splitlines() if line.strip()]
    there = CorpusProfile.of_lines(lines)
    chosen = sample_lines(lines, there.lines, there.sample_size(settings.sample_lines))
    model = train_sentencepiece(chosen, vocabulary, settings.character_coverage or there.character_coverage)
    return sentencepiece.SentencePieceProcessor(model_proto=model)
