import os
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from lingraft.data.bilingual_dictionary import read_word_pairs
from lingraft.data.documents import Document
from lingraft.data.libreoffice import help_documents, help_folder, page_paragraphs
from lingraft.errors import TextError

_PAGE = """<!DOCTYPE html>
<html><head><title>Title</title><script>var a = "<p>script</p>";</script></head>
<body><header><p>LibreOffice Help</p></header><nav><p>Navigation</p></nav>
<div id="DisplayArea" itemprop="softwareHelp">
<a name="bm_1"></a><meta itemprop="keywords" content="keyword">
{body}
</div>
<div id="SearchFrame"></div>
<footer><div id="DEBUG" class="debug"><h3>Help content debug info:</h3><p>Title is: Title</p></div></footer>
</body></html>
"""

# Copies the package asked for from $PACKAGES, or fails as apt-get does when it does not know one.
_APT_GET = """#!/bin/sh
echo "$@" >> "$PACKAGES/calls"
cp "$PACKAGES/$2"_*.deb . 2>/dev/null && exit 0
echo "E: Unable to locate package $2" >&2
exit 100
"""


def _write_page(path: Path, *paragraphs: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_PAGE.format(body="\n".join(f'<p dir="auto">{text}</p>' for text in paragraphs)), "utf-8")


def _build_package(packages: Path, suffix: str, folder: str, pages: dict[str, list[str]]) -> None:
    """Build a real Debian package with help pages, in the structure of LibreOffice's."""
    tree = packages / suffix
    for name, paragraphs in pages.items():
        _write_page(tree / f"usr/share/libreoffice/help/{folder}/text/{name}.html", *paragraphs)
    (tree / "usr/share/libreoffice/help/media").mkdir(parents=True)
    _pack(packages, tree, f"libreoffice-help-{suffix}")


