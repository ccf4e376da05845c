"""Normalisation rules of SentencePiece models: their compiled form, and the rules that lower-case.

The rules are those of `nmt_nfkc`, which SentencePiece normalises with by default. 225,276 of them say no more than two
steps do: replace single characters (5,009 rules), then join a base with the marks that follow it (12,121 rules, all
others being variants of these). `two_step_rules` proves this for the rules at hand.
"""

import struct
from collections import defaultdict
from functools import cache
from itertools import product
from typing import NamedTuple

import numpy as np
import sentencepiece

from lingraft.data.tokenizer import sentencepiece_model
from lingraft.errors import TokenizerError

_NOT_A_LABEL = 1 << 31
_VALUE = _NOT_A_LABEL - 1
_SURROGATES = range(0xD800, 0xE000)


class TwoStepRules(NamedTuple):
    """Rules as two steps."""

    single: dict[str, str]
    """Replacement of each character that has a rule by itself; the rest stay as they are."""
    joined: dict[str, str]
    """Replacement of a base and the marks behind it, none of which has a rule of its own. A key without its last mark
    is a key too, down to two characters."""


@cache
def two_step_rules(charsmap: bytes) -> TwoStepRules:
    """Divide the rules of a `precompiled_charsmap` into two steps that together do the same."""
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


def lower_case_rules() -> str:
    """Return `nmt_nfkc` with lower case, as a file of rules that SentencePiece trains with.

    Marks stay, and so does "ß": SentencePiece's own `nmt_nfkc_cf` folds it to "ss", and cannot be divided in two steps.
    """
    normalizer = sentencepiece.SentencePieceNormalizer(rule_name="nmt_nfkc")
    cased = two_step_rules(sentencepiece_model.charsmap(normalizer.serialized_model_proto()))
    lowered = {
        character: cased.single.get(character, character).lower()
        for character in map(chr, range(0x110000))
        if ord(character) not in _SURROGATES
    }
    single = {character: value for character, value in lowered.items() if value != character}
    joined = {key: value for key, value in cased.joined.items() if single.keys().isdisjoint(key)}
    rules = single | _variants(joined, single)
    return "".join(f"{_code_points(key)}\t{_code_points(value)}\n" for key, value in rules.items())


def _code_points(text: str) -> str:
    return " ".join(f"{ord(character):X}" for character in text)


def _variants(joined: dict[str, str], single: dict[str, str]) -> dict[str, str]:
    """Rules for bases and marks, and those for all characters that first become these."""
    sources = defaultdict(list)
    for key, value in single.items():
        sources[value].append(key)
    choices = ((value, product(*([each, *sources[each]] for each in key))) for key, value in joined.items())
    return {"".join(choice): value for value, chosen in choices for choice in chosen}


def read_rules(charsmap: bytes) -> dict[str, str]:
    """Return the replacements of a `precompiled_charsmap` by what they replace; none if it is empty."""
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
