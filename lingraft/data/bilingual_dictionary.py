"""Word pairs of bilingual dictionaries, in the layouts that they are published in.

- Word lists such as MUSE's: a word and its translation a line, with one tab or one space between them.
- FreeDict: dictd's format, an .index of headwords and a .dict or .dict.dz of entries, as Debian's `dict-freedict-*`
  packages have them in /usr/share/dictd. `apt:dict-freedict-eng-deu` is that of a package, which is downloaded.

The words of a pair come in the order of the file, whichever language that begins with.
"""

import binascii
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from gzip import GzipFile
from pathlib import PurePosixPath

from lingraft.artifacts.files import sha256_of
from lingraft.artifacts.storage import TextPath, explain_read_errors, list_names, parse_path
from lingraft.config.recipe import Recipe
from lingraft.config.translations import ParallelText
from lingraft.data.debian import package_folder
from lingraft.data.lines import read_lines
from lingraft.data.pair_columns import Languages, column_names, find_sides
from lingraft.data.parallel_text import Pair, PairOrError, filter_pairs
from lingraft.errors import LingraftError, TextError, raise_errors

_INDEX, _ENTRIES = ".index", (".dict.dz", ".dict")
_PACKAGE = "apt:"
_ZERO, _MOST_DIGITS = "A", 12
"""The digit 0 of dictd's numbers, which are in base 64, and how many digits they have at most."""
_ABOUT_THE_DATABASE = re.compile(r"00-?database")
_PRONUNCIATION = re.compile(r"\s/\S.*")
"""Pronunciation between slashes, and an abbreviation with its own pronunciation behind it."""
_ASIDE = re.compile(r"<[^<>]*>|\[[^\[\]]*\]|\([^()]*\)|\{[^{}]*\}")
_PLACEHOLDER = re.compile(r"(?<!\w)(sb|sth|jd[mns]?|etw)\.('s)?")
"""Placeholders for someone or something in FreeDict's German dictionaries."""
_NO_TRANSLATION = re.compile(r'\s*(["“„«]|[A-Za-z]++:)')
"""Beginning of a line without a translation, such as "Synonyms: ...", "see: ..." or a quoted example."""
_SENSE = re.compile(r"\s*\d+\.\s")
_BETWEEN = re.compile("[,;،؛、，；]")
_ALTERNATIVE = re.compile(r"\s*/\s*\S+")
_BRACKET = re.compile(r"[<\[({]")
_AROUND = ' .!?:"“”„«»'


def read_word_pairs(file: str, languages: Languages, left_out: Counter[str] | None = None) -> Iterator[Pair]:
    """Yield a dictionary's word pairs, each once, in the order of the file."""
    counts = Counter[str]() if left_out is None else left_out
    return filter_pairs(raise_errors(word_pairs_or_errors(file, languages, counts)), file, counts)


def translation_hashes(recipe: Recipe, language: str) -> dict[str, str]:
    """Return the SHA-256 of the files of [alignment] that a language is aligned by, under "translations".

    As below, the result is empty if there are none.
    """
    words = recipe.alignment.dictionary.get(language)
    if not recipe.adaptation.initialisation.needs_text:
        return {}
    if language in recipe.alignment.parallel or words is None:
        return parallel_hashes(recipe, language)
    place = _place(words)
    return _hash_files(_find_freedict_files(place) if _is_freedict(place) else [place])


def parallel_hashes(recipe: Recipe, language: str) -> dict[str, str]:
    """Return the hash of the sentences of [alignment] that a language may learn from."""
    sentences = recipe.alignment.parallel.get(language)
    return {} if sentences is None else hash_parallel(sentences)


def learned_hashes(recipe: Recipe, language: str) -> dict[str, str]:
    """Return the hash of the sentences that a language's tokenizer, rows or adaptation learn from."""
    return parallel_hashes(recipe, language) if recipe.learned_pairs(language) else {}


def judged_hashes(recipe: Recipe, language: str) -> dict[str, str]:
    """Return the hash of the sentences of [alignment] that a language's alignment is measured over."""
    judged = recipe.alignment.judged.get(language)
    return parallel_hashes(recipe, language) if judged is None else hash_parallel(judged)


def pair_hashes(recipe: Recipe, language: str) -> dict[str, str]:
    """Return the hash of the sentences that a language's adaptation learns from, under "pairs"."""
    if recipe.adaptation.pairs is None:
        return {}
    return {"pairs": parallel_hashes(recipe, language).get("translations", "")}


def hash_parallel(files: ParallelText) -> dict[str, str]:
    """Return the SHA-256 of parallel text, under "translations"."""
    return _hash_files([parse_path(name) for name in ([files] if isinstance(files, str) else files)])


def _place(file: str) -> TextPath:
    """Return where a dictionary is; one of a Debian package is downloaded if it is not there yet."""
    if file.startswith(_PACKAGE):
        return package_folder(file.removeprefix(_PACKAGE), "usr/share/dictd", "dictionaries")
    return parse_path(file)


def _hash_files(places: Iterable[TextPath]) -> dict[str, str]:
    hashes = ""
    for place in places:
        with explain_read_errors(place):
            hashes += sha256_of(place)
    return {"translations": hashlib.sha256(hashes.encode()).hexdigest()}


