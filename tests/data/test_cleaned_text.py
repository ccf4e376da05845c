import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.cli import app
from lingraft.config.recipe import Recipe
from lingraft.data.text import SPLITS, load_split, prepare, read_split
from tests.text_recipe import text_recipe

_LETTERS = "abcdefghijklmnopqrstuvwxyz"


_PAIRS = """kind = "texts"
train = { kind = "file", path = "train.tsv" }
dev = { kind = "file", path = "dev.tsv" }
test = { kind = "file", path = "test.tsv" }"""


def recipe(source: Path, cleaning: dict[str, Any] | None = None, **changes: Any) -> Recipe:
    text = {"kind": "folder", "path": str(source)} | ({} if cleaning is None else {"cleaning": cleaning})
    return text_recipe(text, **changes)


def sentence(draw: random.Random) -> str:
    return " ".join("".join(draw.choices(_LETTERS, k=4)) for _ in range(9))


def write(source: Path, documents: list[str]) -> Path:
    source.mkdir(exist_ok=True)
    rows = [{"text": text, "name": f"page/{number}"} for number, text in enumerate(documents)]
    (source / "de.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return source


def made_up(count: int, shared: int = 20) -> list[str]:
    """Documents of fresh sentences, of sentences that others have too, and of what is to be dropped."""
    draw = random.Random(count)
    common = [sentence(draw) for _ in range(shared)]
    return [
        "\n".join(
            [sentence(draw), draw.choice(common), "", "12345 67890 123", "\u200b", f"a\u00a0b\u00ad {sentence(draw)}"]
        )
        for _ in range(count)
    ]


def paragraphs(text: Artifact) -> Iterator[str]:
    for split in SPLITS:
        for document in read_split(text, split):
            yield from document.text.split("\n")


def test_no_paragraph_is_twice_in_one_split_or_in_two(tmp_path: Path) -> None:
    source = write(tmp_path / "source", made_up(200))
    text = prepare(recipe(source, {}), "de", tmp_path / "text")
    found = list(paragraphs(text))
    assert len(set(found)) == len(found) > 400
    assert text.manifest.details["dropped"]["paragraph: duplicate"]


def test_the_first_of_equal_paragraphs_stays_wherever_it_is_split_to(tmp_path: Path) -> None:
    shared = "Said by each of them, word for word."
    source = write(tmp_path / "source", [f"{shared}\nOnly document {n} says this here." for n in range(100)])
    text = prepare(recipe(source, {}), "de", tmp_path / "text")
    having = [document.name for split in SPLITS for document in load_split(text, split) if shared in document.text]
    assert having == ["page/0"]


def test_what_is_read_is_kept_or_dropped_for_a_reason(tmp_path: Path) -> None:
    documents = [*made_up(50), "\u200b", "1234567890", "Of it all, this alone is left.\n \nxx\n" + "***" * 9]
    text = prepare(recipe(write(tmp_path / "source", documents), {}), "de", tmp_path / "text")
    lines = [line for document in documents for line in document.split("\n") if line.strip()]
    dropped = text.manifest.details["dropped"]
    assert len(lines) == len(list(paragraphs(text))) + sum(dropped.values()) - 2
    assert dropped == {
        "paragraph: digits": 51,
        "paragraph: duplicate": dropped["paragraph: duplicate"],
        "paragraph: invisible characters": 51,
        "paragraph: punctuation and symbols": 1,
        "paragraph: too short": 1,
        "nothing left of document": 2,
    }


def test_without_cleaning_text_is_taken_as_it_is(tmp_path: Path) -> None:
    documents = [f"same  line\n\n12345\n\u200bof {number}" for number in range(40)]
    text = prepare(recipe(write(tmp_path / "source", documents)), "de", tmp_path / "text")
    assert sorted(document.text for split in SPLITS for document in load_split(text, split)) == sorted(documents)
    assert text.manifest.recipe["text"]["cleaning"] is None


def test_the_command_prints_what_was_dropped(tmp_path: Path) -> None:
    source = write(tmp_path / "source", made_up(50))
    given = tmp_path / "recipe.toml"
    tiny = (Path(__file__).parents[1] / "tiny.toml").read_text()
    given.write_text(
        tiny.replace('path = "text"', f'path = "{source}"\n[text.cleaning]').replace('kind = "documents"', _PAIRS)
    )
    done = CliRunner().invoke(app, ["text", "--recipe", str(given), "--language", "de", "--out", str(tmp_path / "out")])
    assert done.exit_code == 0
    for reason, count in Artifact.load(tmp_path / "out", Kind.TEXT).manifest.details["dropped"].items():
        assert f"left out: {count} of {reason}" in done.output
