"""What is checked of parallel text and dictionaries before anything is computed: languages, their order, columns."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lingraft import preflight
from lingraft.config.recipe import Recipe
from lingraft.data.language_detection import LanguageDetector
from lingraft.preflight import Sample
from tests import dictionaries, made_up
from tests.preflight.listed import change, recipe_on, refusal

ENGLISH = (
    "the old mill by the river grinds wheat in autumn",
    "my sister bought seven green apples at the market",
    "nobody knows where the captain hid the letters",
    "please close the window before the rain comes in",
)
GERMAN = (
    "die alte Mühle am Fluss mahlt im Herbst Weizen",
    "meine Schwester hat auf dem Markt sieben grüne Äpfel gekauft",
    "niemand weiß, wo der Kapitän die Briefe versteckt hat",
    "bitte schließ das Fenster, bevor der Regen hereinkommt",
)
FRENCH = (
    "le vieux moulin au bord de la rivière moud le blé en automne",
    "ma sœur a acheté sept pommes vertes au marché hier matin",
    "personne ne sait où le capitaine a caché toutes les lettres",
    "ferme la fenêtre avant que la pluie ne rentre, s'il te plaît",
)
ENGLISH_WORDS = (
    "bread water house window bridge church spring winter shoulder knee butcher kitchen spoon knife "
    "candle shadow thunder cloud forest meadow healthy narrow hungry quickly always nowhere borrow "
    "whisper forgive laugh "
)
GERMAN_WORDS = (
    "Brot Wasser Haus Fenster Brücke Kirche Frühling Winter Schulter Knie Metzger Küche Löffel Messer "
    "Kerze Schatten Donner Wolke Wald Wiese gesund schmal hungrig schnell immer nirgendwo leihen flüstern "
    "verzeihen lachen "
)
FRENCH_WORDS = (
    "pain eau maison fenêtre pont église printemps hiver épaule genou boucher cuisine cuillère couteau "
    "bougie ombre tonnerre nuage forêt prairie sain étroit affamé rapidement toujours nulle emprunter "
    "chuchoter pardonner rire "
)


def lines(sentences: tuple[str, ...], count: int = 40) -> list[str]:
    return [f"{sentences[number % 4]} {number}" for number in range(count)]


def columns(file: Path, left: list[str], right: list[str]) -> Path:
    file.write_text("".join(f"{source}\t{target}\n" for source, target in zip(left, right, strict=True)))
    return file


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """Text in English and German that is in order."""
    return made_up.write(tmp_path / "text", ("en", "de"))


def aligned(text: Path, **given: object) -> Recipe:
    return recipe_on(text, alignment=given)


def problems(recipe: Recipe, spoken: str = "Mühle Markt niemand bitte") -> list[str]:
    """What is wrong with the pairs of German, whose text holds these words."""
    sample = Sample()
    sample.texts["train"] = [spoken]
    found = [*preflight._pair_problems(recipe, sample, "de", LanguageDetector.load())]
    print(*sample.notes, file=sys.stderr)
    return found


def test_problems_of_pairs_stand_in_the_list_of_all(text: Path, tmp_path: Path) -> None:
    (tmp_path / "a.en").write_text("\n".join(lines(ENGLISH)))
    (tmp_path / "a.de").write_text("\n".join(lines(GERMAN)[:-2]))
    words = tmp_path / "words.txt"
    words.write_text("mill Mühle\nmarket\nriver Fluss der\n")
    files = [str(tmp_path / "a.en"), str(tmp_path / "a.de")]
    change(text / "en.jsonl", 7, "{")
    found = refusal(aligned(text, parallel={"de": files}, dictionary={"de": str(words)}))
    assert len(found) == 4
    assert found[0].startswith(f"en: {text / 'en.jsonl'}, line 7")
    assert found[1].startswith(f"de: {files[0]} has 40 lines, but {files[1]} has 38")
    assert found[2].startswith(f"de: {words}, line 2: 'market' is no pair")
    assert found[3].startswith(f"de: {words}, line 3: 'river Fluss der' is no pair")


def test_too_many_empty_sides_are_a_problem(text: Path, tmp_path: Path) -> None:
    english, german = lines(ENGLISH), lines(GERMAN)
    pairs = columns(tmp_path / "pairs.tsv", [*english, "left alone", english[0]], [*german, "", german[0]])
    assert problems(aligned(text, parallel={"de": str(pairs)})) == []
    columns(pairs, english, ["", *german[1:20], *[""] * 20])
    [message] = problems(aligned(text, parallel={"de": str(pairs)}))
    assert "21 of 40 pairs (52%) have an empty side" in message


@pytest.mark.parametrize(("pooling", "wrong"), [("mean", True), ("first", False)])
def test_pairs_that_are_pooled_as_no_search_is_are_told(text: Path, tmp_path: Path, pooling: str, wrong: bool) -> None:
    pairs = columns(tmp_path / "pairs.tsv", lines(ENGLISH), lines(GERMAN))
    examples = {"kind": "file", "path": str(tmp_path / "examples.tsv")}
    task = {"name": "search", "kind": "retrieval", "train": examples, "dev": examples, "test": examples}
    adaptation = {"steps": 1, "batch_blocks": 1, "learning_rate": 1e-3, "depth": 1, "pairs": {"pooling": pooling}}
    given = {"alignment": {"parallel": {"de": str(pairs)}}, "adaptation": adaptation, "gate": {"metric": "alignment"}}
    found = problems(recipe_on(text, tasks=[task | {"retrieval": {"pooling": "first"}}], **given))
    assert [message.startswith("[adaptation.pairs] pools sentences by 'mean'") for message in found] == [True] * wrong
    assert all("{'search': 'first'}" in message for message in found)


def test_a_side_in_the_wrong_language_is_named_with_what_it_seems_to_be(text: Path, tmp_path: Path) -> None:
    pairs = columns(tmp_path / "pairs.tsv", lines(ENGLISH), lines(FRENCH))
    [message] = problems(aligned(text, parallel={"de": str(pairs)}))
    assert f"{pairs}: the target side should be in 'de', but seems to be in 'fr' (" in message
    columns(pairs, lines(FRENCH), lines(GERMAN))
    [message] = problems(aligned(text, parallel={"de": str(pairs)}))
    assert "the source side should be in 'en', but seems to be in 'fr'" in message


def test_swapped_columns_are_told_as_such(text: Path, tmp_path: Path) -> None:
    pairs = columns(tmp_path / "pairs.tsv", lines(GERMAN), lines(ENGLISH))
    [message] = problems(aligned(text, parallel={"de": str(pairs)}))
    assert f"{pairs}: the languages are swapped: 'de' stands where 'en' should" in message


def _memory(left: list[str], right: list[str]) -> str:
    units = "".join(
        f'<tu><tuv xml:lang="en-GB"><seg>{one}</seg></tuv><tuv xml:lang="de-DE"><seg>{other}</seg></tuv></tu>'
        for one, other in zip(left, right, strict=True)
    )
    return f"<tmx version='1.4'><body>{units}</body></tmx>"


def _objects(left: list[str], right: list[str]) -> str:
    return "".join(json.dumps({"en": one, "de": other}) + "\n" for one, other in zip(left, right, strict=True))


def _table(left: list[str], right: list[str]) -> str:
    return "en,de\n" + "".join(f'"{one}","{other}"\n' for one, other in zip(left, right, strict=True))


@pytest.mark.parametrize(("name", "write"), [("a.tmx", _memory), ("a.jsonl", _objects), ("a.csv", _table)])
def test_languages_of_every_layout_are_checked(
    text: Path, tmp_path: Path, name: str, write: Callable[[list[str], list[str]], str]
) -> None:
    for left, right, expected in (
        (ENGLISH, GERMAN, None),
        (GERMAN, ENGLISH, "the languages are swapped: 'de' stands where 'en' should, and 'en' where 'de' should"),
        (ENGLISH, FRENCH, "the target side should be in 'de', but seems to be in 'fr' ("),
    ):
        (tmp_path / name).write_text(write(lines(left), lines(right)))
        found = problems(aligned(text, parallel={"de": str(tmp_path / name)}))
        assert [message.startswith(f"{tmp_path / name}: {expected}") for message in found] == [True] * bool(expected)


def test_a_dictionary_may_stand_in_either_order_but_not_in_another_language(text: Path, tmp_path: Path) -> None:
    for left, right, wrong in ((ENGLISH, GERMAN, 0), (GERMAN, ENGLISH, 0), (ENGLISH, FRENCH, 1)):
        words = columns(tmp_path / "words.tsv", lines(left), lines(right))
        spoken = "\n".join((*lines(GERMAN), *lines(FRENCH)))
        assert len(problems(aligned(text, dictionary={"de": str(words)}), spoken)) == wrong


def test_a_dictionary_of_whose_words_the_text_has_none_is_refused_with_their_number(text: Path, tmp_path: Path) -> None:
    folder = dictionaries.freedict(tmp_path / "words", {f"zorp{number}": f"blin{number}" for number in range(50)})
    [message] = problems(aligned(text, dictionary={"de": str(folder)}))
    assert f"{folder}: none of 50 pairs of a sample has a word that occurs in the text of 'de'" in message


def test_words_count_as_occurring_whole_and_on_one_side_of_a_pair(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Text holds "art" and "in" as parts of words, and German words that the other side of a pair has."""
    words = columns(tmp_path / "words.tsv", ["art", "in"], ["zorp", "blin"])
    [message] = problems(aligned(text, dictionary={"de": str(words)}), "Garten Binse Markt")
    assert "none of 2 pairs" in message
    columns(
        words,
        [f"zorp{number}" for number in range(9)] + ["market"],
        [f"blin{number}" for number in range(9)] + ["Markt"],
    )
    assert problems(aligned(text, dictionary={"de": str(words)}), "Garten Binse Markt") == []
    assert "of 10 pairs of a sample, only 1 have a word that occurs in the text of 'de'" in capsys.readouterr().err


