"""Training of a language's tokenizer: a vocabulary that SentencePiece learns, perhaps with pieces of the source's."""

import shutil
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from lingraft.artifacts import artifact
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.files import sha256_of
from lingraft.artifacts.manifest import Kind
from lingraft.config.recipe import Recipe
from lingraft.console import say
from lingraft.data.bilingual_dictionary import learned_hashes
from lingraft.data.parallel_text import read_pairs, without_held_out
from lingraft.data.tokenizer.borrowed_pieces import choose_borrowed, lower_cases
from lingraft.data.tokenizer.pieces import DEFAULT_SPECIAL_IDS
from lingraft.data.tokenizer.sampling import CorpusProfile, sample_lines, training_lines
from lingraft.data.tokenizer.tokenizer import TOKENIZER_JSON, Tokenizer
from lingraft.data.tokenizer.unigram import train_unigram
from lingraft.errors import RecipeError


def train_tokenizer(recipe: Recipe, text: Path, out: Path, source: Path | None = None) -> Artifact:
    """Train a language's tokenizer on a sample of the training split of its text, and on sentences that it learns from.

    The text is read twice, line by line: to find its size and script, and to sample from it. Of sentence pairs, the
    language's sides count as lines of the text, so that words with a known translation become pieces. A new language's
    tokenizer borrows pieces of the source's if the recipe says so, and lower-cases if the source's does. It is the
    source's where nothing shows what other pieces would mean.

    Raises:
        TooManyPiecesError: the vocabulary is larger than the text supports.
    """
    read = Artifact.load(text, Kind.TEXT)
    settings = recipe.tokenizer
    language = str(read.manifest.language)
    lender = _lender(recipe, language, source)
    if lender and recipe.keeps_tokenizer(language):
        return _keep(lender, read, out)
    profile = CorpusProfile.of(read)
    coverage = settings.character_coverage or profile.character_coverage
    sampled = profile.sample_size(settings.sample_lines)
    lower_case = lender is not None and lower_cases(lender)
    lines = chain(sample_lines(training_lines(read), profile.lines, sampled), _translated_lines(recipe, language))
    learned = train_unigram(lines, settings.vocabulary, coverage, lower_case)
    added = choose_borrowed(learned, lender) if lender else []
    details = {"borrowed": len(added), "lower_case": lower_case} if lender else {}
    with artifact.create(out, Kind.TOKENIZER) as draft:
        learned.write(draft.folder / TOKENIZER_JSON, lender.hash if lender else "", added)
        draft.facts = {
            "language": read.manifest.language,
            "tokenizer_hash": sha256_of(draft.folder / TOKENIZER_JSON),
            "data_hashes": {
                "text": read.fingerprint,
                **({"source_tokenizer": lender.hash} if lender else {}),
                **learned_hashes(recipe, language),
            },
            "recipe": settings.model_dump(mode="json"),
            "details": {
                "special_ids": DEFAULT_SPECIAL_IDS._asdict(),
                "character_coverage": coverage,
                "sample": {"lines": sampled, "of_lines": profile.lines},
                **details,
            },
        }
    return Artifact.load(out, Kind.TOKENIZER)


def _translated_lines(recipe: Recipe, language: str) -> Iterator[str]:
    """Yield the language's sides of the sentence pairs that it learns from."""
    if files := recipe.learned_pairs(language):
        yield from (pair.target for pair in without_held_out(read_pairs(files, (recipe.source.language, language))))


def _keep(lender: Tokenizer, text: Artifact, out: Path) -> Artifact:
    """Write the source's tokenizer as that of a language with some text."""
    language = text.manifest.language
    say(
        f"{language!r} keeps the source's tokenizer and rows: nothing shows what its words mean. Give sentence pairs, "
        "a dictionary, or text of the source about the same things."
    )
    with artifact.create(out, Kind.TOKENIZER) as draft:
        shutil.copyfile(lender.model, draft.folder / TOKENIZER_JSON)
        draft.facts = {
            "language": language,
            "tokenizer_hash": lender.hash,
            "data_hashes": {"text": text.fingerprint, "source_tokenizer": lender.hash},
            "details": {"special_ids": lender.special._asdict()},
        }
    return Artifact.load(out, Kind.TOKENIZER)


def _lender(recipe: Recipe, language: str, source: Path | None) -> Tokenizer | None:
    """Return the tokenizer to borrow from; None if nothing is borrowed."""
    borrows = recipe.tokenizer.borrow and language != recipe.source.language
    if borrows and source is None:
        raise RecipeError(
            f"tokenizer.borrow is true, so that the tokenizer of {language!r} borrows the source's pieces, but the "
            "source's tokenizer is missing. Give the primary (--source), or leave tokenizer.borrow out."
        )
    if source and not borrows:
        raise RecipeError(
            f"the tokenizer of {language!r} borrows nothing from {source}: tokenizer.borrow is "
            f"{str(recipe.tokenizer.borrow).lower()}, and the source language is {recipe.source.language!r}. Set "
            "tokenizer.borrow = true for another language, or leave --source out."
        )
    return Tokenizer.load(source, recipe.source.language) if source else None
