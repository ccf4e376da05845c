"""A SentencePiece unigram model as a fast tokenizer of the library `tokenizers`, with the same ids for the same text.

The library's own reading of SentencePiece's normalisation rules (`Precompiled`) looks at one grapheme at a time and
takes the shortest rule that fits, where SentencePiece takes the longest one at each place: it drops marks, and fails on
a text that begins with a character to be removed. So here it is only given single characters, which both read alike;
marks are joined to their bases by NFC, only where SentencePiece has a rule for it. For `nmt_nfkc`, the rules of our
tokenizers, 225,276 rules say no more than these two steps do: replace single characters (5,009 rules), then join a base
with the marks that follow it (12,121 rules, all others being variants of these). `two_step_rules` proves this for the
rules at hand. A separator keeps apart what neither may see together:

1. a separator goes before every mark, behind every character with a rule, and in place of those to be removed;
2. single characters are replaced (`Precompiled`);
3. separators inside a base and its marks that have a rule are removed, and NFC joins these;
4. all other separators are removed, spaces are collapsed as SentencePiece does it.

Not the same are rules whose base is itself a mark: Unicode 16 has four such bases, in scripts that were added with it.
Segmentation is the same search in both; `sentencepiece_file.with_exact_scores` sees to it that they agree on ties.
"""

import struct
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lingraft.data.tokenizer import sentencepiece_model
from lingraft.data.tokenizer.pieces import SPACE_MARK
from lingraft.data.tokenizer.sentencepiece_model import UNKNOWN, Piece
from lingraft.errors import TokenizerError

if TYPE_CHECKING:
    from tokenizers import Tokenizer, normalizers

_NOT_A_LABEL = 1 << 31
_VALUE = _NOT_A_LABEL - 1
_SEPARATOR = "\ufffe"
_STAND_IN = "\uffff"
"""Code points that are no characters, now or ever; text that has the first all the same is given the second."""


class TwoStepRules(NamedTuple):
    """Rules as two steps."""

    single: dict[str, str]
    """Replacement of each character that has a rule by itself; the rest stay as they are."""
    joined: dict[str, str]
    """Replacement of a base and the marks behind it, none of which has a rule of its own. A key without its last mark
    is a key too, down to two characters."""


@cache
def two_step_rules(charsmap: bytes) -> TwoStepRules:
    """Divide the rules of a `precompiled_charsmap` into two steps that together do the same.

    Raises:
        TokenizerError: it is damaged, or cannot be divided like that.
    """
    rules = read_rules(charsmap)
    single = {key: value for key, value in rules.items() if len(key) == 1}
    joined = {key: value for key, value in rules.items() if len(key) > 1 and single.keys().isdisjoint(key)}
    settled = all(single.keys().isdisjoint(value) for value in rules.values())
    begun = all(len(key) == 2 or key[:-1] in joined for key in joined)
    if not joined or not settled or not begun or rules != single | _variants(joined, single):
        raise TokenizerError(
            "the normalisation rules of this SentencePiece model are not those of nmt_nfkc or alike: they cannot be "
            "written as a fast tokenizer. Train a tokenizer with `lingraft tokenize`."
        )
    return TwoStepRules(single, joined)


def _variants(joined: dict[str, str], single: dict[str, str]) -> dict[str, str]:
    """Rules for bases and marks, and those for all characters that first become these."""
    sources = defaultdict(list)
    for key, value in single.items():
        sources[value].append(key)
    choices = ((value, product(*([each, *sources[each]] for each in key))) for key, value in joined.items())
    return {"".join(choice): value for value, chosen in choices for choice in chosen}


