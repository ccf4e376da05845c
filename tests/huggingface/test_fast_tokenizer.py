"""A tokenizer of ours as transformers loads it: special pieces, pairs, segments."""

import pytest
import tokenizers

from lingraft.config.encoder import EncoderShape, Family
from lingraft.data.tokenizer.pieces import DEFAULT_SPECIAL_IDS, SPECIAL_PIECES
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.huggingface.fast_tokenizer import fast_tokenizer, special_pieces, tokenizer_config
from lingraft.tasks.pairs import encode
from tests.huggingface.scripts import lines_of, trained

SHAPE = EncoderShape(width=8, layers=1, attention_heads=1, mlm_heads=(1,), block_tokens=64)


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return trained(lines_of("Latin", 150), tmp_path_factory.mktemp("latin"), vocabulary=200)


@pytest.fixture(scope="module")
def fast(pieces: Tokenizer) -> tokenizers.Tokenizer:
    """The same as a fast tokenizer."""
    return fast_tokenizer(pieces, SHAPE)


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
