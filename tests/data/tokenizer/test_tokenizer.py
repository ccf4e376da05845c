import json
import re
from pathlib import Path
from typing import Any

import pytest

from lingraft.artifacts import artifact
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.config.recipe import Recipe
from lingraft.data.bilingual_dictionary import learned_hashes
from lingraft.data.parallel_text import is_held_out, read_pairs
from lingraft.data.text import load_split
from lingraft.data.tokenizer import training
from lingraft.data.tokenizer.pieces import DEFAULT_SPECIAL_IDS, SPECIAL_PIECES
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.data.tokenizer.unigram import SCORE_STEP, TooManyPiecesError
from lingraft.errors import TokenizerError
from tests.workshop import Workshop


def write_text(folder: Path, lines: list[str]) -> Path:
    with artifact.create(folder, Kind.TEXT) as draft:
        for split in ("train", "dev", "test"):
            (draft.folder / f"{split}.jsonl").write_text(json.dumps({"name": "page", "text": "\n".join(lines)}))
        draft.facts = {"language": "en"}
    return folder


def wanting(recipe: Recipe, **settings: Any) -> Recipe:
    return recipe.model_copy(update={"tokenizer": recipe.tokenizer.model_copy(update=settings)})


def refusal(recipe: Recipe, text: Path, out: Path) -> str:
    with pytest.raises(TokenizerError) as caught:
        training.train_tokenizer(recipe, text, out)
    assert not out.exists()
    return str(caught.value)


def test_special_tokens_have_the_same_ids_in_every_language(workshop: Workshop) -> None:
    for folder in workshop.tokenizers.values():
        pieces = Tokenizer.load(folder)
        assert pieces.special == DEFAULT_SPECIAL_IDS
        assert {role: pieces.pieces()[index] for role, index in pieces.special._asdict().items()} == {
            "begin": "<s>",
            "pad": "<pad>",
            "end": "</s>",
            "unknown": "<unk>",
            "mask": "<mask>",
        }
        details = Artifact.load(folder, Kind.TOKENIZER).manifest.details
        assert details["special_ids"] == {"begin": 0, "pad": 1, "end": 2, "unknown": 3, "mask": 4}


def test_the_vocabulary_is_as_large_as_asked_for_and_languages_differ(workshop: Workshop) -> None:
    loaded = {language: Tokenizer.load(folder) for language, folder in workshop.tokenizers.items()}
    assert {len(pieces) for pieces in loaded.values()} == {workshop.recipe.tokenizer.vocabulary}
    assert len({tuple(pieces.pieces()) for pieces in loaded.values()}) == len(loaded)
    assert len({pieces.hash for pieces in loaded.values()}) == len(loaded)


def test_text_becomes_pieces_and_pieces_become_the_text(workshop: Workshop) -> None:
    pieces = Tokenizer.load(workshop.tokenizers["en"], "en")
    documents = load_split(Artifact.load(workshop.texts["en"], Kind.TEXT), "test")
    texts = [document.text for document in documents]
    surfaces = pieces.pieces()
    for text, ids in zip(texts, pieces.encode_all(texts), strict=True):
        assert ids == pieces.encode(text)
        assert "".join(surfaces[index] for index in ids).replace("▁", " ").split() == text.split()


def test_no_text_can_write_a_special_token(workshop: Workshop) -> None:
    pieces = Tokenizer.load(workshop.tokenizers["en"])
    for text in SPECIAL_PIECES:
        assert set(pieces.encode(f"ba {text} de")) & (set(DEFAULT_SPECIAL_IDS) - {DEFAULT_SPECIAL_IDS.unknown}) == set()


def test_a_tokenizer_is_trained_on_training_text_only(workshop: Workshop, tmp_path: Path) -> None:
    text = tmp_path / "text"
    with artifact.create(text, Kind.TEXT) as draft:
        for split, letter in (("train", "q"), ("dev", "x"), ("test", "j")):
            lines = "\n".join(f"ba de {letter * n}" for n in range(1, 30))
            (draft.folder / f"{split}.jsonl").write_text(json.dumps({"name": split, "text": lines}))
        draft.facts = {"language": "en"}
    training.train_tokenizer(wanting(workshop.recipe, vocabulary=20), text, tmp_path / "out")
    alphabet = set("".join(Tokenizer.load(tmp_path / "out").pieces()[len(SPECIAL_PIECES) :]))
    assert "q" in alphabet
    assert alphabet & {"x", "j"} == set()


def test_translations_that_are_learned_from_are_text_and_those_held_out_are_not(
    workshop: Workshop, tmp_path: Path
) -> None:
    written = [f"a {letter}\tba {letter * n}\n" for letter in "qxj" for n in range(1, 60)]
    (tmp_path / "pairs.tsv").write_text("".join(written))
    pairs = [*read_pairs(str(tmp_path / "pairs.tsv"), ("en", "de"))]
    kept = tmp_path / "kept.tsv"
    # Of all pairs with x, only those that are held out.
    kept.write_text("".join(f"{p.source}\t{p.target}\n" for p in pairs if "x" not in p.target or is_held_out(p)))
    raw = workshop.recipe.model_dump(mode="json")
    raw |= {"alignment": {"parallel": {"de": str(kept)}}}
    raw["adaptation"] |= {"initialisation": "aligned"}
    raw["tokenizer"] |= {"vocabulary": 30}
    recipe = Recipe.parse(raw, "the test")
    made = training.train_tokenizer(recipe, workshop.texts["de"], tmp_path / "out")
    alphabet = set("".join(Tokenizer.load(tmp_path / "out").pieces()[len(SPECIAL_PIECES) :]))
    assert {"q", "j"} <= alphabet
    assert "x" not in alphabet
    assert made.manifest.data_hashes["translations"] == learned_hashes(recipe, "de")["translations"]