def read_rules(charsmap: bytes) -> dict[str, str]:
    """Return the replacements of a `precompiled_charsmap` by what they replace; none if it is empty.

    Raises:
        TokenizerError: it is damaged.
    """
    if not charsmap:
        return {}
    try:
        (trie_bytes,) = struct.unpack_from("<I", charsmap)
        units = np.frombuffer(charsmap, "<u4", trie_bytes // 4, offset=4).astype(np.int64)
        texts = charsmap[4 + trie_bytes :]
        return {key.decode(): _text(texts, value) for key, value in _trie_items(units)}
    except (struct.error, ValueError, IndexError) as error:
        raise TokenizerError(f"damaged normalisation rules: {error}. Train the tokenizer anew.") from error


def _trie_items(units: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> list[tuple[bytes, int]]:
    """Keys and values of a Darts-clone double array, whose values point into a list of texts that end with a zero byte.

    A child of a node stands at the node's base XOR the child's label, which its own lowest byte repeats; the value
    stands at the base itself.
    """
    bases = np.arange(len(units)) ^ ((units >> 10) << ((units & (1 << 9)) >> 6))
    labels = units & (_NOT_A_LABEL | 0xFF)
    places = np.flatnonzero((labels > 0) & (labels < 256))
    children = defaultdict(list)
    for place, base in zip(places.tolist(), (places ^ labels[places]).tolist(), strict=True):
        children[base].append(place)
    found = []
    open_nodes = [(0, b"")]
    while open_nodes:
        place, key = open_nodes.pop()
        base = int(bases[place])
        if units[place] >> 8 & 1:
            found.append((key, int(units[base]) & _VALUE))
        open_nodes += [(child, key + bytes([units[child] & 0xFF])) for child in children[base]]
    return found


def _text(texts: bytes, start: int) -> str:
    return texts[start : texts.index(b"\0", start)].decode()


def unigram_tokenizer(model: bytes, name: str) -> "Tokenizer":
    """Build a fast tokenizer without special tokens of its own, which gives text the ids that SentencePiece gives it.

    Raises:
        TokenizerError: it is no unigram model, or its normalisation cannot be written as a fast tokenizer.
    """
    from tokenizers import Tokenizer, decoders, models

    sentencepiece_model.require_unigram(model, name)
    pieces = sentencepiece_model.pieces(model)
    [unknown] = [index for index, piece in enumerate(pieces) if piece.kind == UNKNOWN]
    vocabulary = [(piece.text, piece.score) for piece in pieces]
    made = Tokenizer(models.Unigram(vocabulary, unk_id=unknown, byte_fallback=False))
    made.normalizer = _normalizer(sentencepiece_model.charsmap(model), pieces, name)
    made.decoder = decoders.Metaspace(replacement=SPACE_MARK, prepend_scheme="always")
    return made


def _normalizer(charsmap: bytes, pieces: list[Piece], name: str) -> "normalizers.Normalizer":
    from tokenizers import Regex, normalizers

    if any(mark in piece.text for piece in pieces for mark in (_SEPARATOR, _STAND_IN)):
        raise TokenizerError(f"{name} has pieces with U+FFFE or U+FFFF, which are no characters. Clean the text.")
    parts = two_step_rules(charsmap)
    nfc = normalizers.NFC()
    unjoined = {key: value for key, value in parts.joined.items() if nfc.normalize_str(key) != value}
    return normalizers.Sequence(
        [
            normalizers.Replace(_SEPARATOR, _STAND_IN),
            # `Precompiled` fails where the first character of a text is removed.
            normalizers.Replace(
                Regex(f"[{_ranges(key for key, value in parts.single.items() if not value)}]"), _SEPARATOR
            ),
            normalizers.Replace(Regex(_where_to_separate(parts)), _SEPARATOR),
            normalizers.Replace(Regex(_where_to_keep_apart(parts.single)), 2 * _SEPARATOR),
            normalizers.Precompiled(charsmap),
            normalizers.Replace(Regex(_where_to_join(parts.joined)), ""),
            nfc,
            # Newer than the library's Unicode.
            *(normalizers.Replace(key, unjoined[key]) for key in sorted(unjoined, key=len, reverse=True)),
            normalizers.Replace(_SEPARATOR, ""),
            normalizers.Replace(Regex(" +"), " "),
            normalizers.Replace(Regex(r"\A | \z"), ""),
            normalizers.Prepend(SPACE_MARK),
            normalizers.Replace(" ", SPACE_MARK),
        ]
    )


def _where_to_separate(parts: TwoStepRules) -> str:
    """Match before each mark, and behind each character with a rule: its grapheme would be replaced as a whole."""
    marks = {mark for key in parts.joined for mark in key[1:]}
    marks |= {key for key, value in parts.single.items() if value[:1] in marks}
    return rf"(?!\A)(?=[\p{{M}}{_ranges(marks)}])|(?<=[{_ranges(parts.single)}])(?=[^\x00-\x7f])"


def _where_to_keep_apart(single: Mapping[str, str]) -> str:
    """Match beside characters that become several: SentencePiece joins none of these to what follows them."""
    several = _ranges(key for key, value in single.items() if len(value) > 1)
    separator = _code(_SEPARATOR)
    return f"(?<=[{several}]){separator}|{separator}(?=[{several}])"


def _where_to_join(joined: Mapping[str, str]) -> str:
    """Match separators before the last mark of a base and marks that are joined."""
    separator = _code(_SEPARATOR)
    places = []
    for (between, bases), marks in _grouped(joined).items():
        before = f"[{_ranges(bases)}]" + "".join(separator + _code(mark) for mark in between)
        places.append(f"(?<={before}){separator}(?=[{_ranges(marks)}])")
    return "|".join(places)


def _grouped(joined: Mapping[str, str]) -> dict[tuple[str, frozenset[str]], set[str]]:
    """Last marks, by the marks between base and last mark, and the bases that have them."""
    bases = defaultdict(set)
    for key in joined:
        bases[key[1:]].add(key[0])
    groups = defaultdict(set)
    for marks, found in bases.items():
        groups[marks[:-1], frozenset(found)].add(marks[-1])
    return groups


def _ranges(characters: Iterable[str]) -> str:
    runs: list[list[int]] = []
    for point in sorted(map(ord, characters)):
        if runs and runs[-1][1] == point - 1:
            runs[-1][1] = point
        else:
            runs.append([point, point])
    return "".join(_code(chr(first)) + (f"-{_code(chr(last))}" if last > first else "") for first, last in runs)


def _code(character: str) -> str:
    return rf"\x{{{ord(character):x}}}"
