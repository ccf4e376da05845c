"""The tokenizers of XLM-R and CamemBERT from their SentencePiece model: ids by fairseq's dictionary, and added tokens.

transformers itself needs a protobuf for this that Kubeflow's client does not go with.
"""

import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lingraft.data.tokenizer import sentencepiece_model
from lingraft.data.tokenizer.tokenizer import SPECIAL_PIECES, Tokenizer
from lingraft.errors import TokenizerError
from lingraft.huggingface.hub import SENTENCEPIECE, read_json_object
from lingraft.huggingface.probe import first_difference, probe_texts

if TYPE_CHECKING:
    import tokenizers

_FIRST_PIECES = {
    "xlm-roberta": ["<s>", "<pad>", "</s>", "<unk>"],
    "camembert": ["<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED"],
}
"""Pieces before those of the SentencePiece model: fairseq's dictionary, by which these two count."""
_REPLACED_PIECES = {"xlm-roberta": 3, "camembert": 1}
"""Pieces at the beginning of the SentencePiece model that fairseq's replace."""
_UNUSED_SCORE = -100.0
"""Score of a piece that no text should get."""
_ADDED, _CONFIG, _MAP = "added_tokens.json", "tokenizer_config.json", "special_tokens_map.json"
_EXTRA = ("additional_special_tokens", "extra_special_tokens")
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized")
_ROLES = {
    "bos_token": SPECIAL_PIECES.begin,
    "cls_token": SPECIAL_PIECES.begin,
    "pad_token": SPECIAL_PIECES.pad,
    "eos_token": SPECIAL_PIECES.end,
    "sep_token": SPECIAL_PIECES.end,
    "unk_token": SPECIAL_PIECES.unknown,
    "mask_token": SPECIAL_PIECES.mask,
}
_ADVICE = "Take a checkpoint that comes with a tokenizer.json."


class _Added(NamedTuple):
    """A token that is added behind the pieces."""

    content: str
    id: int | None
    """Its id; None where the files leave it out."""
    flags: Mapping[str, Any]


def is_fairseq(checkpoint: Path, model_type: str) -> bool:
    """Whether a checkpoint's tokenizer is made from its SentencePiece model."""
    return model_type in _FIRST_PIECES and (checkpoint / SENTENCEPIECE).is_file()


def fairseq_tokenizer(checkpoint: Path, model_type: str) -> "tokenizers.Tokenizer":
    """Build the fast tokenizer of a checkpoint from its SentencePiece file, as transformers defines it."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

    raw = (checkpoint / SENTENCEPIECE).read_bytes()
    sentencepiece_model.require_unigram(raw, str(checkpoint / SENTENCEPIECE), _ADVICE)
    first = _FIRST_PIECES[model_type]
    own = [(piece.text, piece.score) for piece in sentencepiece_model.pieces(raw)[_REPLACED_PIECES[model_type] :]]
    before = [(piece, _UNUSED_SCORE if piece == "<unk>NOTUSED" else 0.0) for piece in first]
    pieces = [*before, *own, (SPECIAL_PIECES.mask, 0.0)]
    made = Tokenizer(models.Unigram(pieces, unk_id=first.index(SPECIAL_PIECES.unknown), byte_fallback=False))
    if rules := sentencepiece_model.charsmap(raw):
        made.normalizer = normalizers.Precompiled(rules)
    words = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")]
    made.pre_tokenizer = pre_tokenizers.Sequence(words)
    made.decoder = decoders.Metaspace(prepend_scheme="always")
    special = dict.fromkeys([*first, *SPECIAL_PIECES])
    made.add_special_tokens([AddedToken(piece, lstrip=piece == SPECIAL_PIECES.mask) for piece in special])
    _require_usual_roles(checkpoint)
    for added in _added_tokens(checkpoint):
        _add(made, added, checkpoint)
    return made


def sentencepiece_difference(checkpoint: Path, model_type: str, tokenizer: Tokenizer) -> str | None:
    """Return a sentence about the first text that SentencePiece cuts otherwise; None if there is none.

    Texts that transformers is known to normalise otherwise are left out.
    """
    from sentencepiece import SentencePieceProcessor

    processor = SentencePieceProcessor(model_file=str(checkpoint / SENTENCEPIECE))
    shift = len(_FIRST_PIECES[model_type]) - _REPLACED_PIECES[model_type]
    found_whole = [*SPECIAL_PIECES, *(added.content for added in _added_tokens(checkpoint))]

    def encode(text: str) -> list[int]:
        return [index + shift if index else tokenizer.special.unknown for index in processor.encode(text)]

    texts = [text for text in probe_texts(tokenizer) if _is_plain(text)]
    texts = [text for text in texts if not any(piece in text for piece in found_whole)]
    return first_difference(texts, encode, tokenizer, "SentencePiece")


def _is_plain(text: str) -> bool:
    """Whether a text is made of letters, digits, signs and single spaces that no rule changes."""
    kinds = {unicodedata.category(character)[0] for character in text}
    return kinds <= set("LNPSZ") and " ".join(text.split()) == text == unicodedata.normalize("NFKC", text)


def _added_tokens(checkpoint: Path) -> list[_Added]:
    """Return the tokens that a slow tokenizer's files add, in the order of their ids."""
    settings = _settings(checkpoint, _MAP) | _settings(checkpoint, _CONFIG)
    special = [_content(token) for key in _EXTRA for token in settings.get(key) or ()]
    if "added_tokens_decoder" in settings:
        decoder = {int(index): token for index, token in settings["added_tokens_decoder"].items()}
        found = [_Added(token["content"], index, token) for index, token in decoder.items()]
    else:
        ids = _settings(checkpoint, _ADDED)
        found = [_Added(token, index, {"normalized": token not in special}) for token, index in ids.items()]
    found.sort(key=lambda added: added.id or 0)
    known = {added.content for added in found}
    return [*found, *(_Added(token, None, {"normalized": False}) for token in special if token not in known)]


def _require_usual_roles(checkpoint: Path) -> None:
    settings = _settings(checkpoint, _MAP) | _settings(checkpoint, _CONFIG)
    named = {key: _content(settings[key]) for key in _ROLES.keys() & settings.keys()}
    if wrong := {key: piece for key, piece in sorted(named.items()) if piece not in (None, _ROLES[key])}:
        raise TokenizerError(
            f"{_CONFIG} or {_MAP} in {checkpoint} names special pieces that XLM-R and CamemBERT have not: {wrong}. "
            f"{_ADVICE}"
        )


def _content(token: Any) -> Any:
    return token.get("content") if isinstance(token, dict) else token


def _settings(checkpoint: Path, name: str) -> dict[str, Any]:
    return read_json_object(checkpoint / name) if (checkpoint / name).is_file() else {}


def _add(made: "tokenizers.Tokenizer", added: _Added, checkpoint: Path) -> None:
    from tokenizers import AddedToken

    if made.token_to_id(added.content) is None:
        flags = {key: added.flags[key] for key in _FLAGS if key in added.flags}
        made.add_tokens([AddedToken(added.content, **flags)])
    if added.id not in (None, found := made.token_to_id(added.content)):
        raise TokenizerError(
            f"{_ADDED} or {_CONFIG} in {checkpoint} gives the added token {added.content!r} the id {added.id}, but "
            f"behind the pieces of {SENTENCEPIECE} it has {found}. Fetch all files of the tokenizer anew, from one "
            "source."
        )
