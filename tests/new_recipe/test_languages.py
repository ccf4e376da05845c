"""Languages by the names of files and folders."""

from pathlib import Path

import pytest

from lingraft.errors import TextError
from lingraft.new_recipe.languages import find_text, language_of


@pytest.mark.parametrize(
    ("name", "language"),
    [
        ("de.txt", "de"),
        ("de.jsonl.gz", "de"),
        ("pt-BR.parquet", "pt-BR"),
        ("zh_Hans.txt.xz", "zh-Hans"),
        ("swh.txt", "sw"),
        ("deu.jsonl", "de"),
        ("quc.txt", "quc"),
        ("no.txt", "no"),
        ("german.txt", "de"),
        ("Swahili.txt.zst", "sw"),
        ("corpus.de.txt", "de"),
        ("news_tr-2020.txt", "tr"),
        ("opus.en-de.de.txt", "de"),
        ("cc100.pt_BR.txt", "pt-BR"),
        ("all.txt", None),
        ("no_labels.txt", None),
        ("readme.txt", None),
        ("faq.txt", None),
        ("web.jsonl", None),
        ("mul.txt", None),
        ("part-00001.jsonl", None),
    ],
)
def test_a_language_is_found_in_a_name(name: str, language: str | None) -> None:
    assert language_of(Path(name)) == language


def test_files_are_grouped_by_language_and_the_rest_is_named(tmp_path: Path) -> None:
    for name in (
        "news.de.1.txt",
        "news.de.2.txt",
        "tr.txt",
        "en/a.txt",
        "README.md",
        "notes.txt",
        "en-de.tsv",
        ".hidden/de.txt",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("text")
    (tmp_path / "el").mkdir()
    found = find_text(tmp_path)
    assert {tag: [path.name for path in paths] for tag, paths in found.paths.items()} == {
        "de": ["news.de.1.txt", "news.de.2.txt"],
        "en": ["en"],
        "tr": ["tr.txt"],
    }
    assert found.others == {
        "README.md": "no language that is known is in its name",
        "el": "it holds no .txt, .md, .markdown, .html, .htm, .xhtml, .jsonl, .parquet file",
        "en-de.tsv": "it is no .txt, .md, .markdown, .html, .htm, .xhtml, .jsonl, .parquet file",
        "notes.txt": "no language that is known is in its name",
    }
    assert not found.one_each


def test_fewer_than_two_languages_are_refused_with_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "de.txt").write_text("")
    (tmp_path / "text.txt").write_text("")
    with pytest.raises(TextError, match=r"text in 1 language \('de'\) .* text\.txt was left out: no language that"):
        find_text(tmp_path)
    with pytest.raises(TextError, match="there is no folder"):
        find_text(tmp_path / "absent")
    with pytest.raises(TextError, match=r"de\.txt is a file, and not a folder\. Give a folder with"):
        find_text(tmp_path / "de.txt")
