"""A tokenizer as transformers loads it: `tokenizer.json` with special tokens and pairs, and the settings beside it.

Special tokens that a text spells out, such as `</s>`, are recognised there, as in every tokenizer of transformers; our
own (`lingraft.data.tokenizer.tokenizer`) cut them like any other text. `<mask>` takes the space before it along, as
RoBERTa's does, so that "a <mask> b" asks for a word.
"""

from typing import Any

from tokenizers import Tokenizer as Fast
from tokenizers.processors import TemplateProcessing

from lingraft.config.encoder import EncoderShape
from lingraft.data.tokenizer.pieces import SpecialPieces
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.tasks.pairs import encode

_PROBE = ("a", "a")


def fast_tokenizer(tokenizer: Tokenizer, shape: EncoderShape) -> Fast:
    """Return a tokenizer of the library `tokenizers`, which encodes texts and pairs as the encoder expects them.

    One that came with an imported primary stays as it is, except that a pair gets the primary's own format.
    """
    made = Fast.from_str(tokenizer.fast.to_str())
    if not _encodes_alike(made, tokenizer, shape):
        made.post_processor = _post_processor(tokenizer, shape)
    return made


def tokenizer_config(tokenizer: Tokenizer, shape: EncoderShape) -> dict[str, Any]:
    """Return `tokenizer_config.json`: special tokens by transformers' names, and the longest input.

    The class is the one that takes `tokenizer.json` as it is; those of model types build it anew by their own rules.
    """
    names = special_pieces(tokenizer)
    inputs = ["input_ids", *(["token_type_ids"] if shape.family.marks_second_text else []), "attention_mask"]
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": names.begin,
        "cls_token": names.begin,
        "eos_token": names.end,
        "sep_token": names.end,
        "pad_token": names.pad,
        "unk_token": names.unknown,
        "mask_token": names.mask,
        "model_max_length": shape.block_tokens,
        "model_input_names": inputs,
        "padding_side": "right",
        "clean_up_tokenization_spaces": False,
    }


def special_pieces(tokenizer: Tokenizer) -> SpecialPieces[str]:
    """Return the special pieces by role."""
    pieces = tokenizer.pieces()
    return SpecialPieces(*(pieces[index] for index in tokenizer.special))


def _encodes_alike(made: Fast, tokenizer: Tokenizer, shape: EncoderShape) -> bool:
    """Whether single texts and pairs come with the special tokens and segments that ours come with."""
    for texts in (_PROBE[:1], _PROBE):
        expected = encode([texts], tokenizer, shape)
        found = made.encode(*texts)
        if found.ids != expected.rows[0] or (expected.types is not None and found.type_ids != expected.types[0]):
            return False
    return True


def _post_processor(tokenizer: Tokenizer, shape: EncoderShape) -> TemplateProcessing:
    names = special_pieces(tokenizer)
    second = int(shape.family.marks_second_text)
    begin = f"{names.begin}:0"
    end = f"{names.end}:0"
    return TemplateProcessing(
        single=[begin, "$A:0", end],
        pair=[begin, "$A:0", *[end] * shape.family.separators, f"$B:{second}", f"{names.end}:{second}"],
        special_tokens=[(names.begin, tokenizer.special.begin), (names.end, tokenizer.special.end)],
    )
