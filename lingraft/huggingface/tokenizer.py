"""The tokenizer that comes with a checkpoint: kept as its `tokenizer.json`, its special pieces known by their roles."""

import dataclasses
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lingraft.artifacts.files import explain_write_errors, write_text
from lingraft.data.tokenizer import sentencepiece_model
from lingraft.data.tokenizer.fast_engine import FastEngine
from lingraft.data.tokenizer.pieces import SpecialIds, SpecialPieces
from lingraft.data.tokenizer.tokenizer import SPECIAL_PIECES, Tokenizer
from lingraft.errors import TokenizerError
from lingraft.huggingface.hub import SENTENCEPIECE, TOKENIZER_FILES

if TYPE_CHECKING:
    import tokenizers

TOKENIZER_JSON = "tokenizer.json"
_ROLES = {
    "begin": ("cls_token", "bos_token"),
    "pad": ("pad_token",),
    "end": ("sep_token", "eos_token"),
    "unknown": ("unk_token",),
    "mask": ("mask_token",),
}
"""Names in transformers of each of our roles, of which the first that a tokenizer has counts."""
_FAIRSEQ_PIECES = {
    "xlm-roberta": ["<s>", "<pad>", "</s>", "<unk>"],
    "camembert": ["<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED"],
}
"""Pieces before those of the SentencePiece model: fairseq's dictionary, by which these two count."""
_REPLACED_PIECES = {"xlm-roberta": 3, "camembert": 1}
"""Pieces at the beginning of the SentencePiece model that fairseq's replace."""
_UNUSED_SCORE = -100.0
"""Score of a piece that no text should get."""


class ImportedTokenizer(NamedTuple):
    """A checkpoint's tokenizer in a file of its own."""

    tokenizer: Tokenizer
    notes: list[str]


def import_tokenizer(checkpoint: Path, model_type: str, language: str, into: Path) -> ImportedTokenizer:
    """Copy a checkpoint's `tokenizer.json` into a folder, or make one from the files of its slow tokenizer.

    Raises:
        TokenizerError: there is none, it is damaged, it has no fast form, or it lacks a special piece.
        ArtifactError: `into` cannot be written.
    """
    kept = into / TOKENIZER_JSON
    made = [f"{TOKENIZER_JSON} was made from the checkpoint's slow tokenizer"]
    if not any((checkpoint / name).is_file() for name in TOKENIZER_FILES):
        raise TokenizerError(f"{checkpoint} has no tokenizer. Put its files there: {', '.join(TOKENIZER_FILES)}.")
    if (checkpoint / TOKENIZER_JSON).is_file():
        FastEngine.load(checkpoint / TOKENIZER_JSON)  # transformers would not say which of the files is damaged
        with explain_write_errors(kept):
            shutil.copyfile(checkpoint / TOKENIZER_JSON, kept)
        return ImportedTokenizer(
            _load_with_special_ids(kept, language, _special_pieces(_load_transformers(checkpoint)), checkpoint), []
        )
    if (checkpoint / SENTENCEPIECE).is_file() and model_type in _FAIRSEQ_PIECES:
        write_text(kept, from_fairseq(checkpoint / SENTENCEPIECE, model_type).to_str(pretty=True))
        return ImportedTokenizer(_load_with_special_ids(kept, language, SPECIAL_PIECES, checkpoint), made)
    loaded = _load_transformers(checkpoint)
    fast = getattr(loaded, "backend_tokenizer", None)
    if fast is None:
        raise TokenizerError(
            f"{checkpoint} has a {type(loaded).__name__}, which has no fast form. Take a checkpoint that comes with a "
            f"{TOKENIZER_JSON}, or make one for it."
        )
    vocabulary = loaded.vocab_files_names.get("vocab_file", TOKENIZER_JSON)
    if not (checkpoint / vocabulary).is_file():  # transformers then makes a tokenizer of special pieces alone
        raise TokenizerError(
            f"{checkpoint} has settings of a {type(loaded).__name__}, but no pieces: no {vocabulary}. Put it or a "
            f"{TOKENIZER_JSON} there, or fetch the checkpoint anew."
        )
    write_text(kept, fast.to_str(pretty=True))
    return ImportedTokenizer(_load_with_special_ids(kept, language, _special_pieces(loaded), checkpoint), made)


def template_ids(file: Path) -> list[int]:
    """Return the ids of an empty text with the special pieces that a `tokenizer.json` puts around texts."""
    from tokenizers import Tokenizer as FastTokenizer

    fast = FastTokenizer.from_file(str(file))
    fast.no_padding()
    found: list[int] = fast.encode("").ids
    return found


def from_fairseq(model: Path, model_type: str) -> "tokenizers.Tokenizer":
    """Build the fast tokenizer of XLM-R or CamemBERT from its SentencePiece file, as transformers defines it.

    transformers itself needs a protobuf for this that Kubeflow's client does not go with.

    Raises:
        TokenizerError: the file is no SentencePiece model.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

    raw = model.read_bytes()
    first = _FAIRSEQ_PIECES[model_type]
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
    return made


def _load_transformers(checkpoint: Path) -> Any:
    """Load the files with transformers; no code that comes with a checkpoint is run."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(checkpoint, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, ImportError, KeyError, TypeError, AttributeError) as error:
        advice = f"Take a checkpoint that comes with a {TOKENIZER_JSON}."
        if (checkpoint / TOKENIZER_JSON).is_file():
            advice = f"Its {TOKENIZER_JSON} is whole: correct the other files of the tokenizer, or fetch them anew."
        raise TokenizerError(f"the tokenizer in {checkpoint} cannot be loaded: {error}. {advice}") from error


def _special_pieces(loaded: Any) -> SpecialPieces[str]:
    """A tokenizer's special pieces; "" for those that it lacks."""
    return SpecialPieces(
        **{
            role: next((str(piece) for name in names if (piece := getattr(loaded, name))), "")
            for role, names in _ROLES.items()
        }
    )


def _load_with_special_ids(file: Path, language: str, special: SpecialPieces[str], checkpoint: Path) -> Tokenizer:
    tokenizer = Tokenizer.from_file(file, language)
    ids = {piece: index for index, piece in enumerate(tokenizer.pieces()) if piece}
    if lacking := [role for role, piece in special._asdict().items() if piece not in ids]:
        raise TokenizerError(
            f"the tokenizer in {checkpoint} has no piece for {', '.join(lacking)}; its special pieces are "
            f"{special._asdict()}. A masked language model's has all of them: take one, or name them in its "
            "tokenizer_config.json."
        )
    if len(set(special)) < len(special):
        raise TokenizerError(
            f"the tokenizer in {checkpoint} has one piece for several roles: {special._asdict()}. Take a checkpoint "
            "that tells begin, pad, end, unknown and mask apart."
        )
    return dataclasses.replace(tokenizer, special=SpecialIds(*(ids[piece] for piece in special)))
