from pathlib import Path

import pytest
from tokenizers import Tokenizer as Fast
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

from lingraft.config.encoder import Family
from lingraft.data.tokenizer.pieces import DEFAULT_SPECIAL_IDS, SpecialIds
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.tasks.pairs import encode, pad
from tests.tasks.little import BERT, ROBERTA, lines, shape

BERT_IDS = SpecialIds(begin=2, pad=0, end=3, unknown=1, mask=4)
ROBERTA_IDS = SpecialIds(begin=0, pad=1, end=2, unknown=3, mask=4)


def word_piece() -> Fast:
    """BERT's kind: [CLS] a [SEP] b [SEP]."""
    fast = Fast(models.WordPiece(unk_token="[UNK]"))
    fast.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    fast.train_from_iterator(lines(), trainers.WordPieceTrainer(vocab_size=100, special_tokens=specials))
    fast.post_processor = processors.BertProcessing(("[SEP]", BERT_IDS.end), ("[CLS]", BERT_IDS.begin))
    return fast


def byte_bpe() -> Fast:
    """RoBERTa's kind: <s> a </s></s> b </s>."""
    fast = Fast(models.BPE())
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = decoders.ByteLevel()
    specials = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    fast.train_from_iterator(
        lines(), trainers.BpeTrainer(vocab_size=300, special_tokens=specials, initial_alphabet=alphabet)
    )
    ends = ("</s>", ROBERTA_IDS.end), ("<s>", ROBERTA_IDS.begin)
    fast.post_processor = processors.RobertaProcessing(*ends, add_prefix_space=False)
    return fast


def test_a_text_stands_between_begin_and_end_and_keeps_its_beginning(pieces: Tokenizer) -> None:
    words = "ba de ki lo mu na"
    ids = pieces.encode(words)
    assert len(ids) > 6
    for block_tokens in (len(ids) + 2, len(ids) + 1, 8):
        found = encode([(words,)], pieces, shape(block_tokens=block_tokens))
        assert found.rows == [[DEFAULT_SPECIAL_IDS.begin, *ids[: block_tokens - 2], DEFAULT_SPECIAL_IDS.end]]
        assert found.whole_tokens == [len(ids) + 2]
        assert found.types is None
        assert found.truncated == (block_tokens < len(ids) + 2)


@pytest.mark.parametrize(
    ("fast", "special", "family"),
    [(word_piece(), BERT_IDS, BERT), (byte_bpe(), ROBERTA_IDS, ROBERTA)],
    ids=["bert", "roberta"],
)
def test_pairs_are_those_of_the_tokenizers_library_however_they_are_cut(
    fast: Fast, special: SpecialIds, family: Family, tmp_path: Path
) -> None:
    fast.save(str(tmp_path / "tokenizer.json"))
    pieces = Tokenizer.from_file(tmp_path / "tokenizer.json", "en", special)
    texts = ["", "ba", "ba de ki lo", "mu na pe ri so tu va ze ba de"]
    pairs = [(first, second) for first in texts for second in texts]
    for block_tokens in range(8, 40):
        fast.enable_truncation(block_tokens, strategy="longest_first")
        expected = fast.encode_batch(pairs)
        found = encode(pairs, pieces, shape(family, block_tokens))
        assert found.rows == [encoding.ids for encoding in expected]
        if family is BERT:
            assert found.types == [encoding.type_ids for encoding in expected]
        assert found.truncated == sum(bool(encoding.overflowing) for encoding in expected)


def test_padding_fills_to_the_longest_and_only_padding_is_invisible() -> None:
    tokens_BT, visible_BT = pad([[0, 7, 2], [0, 2]], pad_id=7)
    assert tokens_BT.tolist() == [[0, 7, 2], [0, 2, 7]]
    assert visible_BT.tolist() == [[True, True, True], [True, True, False]]
