"""A tokenizer.json that is not ours: ids of transformers, places in the text, and how pieces of each kind read."""

import json
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from lingraft.data.tokenizer.pieces import Surface
from lingraft.data.tokenizer.tokenizer import Tokenizer as Ours
from lingraft.errors import TokenizerError
from tests.huggingface.checkpoints import LINES, MODEL_TYPES, Made

HARBOUR = "harbour"


def engine(made: Made) -> Ours:
    return opened(made.folder / "tokenizer.json")


def opened(file: Path) -> Ours:
    return Ours.from_file(file, "en")


def written(tokenizer: Tokenizer, folder: Path) -> Path:
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder / "tokenizer.json"


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_ids_are_those_of_transformers(model_type: str, checkpoints: dict[str, Made]) -> None:
    made = checkpoints[model_type]
    theirs = made.tokenizer(LINES, add_special_tokens=False)["input_ids"]
    assert engine(made).encode_all(LINES) == [engine(made).encode(line) for line in LINES] == theirs
    assert len(engine(made)) == len(made.tokenizer) == len(engine(made).pieces())
    assert engine(made).pieces() == made.tokenizer.convert_ids_to_tokens(range(len(made.tokenizer)))


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_spans_are_the_characters_of_the_text_as_given(model_type: str, checkpoints: dict[str, Made]) -> None:
    for line in ["  " + line + "  " for line in LINES]:
        ids, starts, ends = engine(checkpoints[model_type]).encode_spans(line)
        assert ids == engine(checkpoints[model_type]).encode(line)
        covered = {place for start, end in zip(starts, ends, strict=True) for place in range(start, end)}
        letters = {place for place, character in enumerate(line) if not character.isspace()}
        marks = {place for place in letters if unicodedata.category(line[place]) == "Mn"}  # BERT drops accents
        assert letters - marks <= covered <= letters
        assert starts == sorted(starts)


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_surfaces_read_alike_whatever_the_kind_of_piece(model_type: str, checkpoints: dict[str, Made]) -> None:
    """The word of a text, put together from its pieces' surfaces, is the same with each tokenizer."""
    made = checkpoints[model_type]
    surfaces, text = engine(made).surfaces(), f"a {HARBOUR}"
    found = [surfaces[index] for index in engine(made).encode(text)]
    assert None not in found
    words: list[str] = []
    for surface in filter(None, found):
        words = [*words, surface.text] if surface.initial or not words else [*words[:-1], words[-1] + surface.text]
    assert words == text.split()


def test_surfaces_of_every_kind(checkpoints: dict[str, Made]) -> None:
    def read(model_type: str, piece: str) -> Surface | None:
        made = checkpoints[model_type]
        return engine(made).surfaces()[made.tokenizer.convert_tokens_to_ids(piece)]

    assert read("roberta", "Ġthe") == Surface("the", True)
    assert read("roberta", "e") == Surface("e", False)
    assert read("roberta", "Ġ") == Surface("", True)
    assert read("roberta", "Â") is None  # the first byte of two
    assert read("xlm-roberta", "▁a") == Surface("a", True)
    assert read("xlm-roberta", "▁") == Surface("", True)
    assert read("camembert", "e") == Surface("e", False)
    assert read("bert", "the") == Surface("the", True)
    assert read("bert", "##e") == Surface("e", False)


