"""The fast tokenizer against SentencePiece itself, in many scripts and on text that is hard to normalise."""

import random
import struct
import unicodedata
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import tokenizers

from lingraft.config.encoder import EncoderShape, Family
from lingraft.data.tokenizer import sentencepiece_model
from lingraft.data.tokenizer.normalisation import read_rules
from lingraft.data.tokenizer.sentencepiece_model import SCORE_STEP, round_scores
from lingraft.data.tokenizer.tokenizer import DEFAULT_SPECIAL_IDS, SPECIAL_PIECES, Tokenizer
from lingraft.errors import TokenizerError
from lingraft.huggingface.fast_tokenizer import fast_tokenizer, special_pieces, tokenizer_config
from lingraft.huggingface.unigram import unigram_tokenizer
from lingraft.tasks.pairs import encode
from tests.huggingface.scripts import LETTERS, lines_of, trained

SHAPE = EncoderShape(width=8, layers=1, attention_heads=1, mlm_heads=(1,), block_tokens=64)
ODD = {
    "nothing": "",
    "only spaces": "  \t\n\u3000\u00a0 ",
    "spaces around and inside": "  a  b\t\tc\u00a0\u2009d \n",
    "line ends": "a\r\nb\u2028c\u2029d\x85e\x0bf\x0cg",
    "a literal mark of a space": "a\u2581b \u2581\u2581 c\u2581",
    "zero width": "a\u200bb\u200cc\u200dd\ufeffe\u2060f\u00adg",
    "direction marks": "\u202bab\u202c \u200fc\u200e \u061c",
    "control characters": "\x01a\x02\u0301\x7fb\x1f\x8f",
    "a zero byte": "a\x00b",
    "a mark first": "\u0301a \u0308",
    "two marks": "e\u0302\u0301 e\u0301\u0302 a\u0323\u0302 a\u0302\u0323 o\u031b\u0301",
    "a mark on a composed letter": "\u00ea\u0301 \u01a1\u0301 \u0439\u0306",
    "marks out of order": "\u0628\u0651\u064e \u0628\u064e\u0651 q\u0307\u0323",
    "full width": "\uff21\uff42\uff43\uff11\uff12\uff01 \uff21\u0301\uff41\u0302\u0301",
    "half width kana": "\uff8a\uff9e\uff8a\uff9f \uff76\uff9e\u304b\uff9e \u304b\u3099\u306f\u309a",
    "ligatures": "\ufb01ne \ufb03 \ufb06 \u0132 \ufb01\u0301 \u01c4\u030c",
    "expanding characters": "\u00bd \u2122 \u2460 \u33a1 \u3392 \ufdfa \u2474\u0301 \u00a8\u0301 \u2026",
    "Thai and Lao am": "\u0e01\u0e33 \u00bd\u0e33 \u0e81\u0eb3 \u0e01\u0e48\u0e33",
    "Hangul letters": "\u1112\u1161\u11ab\u1100\u1173\u11af \u1100\u1161\u11a8\u11a8 \uac00\u11a8 \uffa1\uffc2",
    "nukta": "\u0915\u093c \u0958 \u0928\u093c",
    "Greek with three marks": "\u03b1\u0313\u0301\u0345 \u1fb3\u0313 \u1f84",
    "emoji": "\U0001f600 \U0001f44d\U0001f3fd \U0001f468\u200d\U0001f469\u200d\U0001f467 \u2764\ufe0f",
    "flags": "\U0001f1e9\U0001f1ea\U0001f1eb",
    "unknown characters": "\u16a0\u16b1 a\u16a0 \u16a0a \U00012000\U00012001",
    "no characters": "a\ufffe\uffff \ufffeb\ufffe\u0301",
    "replacement character": "a\ufffdb",
    "symbols of tags": "&lt;b&gt; <b> </b> <s > < /s>",
    "ties": "!!!!!!! ......... ,,,,, 0000000 aaaaaaaaaaa",
}


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """A tokenizer of all scripts."""
    lines = [line for script in LETTERS for line in lines_of(script, 150)]
    return trained(lines, tmp_path_factory.mktemp("scripts"), vocabulary=1200)


@pytest.fixture(scope="module")
def fast(pieces: Tokenizer) -> tokenizers.Tokenizer:
    """The same as a fast tokenizer."""
    return fast_tokenizer(pieces, SHAPE)


