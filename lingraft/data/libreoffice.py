"""Parallel texts from LibreOffice's help pages in Debian's packages, labelled by the part of the product."""

import contextlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from typing_extensions import override

from lingraft.artifacts.files import write_text
from lingraft.data.debian import package_folder
from lingraft.data.documents import Document
from lingraft.data.lines import read_lines
from lingraft.data.pages import PageParser
from lingraft.errors import ArtifactError, TextError

_PACKAGE = "libreoffice-help-"
# Debian names its packages by LibreOffice's own language codes; these are the ones that differ.
_SUFFIXES = {"en": "en-us", "zh": "zh-cn", "zh-hans": "zh-cn", "zh-hant": "zh-tw"}
_PARSER = 2
"""Version of what `PageText` extracts; a change makes cached paragraphs out of date."""
_UNSEEN = {"script", "style", "pre", "noscript", "nav"}
_OTHER_WAYS = (
    "Two other ways to bring text: --text DIR, a folder with one file or folder per language "
    "(de.txt, de.jsonl, de/); or a Hugging Face dataset in the recipe's [text] section "
    "(kind = 'huggingface', dataset = '<id>'). Languages that there are: apt-cache search libreoffice-help."
)


class PageText(PageParser):
    """Parser of the paragraphs that a help page shows in its <div id="DisplayArea">, with white space normalised."""

    def __init__(self) -> None:
        super().__init__(_UNSEEN)
        self._depth = 0

    @property
    @override
    def shows(self) -> bool:
        return super().shows and self._depth > 0

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        super().handle_starttag(tag, attrs)
        if tag == "div" and (self._depth or ("id", "DisplayArea") in attrs):
            self._depth += 1

    @override
    def handle_endtag(self, tag: str) -> None:
        super().handle_endtag(tag)
        if tag == "div" and self._depth:
            self._depth -= 1


def folder_paragraphs(folder: Path) -> Mapping[str, list[str]]:
    """Return the visible paragraphs of every help page below a folder of the cache, by the page's path in it, in order.

    Pages are parsed once and kept beside the folder: every language is compared with English, and parsing takes
    seconds. A cache that cannot be written is only read.
    """
    kept = folder.with_name(f".{folder.name}.paragraphs-{_PARSER}.json")
    if kept.is_file():
        found: dict[str, list[str]] = json.loads(kept.read_text(encoding="utf-8"))
        return found
    pages = sorted(folder.rglob("*.html"))
    found = {page.relative_to(folder).as_posix(): page_paragraphs(page) for page in pages}
    with contextlib.suppress(ArtifactError):
        write_text(kept, json.dumps(found, ensure_ascii=False))
    return found


def page_paragraphs(page: Path) -> list[str]:
    """Return the visible paragraphs of a help page, in order, including repetitions.

    Program listings are left out: they are the same in every language.
    """
    parser = PageText()
    parser.feed("".join(f"{line}\n" for line in read_lines(page)))
    parser.close()
    return parser.paragraphs


def help_documents(language: str, dropped: Counter[str]) -> Iterator[Document]:
    """Yield every help page in a language, blank ones too; `dropped` counts paragraphs left out, by reason.

    A paragraph that occurred on the page before is left out. So is one that is equal to a paragraph of the English
    page, as it is not translated yet, except for varieties of English.
    """
    pages = help_folder(language)
    original = {} if language.split("-")[0] == "en" else folder_paragraphs(help_folder("en"))
    for name, paragraphs in folder_paragraphs(pages).items():
        path, english = PurePosixPath(name), {*original.get(name, ())}
        kept: dict[str, None] = {}
        for paragraph in paragraphs:
            if paragraph in english:
                dropped["untranslated paragraph"] += 1
            elif paragraph in kept:
                dropped["repeated paragraph"] += 1
            else:
                kept[paragraph] = None
        yield Document(path.with_suffix("").as_posix(), "\n".join(kept), path.parts[0], str(pages / name))


def help_folder(language: str) -> Path:
    """Return the folder of a language's pages in the cache; apt-get downloads them if they are not there yet.

    The cache is $LINGRAFT_CACHE, or lingraft/ in the user's cache folder ($XDG_CACHE_HOME or ~/.cache).
    """
    package = _PACKAGE + _SUFFIXES.get(language.lower(), language.lower())
    try:
        return package_folder(package, "usr/share/libreoffice/help/*/text", "libreoffice-help")
    except TextError as error:
        raise TextError(f"LibreOffice's help pages cannot be read. {error} {_OTHER_WAYS}") from error