def test_the_same_text_gives_the_same_tokenizer(workshop: Workshop, tmp_path: Path) -> None:
    again = training.train_tokenizer(workshop.recipe, workshop.texts["de"], tmp_path / "again")
    assert again.fingerprint == Artifact.load(workshop.tokenizers["de"], Kind.TOKENIZER).fingerprint
    assert again.manifest.tokenizer_hash == Tokenizer.load(workshop.tokenizers["de"]).hash


@pytest.mark.parametrize("lines", [[], ["", "  "], ["\u200b"]], ids=["none", "blank", "nothing visible"])
def test_text_without_a_character_is_refused(workshop: Workshop, tmp_path: Path, lines: list[str]) -> None:
    assert re.search(
        r"Give (more|other) text",
        refusal(workshop.recipe, write_text(tmp_path / "text", lines), tmp_path / "out"),
    )


def test_lines_count_however_long_they_are(workshop: Workshop, tmp_path: Path) -> None:
    text = write_text(tmp_path / "text", [*["ba de ki lo"] * 500, "qa xo ju " * 1000])
    training.train_tokenizer(wanting(workshop.recipe, vocabulary=18), text, tmp_path / "out")
    assert DEFAULT_SPECIAL_IDS.unknown not in Tokenizer.load(tmp_path / "out").encode("qa xo ju")


def test_a_sample_is_spread_over_the_whole_text_and_recorded(workshop: Workshop, tmp_path: Path) -> None:
    text = write_text(tmp_path / "text", [*["ba de ki lo mu na"] * 4000, *["qa xo ju"] * 4000])
    made = training.train_tokenizer(wanting(workshop.recipe, vocabulary=21, sample_lines=100), text, tmp_path / "out")
    assert DEFAULT_SPECIAL_IDS.unknown not in Tokenizer.load(tmp_path / "out").encode("ba qa")
    assert made.manifest.details["sample"] == {"lines": 100, "of_lines": 8000}


_LATIN = ["ba de ki lo mu na"] * 4000 + ["q"]
_HAN = ["\u4e00\u4e8c\u4e09\u56db\u4e94\u516d"] * 4000 + ["\u9f98"]


@pytest.mark.parametrize(
    ("lines", "rare", "coverage", "unknown"),
    [
        (_LATIN, "q", None, False),
        (_LATIN, "q", 0.9995, True),
        (_HAN, "\u9f98", None, True),
        (_HAN, "\u9f98", 1.0, False),
    ],
    ids=["Latin", "Latin, as asked for", "Han", "Han, as asked for"],
)
def test_coverage_follows_the_script_unless_the_recipe_says(
    workshop: Workshop, tmp_path: Path, lines: list[str], rare: str, coverage: float | None, unknown: bool
) -> None:
    text = write_text(tmp_path / "text", lines)
    with pytest.raises(TooManyPiecesError) as caught:
        training.train_tokenizer(
            wanting(workshop.recipe, vocabulary=99, character_coverage=coverage), text, tmp_path / "out"
        )
    settings = {"vocabulary": caught.value.supported, "character_coverage": coverage}
    made = training.train_tokenizer(wanting(workshop.recipe, **settings), text, tmp_path / "out")
    assert (DEFAULT_SPECIAL_IDS.unknown in Tokenizer.load(tmp_path / "out").encode(rare)) == unknown
    assert made.manifest.details["character_coverage"] == (0.9995 if unknown else 1.0)


def test_the_tokenizer_of_another_language_is_refused_with_both(workshop: Workshop) -> None:
    with pytest.raises(TokenizerError, match="the tokenizer of 'de', not of 'tr'"):
        Tokenizer.load(workshop.tokenizers["de"], "tr")


def test_scores_add_up_exactly_so_that_ties_do_not_hang_on_rounding(workshop: Workshop) -> None:
    file = json.loads(Tokenizer.load(workshop.tokenizers["de"]).model.read_bytes())
    assert all((score / SCORE_STEP).is_integer() for _, score in file["model"]["vocab"])


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (100_000, r"supports (\d+) at most\. Lower tokenizer\.vocabulary \(.*\) to that"),
        (6, r"special tokens alone are (\d+)\. Raise tokenizer\.vocabulary"),
    ],
)
def test_a_vocabulary_out_of_bounds_is_answered_with_one_that_is_possible(
    workshop: Workshop, tmp_path: Path, asked: int, words: str
) -> None:
    message = refusal(wanting(workshop.recipe, vocabulary=asked), workshop.texts["en"], tmp_path / "out")
    found = re.search(rf"a vocabulary of {asked} pieces.*{words}", message)
    assert found
    possible = int(found[1])
    training.train_tokenizer(wanting(workshop.recipe, vocabulary=possible), workshop.texts["en"], tmp_path / "out")
    assert len(Tokenizer.load(tmp_path / "out")) == possible
