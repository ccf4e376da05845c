"""The tokenizer that comes with a checkpoint: kept as its `tokenizer.json`, its special pieces known by their roles."""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from lingraft.artifacts.files import write_text
from lingraft.data.tokenizer.pieces import SpecialIds, SpecialPieces
from lingraft.data.tokenizer.tokenizer import TOKENIZER_JSON, Tokenizer
from lingraft.errors import TokenizerError
from lingraft.huggingface.hub import SENTENCEPIECE, TOKENIZER_FILES
from lingraft.huggingface.probe import first_difference, probe_texts

_ROLES = {
    "begin": ("cls_token", "bos_token"),
    "pad": ("pad_token",),
    "end": ("sep_token", "eos_token"),
    "unknown": ("unk_token",),
    "mask": ("mask_token",),
}
"""Names in transformers of each of our roles, of which the first that a tokenizer has counts."""
_MADE = f"{TOKENIZER_JSON} was made from the checkpoint's slow tokenizer"
_CHANGED = f"{TOKENIZER_JSON} was changed by the settings beside it, as transformers does it, since with it alone {{}}"


class ImportedTokenizer(NamedTuple):
    """A checkpoint's tokenizer in a file of its own."""

    tokenizer: Tokenizer
    separators: int | None
    """End pieces between the two texts of a pair; None if its pairs are not put together as ours are."""
    notes: list[str]


