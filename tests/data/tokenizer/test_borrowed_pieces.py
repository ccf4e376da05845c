"""Pieces that a language's tokenizer borrows, from tokenizers of every kind."""

import json
from pathlib import Path

import pytest
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.config.recipe import Recipe
from lingraft.data.tokenizer.borrowed_pieces import choose_borrowed, lower_cases
from lingraft.data.tokenizer.pieces import SPECIAL_PIECES, SpecialIds
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.data.tokenizer.training import train_tokenizer
from lingraft.data.tokenizer.unigram import SCORE_STEP, train_unigram
from lingraft.errors import RecipeError, TokenizerError
from tests.borrowing import Borrowing
from tests.huggingface.scripts import lines_of
from tests.workshop import Workshop, changed

SPECIAL = ["[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]"]
LINES = [*lines_of("Latin", 300), *lines_of("Greek", 100)]
KNOWN = ["harbour", "##master", "jared", "42", ",", "北", "ж", "##ж", "й", "##я", "re", "##d"]
"""Pieces of a source, some of which are one character."""


def word_piece(folder: Path, lower_case: bool = True) -> Tokenizer:
    """A source that cuts words as BERT does."""
    letters = [mark + letter for letter in "abcdefghijklmnopqrstuvwxyz" for mark in ("", "##")]
    vocabulary = {piece: index for index, piece in enumerate(dict.fromkeys([*SPECIAL, *KNOWN, *letters]))}
    made = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=lower_case)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    return saved(made, folder)


