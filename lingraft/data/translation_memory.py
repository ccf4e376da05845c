"""Translation units of TMX files (Translation Memory eXchange 1.4), streamed.

https://www.gala-global.org/tmx-14b. Neither external entities nor the document type are read.
"""

from collections.abc import Iterator
from html.entities import html5
from typing import NamedTuple
from xml.etree import ElementTree

from lingraft.artifacts.storage import TextPath
from lingraft.data.lines import opened
from lingraft.errors import TextError

_CODES = {"bpt", "ept", "it", "ph", "ut"}
"""Elements within a segment that hold native codes of a document, and no text."""
_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"


class TranslationUnit(NamedTuple):
    """A unit: texts that are each other's translations."""

    number: int
    texts: dict[str, str]
    """Text by the language's tag, as it stands in the file; the first of each."""


def translation_units(path: TextPath) -> Iterator[TranslationUnit]:
    """Yield the units of a file, in memory for one of them."""
    parser = ElementTree.XMLParser()
    # A character of HTML, such as &nbsp;, is what it is there: the document type is not read.
    parser.entity.update({name.removesuffix(";"): text for name, text in html5.items()})
    number = 0
    try:
        with opened(path) as stream:
            events = ElementTree.iterparse(stream, ("start", "end"), parser)
            if (root := next(events)[1]).tag != "tmx":
                raise TextError(f"{path}: the file is <{root.tag}>, and not <tmx>. Export it as TMX.")
            body = root
            for event, element in events:
                if element.tag == "body":
                    body = element
                elif event == "end" and element.tag == "tu":
                    number += 1
                    yield TranslationUnit(number, _texts(element))
                    body.clear()
    # Of encodings that expat does not know or cannot read, it raises the second and the third.
    except (ElementTree.ParseError, LookupError, ValueError, RecursionError) as error:
        raise TextError(f"{path} is damaged or no TMX: {error}. Export or fetch it again.") from error


def _texts(unit: ElementTree.Element) -> dict[str, str]:
    texts: dict[str, str] = {}
    for variant in unit.iter("tuv"):
        language = variant.get(_LANGUAGE) or variant.get("lang") or ""
        for segment in variant.iter("seg"):
            texts.setdefault(language, " ".join(_text(segment).split()))
    return texts


def _text(element: ElementTree.Element) -> str:
    parts = [(_text(child) if child.tag not in _CODES else "") + (child.tail or "") for child in element]
    return "".join([element.text or "", *parts])
