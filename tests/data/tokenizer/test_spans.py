"""Where pieces stand in a text and how they read, in several scripts; and special pieces by their roles."""

import json
import shutil
from pathlib import Path

import pytest

from lingraft.artifacts import artifact
from lingraft.artifacts.manifest import Kind
from lingraft.config.recipe import Recipe
from lingraft.data.tokenizer import training
from lingraft.data.tokenizer.pieces import DEFAULT_SPECIAL_IDS, SPECIAL_PIECES, SpecialPieces, Surface
from lingraft.data.tokenizer.tokenizer import Tokenizer

LINES = {
    "Latin": "der Hafen war still und die Boote lagen da",
    "Greek": "ο κήπος ήταν ήσυχος και το ψωμί ζεστό",
    "Chinese": "海港很安静，船都停着",
    "Thai": "สวนเงียบสงบและขนมปังยังอุ่น",
    "Arabic": "الميناء هادئ والقوارب ساكنة",
    "Devanagari": "हम बगीचे में रोटी खाते हैं",
}
VOCABULARY = 103
"""As many pieces as the lines support."""


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """A tokenizer of all scripts."""
    folder = tmp_path_factory.mktemp("scripts")
    with artifact.create(folder / "text", Kind.TEXT) as draft:
        line = json.dumps({"name": "page", "text": "\n".join([*LINES.values()] * 20)})
        (draft.folder / "train.jsonl").write_text(line)
        draft.facts = {"language": "mul"}
    recipe = Recipe.load(Path(__file__).parents[2] / "tiny.toml")
    settings = recipe.tokenizer.model_copy(update={"vocabulary": VOCABULARY, "character_coverage": 1.0})
    training.train_tokenizer(recipe.model_copy(update={"tokenizer": settings}), folder / "text", folder / "tokenizer")
    return Tokenizer.load(folder / "tokenizer")


def stretches(pieces: Tokenizer, text: str) -> list[tuple[str, str]]:
    """Each piece of a text with the characters that it is said to stand for."""
    found, names = pieces.encode_spans(text), pieces.pieces()
    return [(names[index], text[start:end]) for index, start, end in zip(*found, strict=True)]


@pytest.mark.parametrize("text", LINES.values(), ids=LINES)
def test_spans_are_the_characters_of_their_pieces(pieces: Tokenizer, text: str) -> None:
    found = pieces.encode_spans(text)
    assert found.ids == pieces.encode(text)
    assert DEFAULT_SPECIAL_IDS.unknown not in found.ids
    for piece, stretch in stretches(pieces, text):
        assert piece.replace("▁", " ").strip() == stretch.strip().replace("，", ",")


@pytest.mark.parametrize("text", [*LINES.values(), "𝄞 Hafen 😀 Boote", "e\u0301 Hafen", "ＡＢ 한국 ½ war"])
def test_spans_cover_a_text_in_order_and_leave_only_blanks_out(pieces: Tokenizer, text: str) -> None:
    found = pieces.encode_spans(text)
    assert found.starts == sorted(found.starts)
    assert all(start <= end for start, end in zip(found.starts, found.ends, strict=True))
    covered = {place for start, end in zip(found.starts, found.ends, strict=True) for place in range(start, end)}
    assert [text[place] for place in range(len(text)) if place not in covered and not text[place].isspace()] == []


def test_surfaces_tell_a_words_beginning_from_the_rest_of_it(pieces: Tokenizer) -> None:
    by_piece = dict(zip(pieces.pieces(), pieces.surfaces(), strict=True))
    assert len(by_piece) == len(pieces) == VOCABULARY
    assert (by_piece["▁d"], by_piece["d"]) == (Surface("d", True), Surface("d", False))
    assert by_piece["▁"] == Surface("", True)
    for word in ("ς", "港", "ง", "ة", "ी"):
        assert by_piece[word] == Surface(word, False)


def test_special_pieces_have_no_surface(pieces: Tokenizer) -> None:
    assert [index for index, surface in enumerate(pieces.surfaces()) if surface is None] == sorted(DEFAULT_SPECIAL_IDS)
    assert tuple(pieces.pieces()[index] for index in DEFAULT_SPECIAL_IDS) == SPECIAL_PIECES


def test_special_ids_are_those_that_the_manifest_names(pieces: Tokenizer, tmp_path: Path) -> None:
    with artifact.create(tmp_path / "imported", Kind.PRIMARY) as draft:
        shutil.copyfile(pieces.model, draft.folder / pieces.model.name)
        theirs = {"begin": 5, "pad": 9, "end": 6, "unknown": 3, "mask": 77}
        draft.facts = {"language": "mul", "details": {"special_ids": theirs}}
    assert Tokenizer.load(tmp_path / "imported").special == SpecialPieces(begin=5, pad=9, end=6, unknown=3, mask=77)
    assert Tokenizer.from_file(pieces.model, "mul").special == DEFAULT_SPECIAL_IDS


def test_spans_count_characters_of_the_text_as_it_was_given(pieces: Tokenizer) -> None:
    text = "  𝄞\u00a0 Hafen\tＢoote "
    found = {stretch.strip() for _, stretch in stretches(pieces, text)}
    assert {"𝄞", "H", "n", "Ｂ"} <= found
    harbour = [
        start
        for start, (piece, _) in zip(pieces.encode_spans(text).starts, stretches(pieces, text), strict=True)
        if piece == "H"
    ]
    assert harbour == [text.index("H")]