class _Original(NamedTuple):
    """A checkpoint's tokenizer as transformers loads it: ours is to give its ids."""

    loaded: Any
    special: SpecialPieces[str]

    def ids(self, *texts: str) -> list[int]:
        """Return the ids of a text or a pair, with special pieces around it."""
        found: list[int] = self.loaded(*texts)["input_ids"]
        return found

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text alone; special pieces that it spells out are text."""
        spelled = self._spells_special(text)
        found = self.loaded(text, add_special_tokens=False, split_special_tokens=spelled, verbose=False)
        ids: list[int] = found["input_ids"]
        return ids

    def _spells_special(self, text: str) -> bool:
        return any(piece in text for piece in self.special)

    def difference(self, tokenizer: Tokenizer) -> str | None:
        """Return a sentence about the first text that a tokenizer cuts otherwise; None if there is none."""
        added = {*self.loaded.get_added_vocab()} - {*self.special}
        texts = [
            text
            for text in probe_texts(tokenizer, added)
            # transformers finds either both or neither.
            if not (self._spells_special(text) and any(token in text for token in added))
        ]
        return first_difference(texts, self.encode, tokenizer, "transformers")


def import_tokenizer(checkpoint: Path, language: str, into: Path, lower_case: bool = False) -> ImportedTokenizer:
    """Keep a checkpoint's `tokenizer.json` in a folder, or make one that gives the ids of transformers.

    With `lower_case`, texts are lower-cased first, as sentence-transformers does it where a model says so.
    """
    if not any((checkpoint / name).is_file() for name in TOKENIZER_FILES):
        raise TokenizerError(f"{checkpoint} has no tokenizer. Put its files there: {', '.join(TOKENIZER_FILES)}.")
    file, kept = checkpoint / TOKENIZER_JSON, into / TOKENIZER_JSON
    if file.is_file():
        Tokenizer.from_file(file, language)  # transformers would not say which of the files is damaged
    elif (checkpoint / SENTENCEPIECE).is_file():
        raise TokenizerError(
            f"{checkpoint} has its pieces in {SENTENCEPIECE} alone, and perhaps more in added_tokens.json. Take a "
            f"revision with a {TOKENIZER_JSON}, or make one: transformers.AutoTokenizer.from_pretrained(FOLDER)"
            ".save_pretrained(FOLDER), where protobuf 7 or tiktoken is installed."
        )
    loaded = _load_transformers(checkpoint)
    if lower_case:
        _lower_case(loaded, checkpoint)
    original = _Original(loaded, _special_pieces(loaded, checkpoint))
    difference = None
    for text, note in _candidates(file, original):
        write_text(kept, text)
        tokenizer = _load_with_special_ids(kept, language, original.special, checkpoint)
        notes = [note.format(difference)] if note else []
        difference = original.difference(tokenizer)
        if difference is None:
            return ImportedTokenizer(tokenizer, _separators(original, tokenizer), notes)
    raise _inexact(checkpoint, difference)


def _candidates(file: Path, original: _Original) -> Iterator[tuple[str, str]]:
    """Yield files that may give transformers' ids, with notes: the checkpoint's, with its added tokens, and theirs."""
    if not file.is_file():
        yield _with_added_as_text(_fast_form(original.loaded, file.parent), original.special), _MADE
        return
    whole = file.read_bytes().decode()
    yield whole, ""
    if (with_added := _with_added_as_text(whole, original.special)) != whole:
        yield with_added, ""
    if fast := getattr(original.loaded, "backend_tokenizer", None):
        kinds = json.loads(whole)["model"].get("type"), type(fast.model).__name__
        if kinds[0] not in (None, kinds[1]):
            raise TokenizerError(
                f"{file} holds a {kinds[0]} model, but transformers makes a {kinds[1]} model of it, by the "
                f"tokenizer_class in tokenizer_config.json or config.json ({type(original.loaded).__name__}), and cuts "
                "texts otherwise. Correct the tokenizer_class; PreTrainedTokenizerFast takes the file as it is."
            )
        yield _with_added_as_text(fast.to_str(pretty=True), original.special), _CHANGED


def _with_added_as_text(file: str, special: SpecialPieces[str]) -> str:
    """A `tokenizer.json` that finds all added tokens in texts, and no special piece."""
    settings = json.loads(file)
    added = settings.get("added_tokens", ())
    if all(token["special"] is (token["content"] in special) for token in added):
        return file
    settings["added_tokens"] = [token | {"special": token["content"] in special} for token in added]
    return json.dumps(settings, ensure_ascii=False, indent=2)


def _fast_form(loaded: Any, checkpoint: Path) -> str:
    """The `tokenizer.json` of a tokenizer that came without one."""
    fast = getattr(loaded, "backend_tokenizer", None)
    if fast is None:
        raise _without_fast_form(loaded, checkpoint)
    vocabulary = loaded.vocab_files_names.get("vocab_file", TOKENIZER_JSON)
    if not (checkpoint / vocabulary).is_file():  # transformers then makes a tokenizer of special pieces alone
        raise TokenizerError(
            f"{checkpoint} has settings of a {type(loaded).__name__}, but no pieces: no {vocabulary}. Put it or a "
            f"{TOKENIZER_JSON} there, or fetch the checkpoint anew."
        )
    return str(fast.to_str(pretty=True))


def _without_fast_form(loaded: Any, checkpoint: Path) -> TokenizerError:
    return TokenizerError(
        f"{checkpoint} has a {type(loaded).__name__}, which has no fast form. Take a checkpoint that comes with a "
        f"{TOKENIZER_JSON}, or make one for it."
    )


def _separators(original: _Original, tokenizer: Tokenizer) -> int | None:
    """Return how many end pieces stand between two texts."""
    begin, end = tokenizer.special.begin, tokenizer.special.end
    text, found = original.encode("a"), original.ids("a", "a")
    counts = (count for count in (1, 2) if found == [begin, *text, *[end] * count, *text, end])
    return next(counts, None)


def _inexact(checkpoint: Path, difference: str | None) -> TokenizerError:
    return TokenizerError(
        f"the tokenizer in {checkpoint} cannot be kept exactly: {difference}. Take a checkpoint whose "
        f"{TOKENIZER_JSON} transformers reads as it is (tokenizer_class PreTrainedTokenizerFast), or another model."
    )


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


def _lower_case(loaded: Any, checkpoint: Path) -> None:
    from tokenizers import normalizers

    if (fast := getattr(loaded, "backend_tokenizer", None)) is None:
        raise _without_fast_form(loaded, checkpoint)
    if fast.normalizer is None:
        fast.normalizer = normalizers.Lowercase()
    elif "lower" not in fast.normalizer.normalize_str("LOWER"):
        fast.normalizer = normalizers.Sequence([normalizers.Lowercase(), fast.normalizer])


def _special_pieces(loaded: Any, checkpoint: Path) -> SpecialPieces[str]:
    """A tokenizer's special pieces; "" for those that it lacks. Begin and end are those that it puts around texts."""
    named = {
        role: next((str(piece) for name in names if (piece := getattr(loaded, name))), "")
        for role, names in _ROLES.items()
    }
    text, whole = (loaded("a", add_special_tokens=added)["input_ids"] for added in (False, True))
    if len(whole) != len(text) + 2 or whole[1:-1] != text:
        raise TokenizerError(
            f"the tokenizer in {checkpoint} makes the pieces {loaded.convert_ids_to_tokens(whole)} of the text 'a', "
            "but texts stand between a begin and an end here, and hidden states depend on it. Take a model whose "
            f"{TOKENIZER_JSON} has a post_processor that adds the two."
        )
    if any(loaded("a").get("token_type_ids", ())):
        raise TokenizerError(
            f"the tokenizer in {checkpoint} puts a single text into another segment than the first, where ours stand. "
            f"Take a model whose {TOKENIZER_JSON} has a post_processor with type_id 0 for single texts."
        )
    named["begin"], named["end"] = loaded.convert_ids_to_tokens([whole[0], whole[-1]])
    return SpecialPieces(**named)


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
