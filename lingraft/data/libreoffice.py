"""Parallel texts from LibreOffice's help pages in Debian's packages, labelled by the part of the product."""

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
from pathlib import Path, PurePosixPath

from lingraft.artifacts.files import atomic_folder, cache_folder, write_text
from lingraft.artifacts.locks import folder_lock
from lingraft.data.documents import Document
from lingraft.data.lines import read_lines
from lingraft.errors import ArtifactError, TextError

_PACKAGE = "libreoffice-help-"
# Debian names its packages by LibreOffice's own language codes; these are the ones that differ.
_SUFFIXES = {"en": "en-us", "zh": "zh-cn", "zh-hans": "zh-cn", "zh-hant": "zh-tw"}
# Tags inside a paragraph; any other tag starts a new one.
_INLINE = {"a", "b", "code", "em", "i", "img", "span", "strong", "sub", "sup", "u", "br"}
_PARSER = 1
"""Version of what `PageText` extracts; a change makes cached paragraphs out of date."""
_UNSEEN = {"script", "style", "pre", "noscript", "nav"}
_OTHER_WAYS = (
    "Two other ways to bring text: --text DIR, a folder with one file or folder per language "
    "(de.txt, de.jsonl, de/); or a Hugging Face dataset in the recipe's [text] section "
    "(kind = 'huggingface', dataset = '<id>')."
)
_ADVICE = {
    "apt-get": "If apt's package lists are missing or old, as in a fresh container, bring them first: "
    "sudo apt-get update (without sudo if you are root). Languages that there are: "
    "apt-cache search libreoffice-help.",
    "dpkg-deb": "The download may be damaged, or the disk full. Try again.",
}


class PageText(HTMLParser):
    """Parser of the paragraphs that a help page shows in its <div id="DisplayArea">, with white space normalised."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.paragraphs: list[str] = []
        self._pieces: list[str] = []
        self._depth = 0
        self._unseen = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Enter the display area or an element that is not shown; most tags end a paragraph."""
        if tag == "div" and (self._depth or ("id", "DisplayArea") in attrs):
            self._depth += 1
        if tag in _UNSEEN:
            self._unseen += 1
        self._boundary(tag)

    def handle_endtag(self, tag: str) -> None:
        """Leave the display area or an element that is not shown."""
        self._boundary(tag)
        if tag == "div" and self._depth:
            self._depth -= 1
        if tag in _UNSEEN and self._unseen:
            self._unseen -= 1

    def handle_data(self, data: str) -> None:
        """Collect text that the page shows."""
        if self._depth and not self._unseen:
            self._pieces.append(data)

    def _boundary(self, tag: str) -> None:
        if tag == "br":
            self._pieces.append(" ")
        elif tag not in _INLINE:
            paragraph = " ".join("".join(self._pieces).split())
            self._pieces.clear()
            if paragraph:
                self.paragraphs.append(paragraph)


def folder_paragraphs(folder: Path) -> Mapping[str, list[str]]:
    """Return the visible paragraphs of every help page below a folder of the cache, by the page's path in it, in order.

    Pages are parsed once and kept beside the folder: every language is compared with English, and parsing takes
    seconds. A cache that cannot be written is only read.

    Raises:
        TextError: a page cannot be read or is not UTF-8.
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

    Raises:
        TextError: the page cannot be read or is not UTF-8.
    """
    parser = PageText()
    parser.feed("".join(f"{line}\n" for line in read_lines(page)))
    parser.close()
    return parser.paragraphs


def help_documents(language: str, dropped: Counter[str]) -> Iterator[Document]:
    """Yield every help page in a language, blank ones too; `dropped` counts paragraphs left out, by reason.

    A paragraph that occurred on the page before is left out. So is one that is equal to a paragraph of the English
    page, as it is not translated yet, except for varieties of English.

    Raises:
        TextError: the pages are not in the cache, and apt cannot download them.
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

    Raises:
        TextError: no package for the language, no apt-get or dpkg-deb, either of them fails, or the cache
            cannot be written.
    """
    package = _PACKAGE + _SUFFIXES.get(language.lower(), language.lower())
    try:
        cache = cache_folder("libreoffice-help")
        cache.mkdir(parents=True, exist_ok=True)
        if found := _find_cached(cache, package):
            return found
        with folder_lock(cache / package, wait=True):
            return _find_cached(cache, package) or _download(cache, package)
    except (OSError, RuntimeError) as error:
        raise TextError(
            f"the cache for {package} cannot be used: {error}. Set LINGRAFT_CACHE to a folder that you may write to."
        ) from error


def _find_cached(cache: Path, package: str) -> Path | None:
    return next(iter(sorted(cache.glob(f"{package}_*"), reverse=True)), None)


def _download(cache: Path, package: str) -> Path:
    with tempfile.TemporaryDirectory(dir=cache, prefix=".") as temporary:
        work = Path(temporary)
        _run(["apt-get", "download", package], work, package)
        archive = _only(work, f"{package}_*.deb", package)
        _run(["dpkg-deb", "-x", archive.name, "unpacked"], work, package)
        text = _only(work, "unpacked/usr/share/libreoffice/help/*/text", package)
        folder = cache / archive.stem
        with atomic_folder(folder) as fresh:
            for part in text.iterdir():
                shutil.move(part, fresh)
    return folder


def _run(command: list[str], folder: Path, package: str) -> None:
    tool = command[0]
    if shutil.which(tool) is None:
        raise _failure(package, f"{tool} is not installed here.")
    environment = {**os.environ, "LC_ALL": "C"}
    done = subprocess.run(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    if done.returncode:
        tail = " ".join(done.stderr.decode(errors="replace").splitlines()[-5:])
        raise _failure(package, f"{tool} failed with {done.returncode}: {tail}. {_ADVICE[tool]}")


def _only(folder: Path, pattern: str, package: str) -> Path:
    found = list(folder.glob(pattern))
    if len(found) != 1:
        raise _failure(package, f"the download holds {len(found)} of {pattern} instead of one.")
    return found[0]


def _failure(package: str, reason: str) -> TextError:
    return TextError(f"LibreOffice's help pages (Debian package {package}) cannot be brought: {reason} {_OTHER_WAYS}")
