"""Which files of a folder hold text, and in which language each is by its name."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from lingraft.data.languages import canonical_code, quoted
from lingraft.data.lines import COMPRESSIONS
from lingraft.errors import TextError

_FORMATS = (".txt", ".jsonl", ".parquet")
_ISO_639_1 = (
    "aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee el en "
    "eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it iu ja jv "
    "ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne "
    "ng nl nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg sh si sk sl sm sn so sq sr ss "
    "st su sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu"
)
_NAMES = {
    "afrikaans": "af", "albanian": "sq", "amharic": "am", "arabic": "ar", "armenian": "hy", "azerbaijani": "az",
    "basque": "eu", "belarusian": "be", "bengali": "bn", "bosnian": "bs", "bulgarian": "bg", "burmese": "my",
    "catalan": "ca", "chinese": "zh", "croatian": "hr", "czech": "cs", "danish": "da", "dutch": "nl", "english": "en",
    "estonian": "et", "finnish": "fi", "french": "fr", "galician": "gl", "georgian": "ka", "german": "de",
    "greek": "el", "gujarati": "gu", "hausa": "ha", "hebrew": "he", "hindi": "hi", "hungarian": "hu",
    "icelandic": "is", "igbo": "ig", "indonesian": "id", "irish": "ga", "italian": "it", "japanese": "ja",
    "javanese": "jv", "kannada": "kn", "kazakh": "kk", "khmer": "km", "korean": "ko", "lao": "lo", "latvian": "lv",
    "lithuanian": "lt", "macedonian": "mk", "malay": "ms", "malayalam": "ml", "maltese": "mt", "marathi": "mr",
    "mongolian": "mn", "nepali": "ne", "norwegian": "no", "persian": "fa", "polish": "pl", "portuguese": "pt",
    "punjabi": "pa", "romanian": "ro", "russian": "ru", "serbian": "sr", "sinhala": "si", "slovak": "sk",
    "slovenian": "sl", "somali": "so", "spanish": "es", "swahili": "sw", "swedish": "sv", "tagalog": "tl",
    "tamil": "ta", "telugu": "te", "thai": "th", "turkish": "tr", "ukrainian": "uk", "urdu": "ur", "uzbek": "uz",
    "vietnamese": "vi", "welsh": "cy", "xhosa": "xh", "yoruba": "yo", "zulu": "zu",
}  # fmt: skip
_TAG = re.compile(r"([A-Za-z]{2,3})((?:[-_](?:[A-Z][a-z]{3}|[A-Z]{2}))*)")
"""A language, and perhaps a script or region: de, swh, pt-BR, zh_Hans."""
_NO_LANGUAGES = frozenset(
    {
        "all",
        "bin",
        "dev",
        "doc",
        "etc",
        "lib",
        "log",
        "new",
        "old",
        "out",
        "raw",
        "run",
        "set",
        "src",
        "the",
        "tmp",
        "txt",
    }
)
"""Words of three letters that name files more often than the languages that they are codes of."""
_WORDS = frozenset({"am", "an", "as", "be", "he", "id", "in", "is", "it", "my", "no", "or", "se", "so", "to"})
"""Codes that are words: inside of a longer name they say nothing."""


@dataclass(frozen=True)
class FoundText:
    """Files and folders of text in a folder, by language."""

    folder: Path
    paths: dict[str, tuple[Path, ...]]
    """By language; sorted within each."""
    others: Mapping[str, str]
    """What was left out by name, each with the reason."""

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
        if not _holds_text(path):
            others[path.name] = f"{'it holds' if path.is_dir() else 'it is'} no {', '.join(_FORMATS)} file"
        elif language := language_of(path):
            paths.setdefault(language, []).append(path)
        else:
            others[path.name] = "no language that is known is in its name"
    if len(paths) < 2:
        counted = "1 language" if len(paths) == 1 else "no language"
        named = f" ({quoted(paths)})" if paths else ""
        unclear = "".join(f" {name} was left out: {reason}." for name, reason in others.items())
        raise TextError(
            f"{folder} has text in {counted}{named} by the names of its files and folders, and a project needs two or "
            f"more: a source and a target.{unclear} Name each file or folder of text after its language: en.txt, "
            "de.jsonl.gz, pt-BR.parquet, sw/."
        )
    return FoundText(folder, {tag: tuple(found) for tag, found in sorted(paths.items())}, others)


def language_of(path: Path) -> str | None:
    """BCP 47 tag of the language that a file or folder is named after; None if there is none in its name."""
    stem = _stem(path)
    if tag := _tag_of(stem, whole=True):
        return tag
    for separators in (r"[.\s]+", r"[.\s_-]+"):  # first without those that a tag may have, such as pt_BR
        if found := [tag for part in re.split(separators, stem) if (tag := _tag_of(part, whole=False))]:
            return found[-1]
    return None


def _tag_of(word: str, whole: bool) -> str | None:
    """The tag that a word is.

    Args:
        word: a name, or a part of one.
        whole: whether it is a whole name, which may be a code of three letters, or one that is a word, too.
    """
    if name := _NAMES.get(word.lower()):
        return name
    found = _TAG.fullmatch(word)
    if not found:
        return None
    language = found[1].lower()
    code: str | None = None
    if language in _ISO_639_1.split() and (whole or language not in _WORDS):
        code = language
    elif whole and len(language) == 3 and language not in _NO_LANGUAGES:
        code = canonical_code(language)
    return code + found[2].replace("_", "-") if code else None


def _stem(path: Path) -> str:
    """A file's name without its format and compression; a folder's name."""
    name = path.name
    for suffix in (*COMPRESSIONS, *_FORMATS):
        name = name.removesuffix(suffix)
    return name


def _holds_text(path: Path) -> bool:
    return any(_is_text(inner) for inner in _files(path))


def _files(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield from (inner for inner in path.rglob("*") if inner.is_file())
    else:
        yield path


def _is_text(path: Path) -> bool:
    name = path.name
    for suffix in COMPRESSIONS:
        name = name.removesuffix(suffix)
    return name.endswith(_FORMATS)