def difference(pieces: Tokenizer, fast: tokenizers.Tokenizer, texts: list[str]) -> list[str]:
    """Texts whose ids differ."""
    found = (encoding.ids for encoding in fast.encode_batch(texts, add_special_tokens=False))
    return [text for text, ids, own in zip(texts, found, pieces.encode_all(texts), strict=True) if ids != own]


def test_ids_are_sentencepiece_s_in_every_script(pieces: Tokenizer, fast: tokenizers.Tokenizer) -> None:
    for script in LETTERS:
        texts = lines_of(script, 200) + lines_of(script, 200, seed=2)
        assert len({index for ids in pieces.encode_all(texts) for index in ids}) > 20
        assert difference(pieces, fast, texts) == [], script


@pytest.mark.parametrize("script", ["Thai", "Latin, decomposed"])
def test_ids_are_sentencepiece_s_with_a_vocabulary_of_one_script(script: str, tmp_path: Path) -> None:
    alone = trained(lines_of(script, 300), tmp_path, vocabulary=200)
    texts = [*lines_of(script, 100, seed=3), *ODD.values(), *lines_of("Greek", 20)]
    assert difference(alone, fast_tokenizer(alone, SHAPE), texts) == []


def test_ids_are_sentencepiece_s_on_odd_text(pieces: Tokenizer, fast: tokenizers.Tokenizer) -> None:
    latin, thai = lines_of("Latin", 1)[0], lines_of("Thai", 1)[0]
    for name, text in ODD.items():
        around = [text, text + latin, latin + text, f"{thai}{text}{thai}", text * 3]
        assert difference(pieces, fast, around) == [], name


def test_ids_are_sentencepiece_s_on_any_mixture_of_rules_and_marks(
    pieces: Tokenizer, fast: tokenizers.Tokenizer
) -> None:
    rules = read_rules(sentencepiece_model.charsmap(pieces.model.read_bytes()))
    keys, marks = list(rules), sorted({mark for key in rules for mark in key[1:]})
    draw = random.Random(1)
    choices = (keys, [key for key in keys if len(key) == 1], marks, "".join(LETTERS.values()), list(ODD.values()))
    texts = ["".join(draw.choice(draw.choice(choices)) for _ in range(draw.randint(1, 10))) for _ in range(1000)]
    assert difference(pieces, fast, texts) == []


def test_rounded_scores_make_ties_that_both_break_alike(tmp_path: Path) -> None:
    lines = [f"{'!' * (1 + number % 5)} {number % 7 * '0'}1 {number * 'ab '}" for number in range(200)]
    pieces = trained(lines, tmp_path, vocabulary=25)
    runs = [f"{'ab ' * before}{'!' * count}{'0' * count}" for before in range(40) for count in range(1, 25)]
    assert difference(pieces, fast_tokenizer(pieces, SHAPE), runs) == []


def test_rounding_changes_scores_alone_and_by_half_a_step_at_most(pieces: Tokenizer) -> None:
    model = bytearray(pieces.model.read_bytes())
    before = sentencepiece_model.pieces(bytes(model))
    longest = max(before, key=lambda piece: len(piece.text)).text.encode()
    score_at = model.index(b"\x15", model.index(longest) + len(longest)) + 1
    struct.pack_into("<f", model, score_at, -7.123)
    rounded = round_scores(bytes(model))
    assert round_scores(rounded) == rounded
    assert len(rounded) == len(model)
    assert [place for place, (old, new) in enumerate(zip(model, rounded, strict=True)) if old != new] == list(
        range(score_at, score_at + 3)
    )
    (score,) = {piece.score for piece in sentencepiece_model.pieces(rounded) if piece.text.encode() == longest}
    assert abs(score + 7.123) <= SCORE_STEP / 2
    assert all((piece.score / SCORE_STEP).is_integer() for piece in sentencepiece_model.pieces(rounded))


def test_pieces_of_the_file_are_those_that_sentencepiece_reads(pieces: Tokenizer) -> None:
    processor = sentencepiece.SentencePieceProcessor(model_file=str(pieces.model))
    found = sentencepiece_model.pieces(pieces.model.read_bytes())
    assert [piece.text for piece in found] == pieces.pieces()
    assert [piece.score for piece in found] == [processor.get_score(index) for index in range(len(pieces))]
    assert [index for index, piece in enumerate(found) if piece.kind == sentencepiece_model.UNKNOWN] == [
        DEFAULT_SPECIAL_IDS.unknown
    ]


