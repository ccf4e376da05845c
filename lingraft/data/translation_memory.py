"""Translation units of TMX files (Translation Memory eXchange 1.4), streamed.

https://www.gala-global.org/tmx-14b. Neither external entities nor the document type are read, and a file that declares
entities is refused.
"""

import html
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NoReturn
from xml.parsers import expat

from lingraft.artifacts.storage import TextPath
from lingraft.data.lines import unpacked
from lingraft.errors import TextError

_CODES = {"bpt", "ept", "it", "ph", "ut"}
"""Elements within a segment that hold native codes of a document, and no text."""
_MOST_CHARACTERS = 1 << 20
"""Most characters of a unit, and most bytes of a tag."""


@dataclass(frozen=True)
class TranslationUnit:
    """A unit: texts that are each other's translations."""

    line: int
    texts: dict[str, str] = field(default_factory=dict)
    """Text by the language's tag, as it stands in the file; the first of each."""


def translation_units(path: TextPath) -> Iterator[TranslationUnit]:
    """Yield the units of a file, in memory for one of them."""
    reader = _Reader(path)
    for chunk in unpacked(path):
        yield from reader.read(chunk, last=False)
    yield from reader.read(b"", last=True)


class _Reader:
    def __init__(self, path: TextPath) -> None:
        self._path = path
        self._done: list[TranslationUnit] = []
        self._unit = TranslationUnit(0)
        self._language = ""
        self._pieces: list[str] | None = None
        """Text of the segment that is open."""
        self._codes = self._characters = self._read_bytes = 0
        self._root = ""
        self._parser = expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._data
        self._parser.EntityDeclHandler = self._refuse_entity
        self._parser.SkippedEntityHandler = self._skipped

    def read(self, chunk: bytes, last: bool) -> list[TranslationUnit]:
        try:
            self._parser.Parse(chunk, last)
        except TextError:
            raise
        # Of encodings that expat does not know or cannot read, it raises these.
        except (expat.ExpatError, LookupError, ValueError) as error:
            raise TextError(f"{self._path} is damaged or no TMX: {error}. Export or fetch it again.") from error
        self._read_bytes += len(chunk)
        if self._read_bytes - self._parser.CurrentByteIndex > _MOST_CHARACTERS + len(chunk):
            self._refuse("a tag has more than 1 MiB. Check that the file is TMX")
        done, self._done = self._done, []
        return done

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if not self._root:
            self._root = name
            if name != "tmx":
                self._refuse(f"the file is <{name}>, and not <tmx>. Export it as TMX")
        if name == "tu":
            self._unit, self._characters = TranslationUnit(self._parser.CurrentLineNumber), 0
        elif name == "tuv":
            self._language = attributes.get("xml:lang") or attributes.get("lang") or ""
        elif name == "seg":
            self._pieces, self._codes = [], 0
        elif self._codes or name in _CODES:
            self._codes += 1

    def _end(self, name: str) -> None:
        if name == "tu":
            self._done.append(self._unit)
        elif name == "seg" and self._pieces is not None:
            self._unit.texts.setdefault(self._language, " ".join("".join(self._pieces).split()))
            self._pieces = None
        elif self._codes:
            self._codes -= 1

    def _data(self, text: str) -> None:
        if self._pieces is None or self._codes:
            return
        self._characters += len(text)
        if self._characters > _MOST_CHARACTERS:
            self._refuse(f"the unit has more than {_MOST_CHARACTERS:,} characters. Divide it into sentences")
        self._pieces.append(text)

    def _skipped(self, name: str, is_parameter: bool) -> None:
        """Take a character of HTML, such as &nbsp;, for what it is there: its document type is not read."""
        if is_parameter:
            return
        text = html.unescape(f"&{name};")
        if text == f"&{name};":
            self._refuse(f"nobody knows the entity {text}. Write the character itself")
        self._data(text)

    def _refuse_entity(self, name: str, *_: object) -> None:
        self._refuse(f"the file declares an entity, {name!r}, and those are not read. Export it without any")

    def _refuse(self, reason: str) -> NoReturn:
        raise TextError(f"{self._path}, line {self._parser.CurrentLineNumber}: {reason}.")
