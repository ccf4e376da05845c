"""Paragraphs of pages: HTML without its tags, and Markdown, which is read as the HTML that it stands for."""

import codecs
import re
from collections.abc import Collection
from html.parser import HTMLParser

from typing_extensions import override

from lingraft.artifacts.storage import TextPath
from lingraft.data.lines import read_bytes
from lingraft.errors import TextError

_PAGE_BYTES = 1 << 24
_INLINE = {
    "a", "abbr", "acronym", "b", "bdi", "bdo", "big", "br", "cite", "code", "data", "del", "dfn", "em", "font", "i",
    "img", "ins", "kbd", "label", "mark", "q", "rp", "rt", "ruby", "s", "samp", "small", "span", "strike", "strong",
    "sub", "sup", "time", "tt", "u", "var", "wbr",
}  # fmt: skip
"""Elements inside a paragraph; any other one starts a new paragraph."""
_UNSEEN = frozenset({"script", "style", "noscript", "template", "svg"})
_SOFT_HYPHEN = "\N{SOFT HYPHEN}"
_BYTE_ORDER_MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
_HEAD_BYTES = 1024
_DECLARED = re.compile(rb"""(?:<meta[^>]*?charset|<\?xml[^>]*?encoding)\s*=\s*["']?\s*([\w.:-]+)""", re.IGNORECASE)
_MEANT = {
    "ascii": "cp1252", "iso8859-1": "cp1252", "iso8859-9": "cp1254", "tis-620": "cp874", "gb2312": "gb18030",
    "gbk": "gb18030", "shift_jis": "cp932", "euc_kr": "cp949", "utf-16": "utf-8", "utf-16-le": "utf-8",
    "utf-16-be": "utf-8",
}  # fmt: skip
"""Encodings that browsers read in place of those that pages declare (https://encoding.spec.whatwg.org, 4.2)."""
_FRONT_MATTER = re.compile(r"\A(---|\+\+\+)[ \t]*\n.*?^(\1|\.\.\.)[ \t]*$", re.DOTALL | re.MULTILINE)


class PageParser(HTMLParser):
    """Parser of the paragraphs that a page shows, with white space normalised; those of `pre` are its lines.

    Program listings, `code` within `pre`, are not read.
    """

    def __init__(self, unseen: Collection[str] = _UNSEEN) -> None:
        """Create the parser; the content of `unseen` elements is left out."""
        super().__init__(convert_charrefs=True)
        self.paragraphs: list[str] = []
        self._elements_unseen = unseen
        self._pieces: list[str] = []
        self._unseen = self._preformatted = 0

    @property
    def shows(self) -> bool:
        """Whether the page shows text that stands here."""
        return not self._unseen

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._boundary(tag)
        self._preformatted += tag == "pre"
        self._unseen += self._hides(tag)

    @override
    def handle_endtag(self, tag: str) -> None:
        self._boundary(tag)
        if self._unseen:
            self._unseen -= self._hides(tag)
        if self._preformatted:
            self._preformatted -= tag == "pre"

    @override
    def handle_data(self, data: str) -> None:
        if self.shows:
            self._pieces.append(data.replace(_SOFT_HYPHEN, ""))

    @override
    def close(self) -> None:
        super().close()
        self._boundary("html")

    @override
    def parse_marked_section(self, i: int, report: int = 1) -> int:
        # Python's own fails at those that it does not know; to browsers all are comments.
        return self.parse_bogus_comment(i)

    def _hides(self, tag: str) -> bool:
        return tag in self._elements_unseen or (tag == "code" and self._preformatted > 0)

    def _boundary(self, tag: str) -> None:
        if tag == "br":
            self._pieces.append("\n" if self._preformatted else " ")
        elif tag not in _INLINE:
            text = "".join(self._pieces)
            self._pieces.clear()
            lines = text.split("\n") if self._preformatted else [text]
            self.paragraphs += [" ".join(line.split()) for line in lines if line.strip()]


def html_paragraphs(path: TextPath) -> list[str]:
    """Return the paragraphs of an HTML page of 16 MiB or less.

    Its encoding is that of its byte order mark, else what it declares in its first 1,024 bytes, else UTF-8.
    """
    return _parse(_decode(read_bytes(path, _PAGE_BYTES), path))


def markdown_paragraphs(path: TextPath) -> list[str]:
    """Return the paragraphs of a Markdown page of 16 MiB or less, without front matter and program listings."""
    from markdown_it import MarkdownIt  # lazy: few texts are Markdown

    try:
        text = read_bytes(path, _PAGE_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TextError(f"{path} is not UTF-8 ({error}). Convert it first, for example with iconv.") from error
    text = _FRONT_MATTER.sub("", text.replace("\r\n", "\n"), count=1)
    return _parse(MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(text))


def _parse(page: str) -> list[str]:
    parser = PageParser()
    parser.feed(page)
    parser.close()
    return parser.paragraphs


def _decode(raw: bytes, path: TextPath) -> str:
    mark = next((mark for mark in _BYTE_ORDER_MARKS if raw.startswith(mark)), b"")
    declared = _DECLARED.search(raw[:_HEAD_BYTES])
    try:
        encoding = _BYTE_ORDER_MARKS[mark] if mark else _meant(declared[1].decode("ascii") if declared else "utf-8")
        return raw.removeprefix(mark).decode(encoding)
    except UnicodeDecodeError as error:
        at = error.start + len(mark)
        raise TextError(
            f"{path} is not {error.encoding}, which it {'declares' if declared or mark else 'is read as'}: byte "
            f'{at + 1} is 0x{raw[at]:02x}. Declare its encoding by <meta charset="...">, or convert it to UTF-8.'
        ) from error
    except LookupError as error:
        raise TextError(f"{path} declares an encoding that nobody knows: {error}. Convert it to UTF-8.") from error


def _meant(declared: str) -> str:
    name = codecs.lookup(declared).name
    return _MEANT.get(name, name)