def test_offsets_point_at_the_text_as_it_was_given(pieces: Tokenizer, fast: tokenizers.Tokenizer) -> None:
    for text in [*(lines_of(script, 1)[0] for script in LETTERS), "  a  \ufb01ne  e\u0302\u0301n"]:
        encoding, spans = fast.encode(text, add_special_tokens=False), pieces.encode_spans(text)
        places = zip(encoding.offsets, zip(spans.starts, spans.ends, strict=True), strict=True)
        # A lone mark of a space before the first character stands for that character here, for nothing there.
        for found, wanted in list(places)[1:]:
            shown, whole = (text[start:end].strip() for start, end in (found, wanted))
            # A mark that was joined to the last character is not counted here.
            assert whole.startswith(shown)
            assert all(unicodedata.combining(mark) for mark in whole.removeprefix(shown))


@pytest.mark.parametrize("text", ["a <mask> b", "a<mask> b", "a  <mask>b"])
def test_a_mask_is_recognised_and_takes_the_space_before_it_along(
    pieces: Tokenizer, fast: tokenizers.Tokenizer, text: str
) -> None:
    found = fast.encode(text, add_special_tokens=False)
    assert found.ids == [*pieces.encode("a"), DEFAULT_SPECIAL_IDS.mask, *pieces.encode("b")]
    assert DEFAULT_SPECIAL_IDS.mask not in pieces.encode(text)


def test_special_pieces_that_a_text_spells_out_are_recognised_by_their_own_ids(
    pieces: Tokenizer, fast: tokenizers.Tokenizer
) -> None:
    for role, piece in SPECIAL_PIECES._asdict().items():
        assert getattr(DEFAULT_SPECIAL_IDS, role) in fast.encode(f"a {piece} b", add_special_tokens=False).ids
        assert fast.token_to_id(piece) == getattr(DEFAULT_SPECIAL_IDS, role)
    assert fast.get_vocab_size() == len(pieces)
    assert special_pieces(pieces) == SPECIAL_PIECES


@pytest.mark.parametrize(("separators", "segments"), [(1, 0), (2, 1), (1, 2)])
def test_texts_and_pairs_read_as_the_encoder_expects_them(pieces: Tokenizer, separators: int, segments: int) -> None:
    family = Family.model_validate({"separators": separators, "segments": segments})
    shape = SHAPE.model_copy(update={"family": family})
    fast = fast_tokenizer(pieces, shape)
    for texts in (("abc de",), ("abc de", "fgh"), ("", "fgh")):
        expected, found = encode([texts], pieces, shape), fast.encode(*texts)
        assert found.ids == expected.rows[0]
        assert found.type_ids == (expected.types[0] if expected.types else [0] * len(found.ids))
    assert ("token_type_ids" in tokenizer_config(pieces, shape)["model_input_names"]) is family.marks_second_text


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"model_type": "bpe"}, r"other\.model is not a unigram model"),
        ({"user_defined_symbols": ["<tag>"]}, r"pieces that a tokenizer of ours has not .*'<tag>'"),
        ({"normalization_rule_name": "identity"}, "not those of nmt_nfkc"),
    ],
)
def test_models_of_other_settings_are_refused(tmp_path: Path, settings: dict[str, Any], words: str) -> None:
    lines = iter(lines_of("Latin", 100))
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=lines, model_prefix=str(tmp_path / "other"), vocab_size=80, minloglevel=2, **settings
    )
    with pytest.raises(TokenizerError, match=words):
        unigram_tokenizer((tmp_path / "other.model").read_bytes(), "other.model")


def test_a_damaged_model_is_refused(pieces: Tokenizer) -> None:
    model = pieces.model.read_bytes()
    for damaged in (model[: len(model) // 2], b"\xff" * 30, b"\x0f"):
        with pytest.raises(TokenizerError, match="not a SentencePiece model"):
            unigram_tokenizer(damaged, "damaged.model")
    with pytest.raises(TokenizerError, match="damaged normalisation rules"):
        read_rules(sentencepiece_model.charsmap(model)[:1000])