def byte_level(folder: Path) -> Tokenizer:
    """A source of byte-level BPE, cased."""
    pieces = [*SPECIAL, "ĠJared", "ĠHa", "fen", "Ġ", *"JHabcdefjnr", "Ð¶", "Ð"]
    made = tokenizers.Tokenizer(models.BPE({piece: index for index, piece in enumerate(pieces)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    made.decoder = decoders.ByteLevel()
    return saved(made, folder)


def saved(made: tokenizers.Tokenizer, folder: Path) -> Tokenizer:
    made.add_special_tokens(SPECIAL)
    made.save(str(folder / "tokenizer.json"))
    return Tokenizer.from_file(folder / "tokenizer.json", "en", SpecialIds(*range(len(SPECIAL))))


def borrowing(source: Tokenizer, folder: Path, lower_case: bool) -> Tokenizer:
    learned = train_unigram(LINES, 150, 1.0, lower_case)
    learned.write(folder / "own.json", source.hash, choose_borrowed(learned, source))
    return Tokenizer.from_file(folder / "own.json", "de")


def source_pieces(pieces: Tokenizer, source: Tokenizer, text: str) -> list[str]:
    """The pieces of a text, those that are borrowed as the source has them."""
    own, names = len(pieces.own), source.pieces()
    return [
        pieces.pieces()[index] if index < own else names[pieces.borrowed_B[index - own]]
        for index in pieces.encode(text)
    ]


def test_words_that_the_source_alone_knows_are_its_pieces(tmp_path: Path) -> None:
    source = word_piece(tmp_path)
    pieces = borrowing(source, tmp_path, lower_case=True)
    assert pieces.lender == source.hash
    assert source_pieces(pieces, source, "Jared, HARBOURMASTER") == ["jared", ",", "harbour", "##master"]
    assert source_pieces(pieces, source, "北ж жя") == ["北", "##ж", "ж", "##я"]
    # The source has it at the beginning of words alone.
    assert source_pieces(pieces, source, "жй") == ["ж", "й"]
    assert source_pieces(pieces, source, "ю")[-1] == "<unk>"


def test_a_cased_source_of_bytes_lends_what_is_text(tmp_path: Path) -> None:
    source = byte_level(tmp_path)
    pieces = borrowing(source, tmp_path, lower_case=False)
    assert source_pieces(pieces, source, "Jared") == ["ĠJared"]
    assert source_pieces(pieces, source, "ж")[-1] == "Ð¶"
    assert pieces.special.unknown in pieces.encode("я"), "a byte alone is no text"


def test_own_pieces_come_first_and_are_never_cut_into_borrowed_ones(tmp_path: Path) -> None:
    source = word_piece(tmp_path)
    pieces = borrowing(source, tmp_path, lower_case=True)
    own = train_unigram(LINES, 150, 1.0, lower_case=True).pieces
    vocabulary = [*map(tuple, json.loads(pieces.model.read_bytes())["model"]["vocab"])]
    assert len(pieces) == len(SPECIAL_PIECES) + len(own) + len(pieces.borrowed_B)
    assert vocabulary[len(SPECIAL_PIECES) : -len(pieces.borrowed_B)] == own
    assert all((score / SCORE_STEP).is_integer() for _, score in vocabulary)
    assert all(2 * score < min(piece.score for piece in own) for _, score in vocabulary[-len(pieces.borrowed_B) :])
    assert len({text for text, _ in vocabulary}) == len(vocabulary)


def test_lower_case_is_known_by_what_a_tokenizer_does(tmp_path: Path, workshop: Workshop) -> None:
    for name in ("lower", "cased", "bytes"):
        (tmp_path / name).mkdir()
    assert lower_cases(word_piece(tmp_path / "lower"))
    assert not lower_cases(word_piece(tmp_path / "cased", lower_case=False))
    assert not lower_cases(byte_level(tmp_path / "bytes"))
    assert not lower_cases(Tokenizer.load(workshop.tokenizers["en"]))


def test_a_tokenizer_that_lower_cases_keeps_marks_and_is_the_same_each_time(tmp_path: Path) -> None:
    pieces = borrowing(word_piece(tmp_path), tmp_path, lower_case=True)
    assert pieces.encode("ÄÉ Ñß A\u030a Άλφα") == pieces.encode("äé ñß å άλφα") != pieces.encode("ae nss a αλφα")


def test_offsets_of_borrowed_pieces_point_at_the_text(tmp_path: Path) -> None:
    text = "  Jared  HARBOURMASTER,"
    found = borrowing(word_piece(tmp_path), tmp_path, lower_case=True).encode_spans(text)
    shown = [text[start:end].strip() for start, end in zip(found.starts, found.ends, strict=True)]
    assert shown[:3] == ["Jared", "HARBOUR", "MASTER"]


def test_the_artifact_says_what_was_borrowed_and_from_whom(workshop: Workshop) -> None:
    made = Artifact.load(Borrowing.shared().tokenizer, Kind.TOKENIZER).manifest
    pieces, source = Tokenizer.load(Borrowing.shared().tokenizer), Tokenizer.load(workshop.tokenizers["en"])
    assert made.details["borrowed"] == len(pieces.borrowed_B) > 0
    assert made.details["lower_case"] is False
    assert made.data_hashes["source_tokenizer"] == pieces.lender == source.hash
    assert made.recipe["borrow"] is True
    for index, source_id in enumerate(pieces.borrowed_B, start=len(pieces.own)):
        assert pieces.surfaces()[index] == source.surfaces()[source_id]


def test_a_source_is_needed_where_pieces_are_borrowed_and_refused_elsewhere(workshop: Workshop, tmp_path: Path) -> None:
    def train(recipe: Recipe, language: str, source: Path | None) -> None:
        train_tokenizer(recipe, workshop.texts[language], tmp_path / "out", source)

    wanting = changed(workshop.recipe, "tokenizer", borrow=True)
    with pytest.raises(RecipeError, match=r"'de' borrows the source's pieces.*\(--source\)"):
        train(wanting, "de", None)
    with pytest.raises(RecipeError, match=r"'de' borrows nothing from .*tokenizer\.borrow is false"):
        train(workshop.recipe, "de", workshop.primary)
    with pytest.raises(RecipeError, match="source language is 'en'"):
        train(wanting, "en", workshop.primary)
    with pytest.raises(TokenizerError, match="is the tokenizer of 'tr', not of 'en'"):
        train(wanting, "de", workshop.tokenizers["tr"])
    assert not (tmp_path / "out").exists()
