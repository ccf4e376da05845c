"""SentencePiece's compiled normalisation rules, taken apart.

Rules rewrite text from left to right, at each place by the longest one that fits. They come as a double-array trie of
UTF-8 bytes (Darts-clone), whose leaves point into a list of replacements that end with a zero byte.

For `nmt_nfkc`, the rules of our tokenizers, 225,276 rules say no more than two steps do: replace single characters
(5,009 rules), then join a base with the marks that follow it (12,121 rules, all others being variants of these).
`two_step_rules` proves this for the rules at hand, because the fast tokenizer is built upon it.
"""

import struct
from collections import defaultdict
from functools import cache
from itertools import product
from typing import NamedTuple

import numpy as np

from lingraft.errors import TokenizerError

_NOT_A_LABEL = 1 << 31
_VALUE = _NOT_A_LABEL - 1


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
    """Keys and values of a Darts-clone double array.

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
