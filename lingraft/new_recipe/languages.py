"""Files of a folder that hold text, and the language of each by its name."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from lingraft.data.documents import FORMATS, TABLES
from lingraft.data.languages import canonical_code, quoted, two_letter_codes
from lingraft.data.lines import COMPRESSIONS
from lingraft.errors import TextError

_FORMATS = tuple(end for end in FORMATS if end not in TABLES)
"""Ends of files that hold text by their names; of a table only its header tells."""
_OTHER_NAMES = {"bengali": "bn"}
"""English names that files have, and that the CLDR has another one for."""
_TAG = re.compile(r"([A-Za-z]{2,3})((?:[-_](?:[A-Z][a-z]{3}|[A-Z]{2}))*)")
"""A language, and perhaps a script or region: de, swh, pt-BR, zh_Hans."""
_NO_LANGUAGES = re.compile("all|bin|dev|doc|etc|lib|log|new|old|out|raw|run|set|src|the|tmp|txt")
"""Words of three letters that name files more often than the languages that they are codes of."""
_WORDS = {"am", "an", "as", "be", "he", "id", "in", "is", "it", "my", "no", "or", "se", "so", "to"}
"""Codes that are words: inside of a longer name they say nothing."""


@dataclass(frozen=True)
class FoundText:
    """Files and folders of text in a folder, by language."""

    folder: Path
    paths: dict[str, tuple[Path, ...]]
    """Sorted files and folders by language."""
    others: Mapping[str, str]
    """Reason why a file or folder was left out, by its name."""

    @property
    def one_each(self) -> bool:
        """Whether each language is one file or folder that is called exactly as its tag: a recipe's kind 'folder'."""
        return all(len(paths) == 1 and _stem(paths[0]) == tag for tag, paths in self.paths.items())


def find_text(folder: Path) -> FoundText:
    """Find text by language in a folder: `de.txt`, `corpus.de.jsonl.gz`, `german/`, `pt_BR.parquet`, ...

    Raises:
        TextError: there is no such folder, it is a file, or it has text in fewer than two languages.
    """
    if not folder.is_dir():
        wrong = f"{folder} is a file, and not a folder" if folder.exists() else f"there is no folder {folder}"
        raise TextError(
            f"{wrong}. Give a folder with a file or folder of text for each language, such as en.jsonl and de.jsonl."
        )
    paths: dict[str, list[Path]] = {}
    others = {}
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue
        files = [inner for inner in path.rglob("*") if inner.is_file()] if path.is_dir() else [path]
        if not any(_without(file.name, COMPRESSIONS).endswith(_FORMATS) for file in files):
            others[path.name] = f"{'it holds' if path.is_dir() else 'it is'} no {', '.join(_FORMATS)} file"
        elif language := language_of(path):
            paths.setdefault(language, []).append(path)
        else:
            others[path.name] = "no language that is known is in its name"
    if len(paths) < 2:
        found = f"1 language ({quoted(paths)})" if paths else "no language"
        unclear = "".join(f" {name} was left out: {reason}." for name, reason in others.items())
        raise TextError(
            f"{folder} has text in {found} by the names of its files and folders, and a project needs two or "
            f"more: a source and a target.{unclear} Name each file or folder of text after its language: en.txt, "
            "de.jsonl.gz, pt-BR.parquet, sw/."
        )
    return FoundText(folder, {tag: tuple(found) for tag, found in sorted(paths.items())}, others)


def language_of(path: Path) -> str | None:
    """Return the BCP 47 tag of the language that a file or folder is named after; None if its name has none."""
    stem = _stem(path)
    if tag := _tag_of(stem, whole=True):
        return tag
    for separators in (r"[.\s]+", r"[.\s_-]+"):  # first without those that a tag may have, such as pt_BR
        if found := [tag for part in re.split(separators, stem) if (tag := _tag_of(part, whole=False))]:
            return found[-1]
    return None


def _tag_of(word: str, whole: bool) -> str | None:
    """Return the tag that a word is; a whole name may be a code of three letters, or one that is a word, too."""
    codes = two_letter_codes()
    names = {name.lower(): code for code, name in codes.items()} | _OTHER_NAMES
    if code := names.get(word.lower()):
        return code
    found = _TAG.fullmatch(word)
    if not found:
        return None
    code = found[1].lower()
    if len(code) == 3:
        code = canonical_code(code) if whole and not _NO_LANGUAGES.fullmatch(code) else None
    elif code not in codes or (code in _WORDS and not whole):
        code = None
    return code + found[2].replace("_", "-") if code else None


def _stem(path: Path) -> str:
    """Return a file's name without its format and compression; a folder's name."""
    return _without(path.name, (*COMPRESSIONS, *_FORMATS))


def _without(name: str, suffixes: Iterable[str]) -> str:
    for suffix in suffixes:
        name = name.removesuffix(suffix)
    return name