@pytest.mark.parametrize(
    ("steps", "comma", "chinese"),
    [
        ((normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()), (None, True), (None, True)),
        (
            (normalizers.BertNormalizer(handle_chinese_chars=False), pre_tokenizers.BertPreTokenizer()),
            (None, True),
            (True, False),
        ),
        ((None, pre_tokenizers.Whitespace()), (True, False), (True, False)),
        ((None, None), (True, False), (True, False)),
    ],
)
def test_a_piece_tells_of_a_words_beginning_unless_it_always_stands_alone(
    steps: tuple[Any, Any], comma: tuple[bool | None, bool], chinese: tuple[bool | None, bool], tmp_path: Path
) -> None:
    """Each with what it tells without a prefix, and whether no text comes to it with one."""
    pieces = ["[UNK]", ",", "##,", "海", "##海", "€", "##€", "a", "##a"]
    made = Tokenizer(models.WordPiece(vocab={piece: index for index, piece in enumerate(pieces)}, unk_token="[UNK]"))
    if steps[0]:
        made.normalizer = steps[0]
    if steps[1]:
        made.pre_tokenizer = steps[1]
    found = opened(written(made, tmp_path)).surfaces()
    for place, (text, (initial, never)) in enumerate(
        {",": comma, "海": chinese, "€": (True, False), "a": (True, False)}.items()
    ):
        expected = Surface(text, initial), None if never else Surface(text, False)
        assert tuple(found[2 * place + 1 : 2 * place + 3]) == expected


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_special_pieces_have_no_surface(model_type: str, checkpoints: dict[str, Made]) -> None:
    made = checkpoints[model_type]
    hidden = {index for index, surface in enumerate(engine(made).surfaces()) if surface is None}
    assert set(made.tokenizer.all_special_ids) <= hidden
    assert len(hidden) < len(made.tokenizer) / 2


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_a_special_piece_that_text_spells_out_is_text(model_type: str, checkpoints: dict[str, Made]) -> None:
    made = checkpoints[model_type]
    text = f"a {made.tokenizer.mask_token} b{made.tokenizer.sep_token}"
    assert made.tokenizer.mask_token_id in made.tokenizer(text)["input_ids"]
    special = {*made.tokenizer.all_special_ids} - {made.tokenizer.unk_token_id}
    ids = [*engine(made).encode(text), *engine(made).encode_all([text])[0], *engine(made).encode_spans(text).ids]
    assert special.isdisjoint(ids)


def test_truncation_and_padding_of_the_file_are_switched_off(checkpoints: dict[str, Made], tmp_path: Path) -> None:
    short = Tokenizer.from_file(str(checkpoints["bert"].folder / "tokenizer.json"))
    short.enable_truncation(3)
    short.enable_padding(length=50)
    found = opened(written(short, tmp_path))
    assert found.encode_all(LINES) == engine(checkpoints["bert"]).encode_all(LINES)


def test_an_id_that_is_left_out_counts_and_has_no_surface(tmp_path: Path) -> None:
    holey = Tokenizer(models.WordPiece(vocab={"[UNK]": 0, "a": 1, "##b": 4}, unk_token="[UNK]"))
    found = opened(written(holey, tmp_path))
    assert (len(found), found.pieces()) == (5, ["[UNK]", "a", "", "", "##b"])
    assert found.surfaces()[1:] == [Surface("a", True), None, None, Surface("b", False)]
    assert found.encode("ab") == [1, 4]


def test_marked_byte_pair_pieces_are_read_and_byte_pieces_are_no_text(tmp_path: Path) -> None:
    vocabulary = {"<unk>": 0, "<0xE2>": 1, "▁": 2, "a": 3, "▁a": 4}
    marked = Tokenizer(models.BPE(vocab=vocabulary, merges=[("▁", "a")], unk_token="<unk>", byte_fallback=True))
    marked.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    found = opened(written(marked, tmp_path))
    assert found.encode("a a") == [4, 4]
    assert found.surfaces()[1:] == [None, Surface("", True), Surface("a", False), Surface("a", True)]


@pytest.mark.parametrize(
    ("model", "around"),
    [
        (
            models.WordLevel(vocab={"<unk>": 0, "a": 1}, unk_token="<unk>"),
            {"pre_tokenizer": pre_tokenizers.Whitespace()},
        ),
        (models.BPE(vocab={"a": 0, "b</w>": 1}, merges=[]), {"decoder": decoders.BPEDecoder()}),
    ],
)
def test_pieces_whose_text_cannot_be_told_are_refused(model: Any, around: dict[str, Any], tmp_path: Path) -> None:
    tokenizer = Tokenizer(model)
    for part, step in around.items():
        setattr(tokenizer, part, step)
    with pytest.raises(TokenizerError, match="how its pieces read as text is not known"):
        opened(written(tokenizer, tmp_path))


@pytest.mark.parametrize("text", ["", "{", "[]", json.dumps({"model": {"type": "Other"}})])
def test_a_file_that_is_no_tokenizer_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(text)
    for name in ("tokenizer.json", "absent.json"):
        with pytest.raises(TokenizerError, match=r"is damaged, or no tokenizer\.json: .*save the fast tokenizer anew"):
            opened(tmp_path / name)