def _pack(packages: Path, tree: Path, package: str) -> None:
    (tree / "DEBIAN").mkdir()
    control = f"Package: {package}\nVersion: 1\nArchitecture: all\nMaintainer: a <a@b.c>\n"
    (tree / "DEBIAN/control").write_text(control + "Description: test\n")
    archive = packages / f"{package}_1_all.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "-b", tree, archive], check=True, capture_output=True)


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder that a stand-in apt-get takes packages from, so that no test needs the network."""
    folder = tmp_path / "packages"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/apt-get").write_text(_APT_GET)
    (folder / "bin/apt-get").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PACKAGES", str(folder))
    monkeypatch.setenv("LINGRAFT_CACHE", str(tmp_path / "cache"))
    return folder


def _calls(packages: Path) -> list[str]:
    return (packages / "calls").read_text().splitlines()


def test_only_what_a_reader_sees_is_taken_in_order_and_whitespace_normalised(tmp_path: Path) -> None:
    body = """
        <h1 id="hd_1"><a name="x"></a>Database&nbsp;Functions</h1>
        <p>The <span class="emph">Search&amp;Find</span>\n   menu,<br>H<sub>2</sub>O.</p>
        <ol><li><p>First step</p></li><li>Second step</li></ol>
        <table><tr><th><p>Head</p></th><td>Cell <p>in cell</p></td></tr></table>
        <div class="bascode"><pre><code>Sub Main()</code></pre></div>
        <script>hidden()</script>
        <div class="note"><div class="noteicon"><img src="a.svg" alt="note"></div>
        <div class="notetext"><p>A note.</p></div></div>
        <p> </p>"""
    (tmp_path / "a.html").write_text(_PAGE.format(body=body), encoding="utf-8")
    assert page_paragraphs(tmp_path / "a.html") == [
        "Database Functions",
        "The Search&Find menu, H2O.",
        "First step",
        "Second step",
        "Head",
        "Cell",
        "in cell",
        "A note.",
    ]


def test_pages_are_named_by_path_labelled_by_first_folder_and_cleaned(packages: Path) -> None:
    english = {"scalc/01/a": ["Same", "Sum", "=A1"], "swriter/b": ["Text"], "shared/c": ["Left in English"]}
    german = {
        "scalc/01/a": ["Summe", "=A1", "Summe", "Same"],
        "swriter/b": ["Text im Satz"],
        "shared/c": ["Left in English"],
        "sdraw/only-here": ["Same"],
    }
    _build_package(packages, "en-us", "en-US", english)
    _build_package(packages, "de", "de", german)
    dropped: Counter[str] = Counter()
    assert list(help_documents("de", dropped)) == [
        Document("scalc/01/a", "Summe", "scalc"),
        Document("sdraw/only-here", "Same", "sdraw"),
        Document("shared/c", "", "shared"),
        Document("swriter/b", "Text im Satz", "swriter"),
    ]
    assert dropped == {"untranslated paragraph": 3, "repeated paragraph": 1}


def test_a_package_is_brought_once_and_then_taken_from_the_cache(packages: Path) -> None:
    _build_package(packages, "de", "de", {"scalc/a": ["Summe"]})
    assert help_folder("de") == help_folder("de")
    assert _calls(packages) == ["download libreoffice-help-de"]


def test_a_failed_download_leaves_nothing_behind_that_a_later_run_would_use(packages: Path, tmp_path: Path) -> None:
    with pytest.raises(TextError):
        help_folder("de")
    assert not list((tmp_path / "cache/libreoffice-help").iterdir())
    _build_package(packages, "de", "de", {"scalc/a": ["Summe"]})
    assert (help_folder("de") / "scalc/a.html").is_file()


def test_a_cache_that_cannot_be_written_names_the_way_out(
    packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("LINGRAFT_CACHE", str(tmp_path / "file"))
    with pytest.raises(TextError, match="Set LINGRAFT_CACHE to a folder that you may write to"):
        help_folder("de")


def test_an_unknown_package_is_answered_with_apt_get_update_and_the_other_ways(packages: Path) -> None:
    with pytest.raises(TextError, match="E: Unable to locate package libreoffice-help-xx") as caught:
        help_folder("xx")
    assert "sudo apt-get update" in str(caught.value)
    assert "--text DIR" in str(caught.value)


@pytest.mark.parametrize("present", [(), ("apt-get", "sh", "cp")])
def test_missing_tools_are_named_with_the_other_ways(
    packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, present: tuple[str, ...]
) -> None:
    _build_package(packages, "de", "de", {"scalc/a": ["Summe"]})
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in present:
        origin = packages / "bin/apt-get" if tool == "apt-get" else Path("/bin") / tool
        (tools / tool).symlink_to(origin)
    monkeypatch.setenv("PATH", str(tools))
    missing = "dpkg-deb" if present else "apt-get"
    with pytest.raises(TextError, match=f"{missing} is not installed here") as caught:
        help_folder("de")
    assert "--text DIR" in str(caught.value)


@pytest.mark.parametrize(
    ("language", "suffix", "folder"),
    [("en", "en-us", "en-US"), ("en-gb", "en-gb", "en-GB"), ("zh-Hant", "zh-tw", "zh-TW")],
)
def test_language_tags_lead_to_debians_package_and_english_is_not_compared(
    packages: Path, language: str, suffix: str, folder: str
) -> None:
    _build_package(packages, suffix, folder, {"scalc/a": ["Sum", "Cell"]})
    if language == "zh-Hant":
        _build_package(packages, "en-us", "en-US", {"scalc/b": ["Sum"]})
    assert [document.text for document in help_documents(language, Counter())] == ["Sum\nCell"]


def test_packages_that_are_damaged_or_without_pages_are_refused(packages: Path) -> None:
    _build_package(packages, "de", "de", {})
    with pytest.raises(TextError, match=r"holds 0 of .*help/\*/text instead of one"):
        help_folder("de")
    archive = packages / "libreoffice-help-de_1_all.deb"
    archive.write_bytes(archive.read_bytes()[:300])
    with pytest.raises(TextError, match=r"dpkg-deb failed with 2: dpkg-deb: error: .*--text DIR"):
        help_folder("de")


def test_a_dictionary_of_a_package_is_brought_once(packages: Path) -> None:
    folder = packages / "dictionary" / "usr/share/dictd"
    folder.mkdir(parents=True)
    (folder / "freedict-eng-deu.dict").write_text("sum /sVm/\n1. Summe\n")
    (folder / "freedict-eng-deu.index").write_text("sum\tA\tT\n")
    _pack(packages, packages / "dictionary", "dict-freedict-eng-deu")
    for _ in range(2):
        assert [pair[:2] for pair in read_word_pairs("apt:dict-freedict-eng-deu", ("en", "de"))] == [("sum", "Summe")]
    assert _calls(packages) == ["download dict-freedict-eng-deu"]
    with pytest.raises(TextError, match=r"Debian package dict-freedict-eng-xx cannot be brought.*Unable to locate"):
        [*read_word_pairs("apt:dict-freedict-eng-xx", ("en", "de"))]
