"""Paragraphs of HTML and Markdown pages."""

import gzip
from pathlib import Path

import pytest

from lingraft.data import pages
from lingraft.data.pages import html_paragraphs, markdown_paragraphs
from lingraft.errors import TextError


def html(folder: Path, page: bytes | str) -> list[str]:
    (folder / "page.html").write_bytes(page if isinstance(page, bytes) else page.encode())
    return html_paragraphs(folder / "page.html")


def markdown(folder: Path, page: str) -> list[str]:
    (folder / "page.md").write_bytes(page.encode())
    return markdown_paragraphs(folder / "page.md")


def test_a_page_gives_what_it_shows_in_paragraphs(tmp_path: Path) -> None:
    page = """<!DOCTYPE html><html><head><title>Die Mühle</title><style>p { color: red }</style>
        <script>if (1 < 2) document.write("<p>nein</p>");</script></head><body><!-- <p>nein</p> -->
        <h1>Die <em>alte</em> Mühle</h1><p>Am Fluss&nbsp;&amp; am
        See&#33;<p>Ge<b>trei</b>de<br>mahlen, Was&shy;ser</p>
        <ul><li>eins<li>zwei</ul><table><tr><td>a</td><td>b &lt; c</td></tr></table>
        <pre>Zeile  eins
Zeile zwei</pre><pre><code>print("nein")</code></pre><![if !mso]>Ende<![endif]><![x[y]]>.</body></html>"""
    assert html(tmp_path, page) == [
        "Die Mühle",
        "Die alte Mühle",
        "Am Fluss & am See!",
        "Getreide mahlen, Wasser",
        "eins",
        "zwei",
        "a",
        "b < c",
        "Zeile eins",
        "Zeile zwei",
        "Ende.",
    ]


@pytest.mark.parametrize(
    ("head", "encoding"),
    [
        ("", "utf-8"),
        ("", "utf-8-sig"),
        ("", "utf-16"),
        ('<meta charset="utf-8">', "utf-8-sig"),
        ('<meta charset="iso-8859-1">', "cp1252"),
        ("<META CHARSET=Windows-1254>", "cp1254"),
        ('<meta http-equiv="Content-Type" content="text/html; charset=ISO-8859-9">', "iso8859-9"),
        ('<?xml version="1.0" encoding="iso-8859-15"?>', "iso8859-15"),
    ],
)
def test_a_page_is_decoded_as_it_declares(tmp_path: Path, head: str, encoding: str) -> None:
    assert html(tmp_path, f"{head}<p>„Grüße“</p>".replace("„", "").replace("“", "").encode(encoding)) == ["Grüße"]


def test_quotation_marks_of_windows_are_read_in_pages_that_declare_latin_1(tmp_path: Path) -> None:
    assert html(tmp_path, b'<meta charset="latin1"><p>\x84ja\x93</p>') == ["„ja“"]


@pytest.mark.parametrize(
    ("page", "message"),
    [
        (b"<p>Gr\xfc\xdfe</p>", r"page\.html is not utf-8, which it is read as: byte 6 is 0xfc. Declare its encoding"),
        (b'<meta charset="utf-8"><p>\xff', r"is not utf-8, which it declares: byte 26 is 0xff"),
        (b'<meta charset="klingon"><p>a', r"declares an encoding that nobody knows: unknown encoding: klingon"),
    ],
)
def test_a_page_in_another_encoding_than_it_says_is_refused(tmp_path: Path, page: bytes, message: str) -> None:
    with pytest.raises(TextError, match=message):
        html(tmp_path, page)


def test_markdown_gives_its_paragraphs_without_marks_front_matter_and_listings(tmp_path: Path) -> None:
    page = """---
title: nein
---
# Die *alte* Mühle

Am [Fluss](https://example.org "nein") steht
eine __Mühle__ aus `Holz` &amp; Stein.

> - Weizen
> - Roggen

```python
nein = 1
```

| Korn | Jahr |
|------|------|
| Hafer | 1900 |

![Bild](x.png)<b>Ende</b> <!-- nein -->

[link]: https://example.org
"""
    expected = [
        "Die alte Mühle",
        "Am Fluss steht eine Mühle aus Holz & Stein.",
        "Weizen",
        "Roggen",
        "Korn",
        "Jahr",
        "Hafer",
        "1900",
        "Ende",
    ]
    assert markdown(tmp_path, page) == expected
    assert markdown(tmp_path, "\ufeff" + page.replace("\n", "\r\n")) == expected


def test_a_rule_at_the_start_of_a_page_is_no_front_matter(tmp_path: Path) -> None:
    assert markdown(tmp_path, "---\n\nEins.\n") == ["Eins."]


def test_pages_may_be_packed_and_have_a_longest_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "page.html.gz").write_bytes(gzip.compress(b"<p>Eins"))
    assert html_paragraphs(tmp_path / "page.html.gz") == ["Eins"]
    monkeypatch.setattr(pages, "_PAGE_BYTES", 6)
    with pytest.raises(TextError, match=r"page\.html\.gz has more than 6 bytes"):
        html_paragraphs(tmp_path / "page.html.gz")