def word_pairs_or_errors(file: str, languages: Languages, left_out: Counter[str]) -> Iterator[PairOrError]:
    """Yield all word pairs, including those with an empty side, and an error for each line that is no pair."""
    try:
        place = _place(file)
        if _is_freedict(place):
            yield from _read_freedict(*_find_freedict_files(place))
        else:
            yield from _read_text(place, languages, left_out)
    except LingraftError as error:
        yield error


def _read_text(place: TextPath, languages: Languages, left_out: Counter[str]) -> Iterator[PairOrError]:
    for number, line in enumerate(read_lines(place), start=1):
        at = f"{place}, line {number}"
        if not line.strip():
            yield Pair("", "", at)
            continue
        words = line.split("\t") if "\t" in line else line.split()
        if len(words) != 2:
            yield TextError(
                f"{at}: {line[:80]!r} is no pair of a word and its translation with a tab between them, or a space if "
                "neither has one. Correct the line, or remove it."
            )
        elif number == 1 and find_sides((words[0], words[1]), languages):
            left_out[column_names((words[0], words[1]))] += 1
        else:
            yield Pair(words[0].strip(), words[1].strip(), at)


def _is_freedict(place: TextPath) -> bool:
    return str(place).endswith((_INDEX, *_ENTRIES)) or place.is_dir()


def _find_freedict_files(place: TextPath) -> tuple[TextPath, TextPath]:
    """Return the index file and the entries file of a dictionary, given either of them or their folder."""
    path = PurePosixPath(str(place))
    if not place.is_dir():
        folder, names = parse_path(str(place).removesuffix(path.name).rstrip("/") or "."), [path.name]
    else:
        folder, names = place, list_names(place)
    stems = sorted({_stem(name) for name in names if _stem(name) != name})
    if len(stems) != 1:
        raise TextError(
            f"{place} holds {len(stems)} dictionaries of dictd, {stems}, instead of one. Name the .index file of one."
        )
    there = list_names(folder)
    entries = [f"{stems[0]}{suffix}" for suffix in _ENTRIES if f"{stems[0]}{suffix}" in there]
    if f"{stems[0]}{_INDEX}" not in there or not entries:
        raise TextError(
            f"{folder} must hold {stems[0]}{_INDEX} and {stems[0]}{_ENTRIES[0]} (or {_ENTRIES[1]}), but one is not "
            "there. Copy both files of the dictionary."
        )
    return folder / f"{stems[0]}{_INDEX}", folder / entries[0]


def _stem(name: str) -> str:
    for suffix in (_INDEX, *_ENTRIES):
        name = name.removesuffix(suffix)
    return name


def _read_freedict(index: TextPath, entries: TextPath) -> Iterator[PairOrError]:
    with explain_read_errors(entries), entries.open("rb") as stream:
        try:
            raw = GzipFile(fileobj=stream).read() if entries.suffix == ".dz" else stream.read()
        except EOFError as error:
            raise TextError(f"{entries} is truncated: {error}. Copy or download it again.") from error
    done: set[int] = set()
    name = str(index)
    for number, line in enumerate(read_lines(index), start=1):
        headword, *places = line.split("\t")
        if _ABOUT_THE_DATABASE.match(headword):
            continue
        at = f"{name}, line {number}"
        try:
            start, length = map(_decode_number, places[:2])
            if not length or start + length > len(raw):
                raise ValueError("the entry lies behind the end")
            # Several headwords may share an entry.
            if start not in done:
                done.add(start)
                yield from _parse_entry(raw[start : start + length].decode("utf-8"), at)
        except ValueError as error:
            yield TextError(f"{at}: {line[:80]!r} points at no entry of {entries} ({error}). Copy both files again.")


def _decode_number(text: str) -> int:
    """Return a number of dictd's index: digits of base 64, the most significant first."""
    try:
        return int.from_bytes(binascii.a2b_base64(text.rjust(_MOST_DIGITS, _ZERO), strict_mode=True), "big")
    except ValueError as error:
        raise ValueError(f"{text!r} is no number of dictd's") from error


def _parse_entry(text: str, at: str) -> list[Pair]:
    """Return the pairs of an entry: a headword with its pronunciation, then lines of translations, perhaps numbered."""
    head, *lines = text.strip().splitlines() or [""]
    translations = [
        word
        for line in lines
        if not _NO_TRANSLATION.match(line)
        for word in _split_words(_SENSE.sub("", f"{line} ").lstrip(" .") if "." in line else line)
    ]
    words = _split_words(_PRONUNCIATION.sub("", head))
    return [Pair(word, translation, at) for word in words or [""] for translation in translations or [""]]


def _split_words(listed: str) -> list[str]:
    """Return the words or phrases of a comma-separated list; of alternatives such as "a/b c", the first: "a c"."""
    plain = _strip_asides(listed).replace("\N{HYPHEN}", "-").replace("\N{NON-BREAKING HYPHEN}", "-")
    # Most lists are one plain word: what they have no sign of is not looked for.
    if "/" in plain:
        plain = _ALTERNATIVE.sub("", plain)
    if "." in plain:
        # What follows a full stop is an idiom or a derived word with its translation.
        plain = _PLACEHOLDER.sub("", plain).split(". ")[0]
    return [word for each in _BETWEEN.split(plain) if (word := " ".join(each.split()).strip(_AROUND))]


def _strip_asides(text: str) -> str:
    found = 1
    while found and _BRACKET.search(text):
        text, found = _ASIDE.subn(" ", text)
    return text