def test_a_short_list_of_words_in_another_language_is_refused_with_their_number(text: Path, tmp_path: Path) -> None:
    count = 10
    words = columns(tmp_path / "words.tsv", ENGLISH_WORDS.split()[:count], FRENCH_WORDS.split()[:count])
    spoken = " ".join((GERMAN_WORDS, FRENCH_WORDS))
    [message] = problems(aligned(text, dictionary={"de": str(words)}), spoken)
    assert f"{words}: the target side should be in 'de', but seems to be in 'fr' (by {count} words)" in message
    for left, right in ((ENGLISH_WORDS, GERMAN_WORDS), (GERMAN_WORDS, ENGLISH_WORDS)):
        for size in (3, count):
            columns(words, left.split()[:size], right.split()[:size])
            assert problems(aligned(text, dictionary={"de": str(words)}), spoken) == []


def test_pairs_of_which_some_have_their_sides_exchanged_are_refused_with_their_number(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    english, german = lines(ENGLISH, 400), lines(GERMAN, 400)

    def exchanged(count: int) -> Recipe:
        """Pairs of which the last ones are exchanged."""
        kept = 400 - count
        file = columns(tmp_path / "pairs.tsv", english[:kept] + german[kept:], german[:kept] + english[kept:])
        return aligned(text, parallel={"de": str(file)})

    for count in (60, 260):
        [message] = problems(exchanged(count))
        assert f"{count} of 400 pairs of a sample have their sides exchanged, 'de' before 'en', such as" in message
        assert f"pairs.tsv, line {401 - count}. Give the same language first" in message
    capsys.readouterr()
    assert problems(exchanged(12)) == []
    assert "12 of 400 pairs of a sample have their sides exchanged" in capsys.readouterr().err
    assert problems(exchanged(1)) == []
    assert "exchanged" not in capsys.readouterr().err
