"""A SentencePiece unigram model as a fast tokenizer of the library `tokenizers`, with the same ids for the same text.

The library's own reading of SentencePiece's normalisation rules (`Precompiled`) looks at one grapheme at a time and
takes the shortest rule that fits, where SentencePiece takes the longest one at each place: it drops marks, and fails on
a text that begins with a character to be removed. So here it is only given single characters, which both read alike;
marks are joined to their bases by NFC, only where SentencePiece has a rule for it. The rules of our tokenizers say no
more than these two steps do (`lingraft.data.tokenizer.normalisation`). A separator keeps apart what neither may see
together:

1. a separator goes before every mark, behind every character with a rule, and in place of those to be removed;
2. single characters are replaced (`Precompiled`);
3. separators inside a base and its marks that have a rule are removed, and NFC joins these;
4. all other separators are removed, spaces are collapsed as SentencePiece does it.

Not the same are rules whose base is itself a mark: Unicode 16 has four such bases, in scripts that were added with it.
Segmentation is the same search in both; `sentencepiece_model.SCORE_STEP` sees to it that they agree on ties.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from lingraft.data.tokenizer import sentencepiece_model
from lingraft.data.tokenizer.normalisation import TwoStepRules, two_step_rules
from lingraft.data.tokenizer.pieces import SPACE_MARK
from lingraft.data.tokenizer.sentencepiece_model import UNKNOWN, Piece
from lingraft.errors import TokenizerError

if TYPE_CHECKING:
    from tokenizers import Tokenizer, normalizers

_SEPARATOR = "\ufffe"
_STAND_IN = "\uffff"
"""Code points that are no characters, now or ever; text that has the first all the same is given the second."""


def unigram_tokenizer(model: bytes, name: str) -> "Tokenizer":
    """Build a fast tokenizer without special tokens of its own that gives text the ids that SentencePiece gives it."""
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
