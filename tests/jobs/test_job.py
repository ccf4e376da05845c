"""What decides a job's result beside its inputs."""

from pathlib import Path

from lingraft.config.alignment import Alignment
from lingraft.config.recipe import Recipe
from lingraft.config.training import Initialisation
from lingraft.data.bilingual_dictionary import translation_hashes
from tests import dictionaries
from tests.workshop import TINY, changed


def test_translations_count_by_their_content_where_rows_are_aligned_by_them(tmp_path: Path) -> None:
    first, second, words = (tmp_path / name for name in ("a.tsv", "b.tsv", "words.txt"))
    for file in (first, second):
        file.write_text("a house\tein Haus\na tree\tein Baum\n")
    words.write_text("house Haus\n")
    drawn = Recipe.load(TINY).model_copy(update={"alignment": Alignment(parallel={"de": str(first)})})
    aligned = changed(drawn, "adaptation", initialisation=Initialisation.ALIGNED)
    mark = translation_hashes(aligned, "de")
    assert mark.keys() == {"translations"}
    assert mark == translation_hashes(changed(aligned, "alignment", parallel={"de": str(second)}), "de")
    assert mark != translation_hashes(changed(aligned, "alignment", parallel={}, dictionary={"de": str(words)}), "de")
    first.write_text("a house\tein Haus\na tree\tein Strauch\n")
    assert mark != translation_hashes(aligned, "de")
    freedict = dictionaries.freedict(tmp_path / "freedict", {"sol": "zun"})
    named = [{"de": str(freedict)}, {"de": f"{freedict}/freedict-xxa-xxb.index"}]
    [mark] = {
        translation_hashes(changed(aligned, "alignment", parallel={}, dictionary=each), "de")["translations"]
        for each in named
    }
    dictionaries.freedict(freedict, {"sol": "mun"})
    learned = changed(aligned, "alignment", parallel={}, dictionary=named[0])
    assert mark != translation_hashes(learned, "de")["translations"]
    assert translation_hashes(aligned, "tr") == translation_hashes(drawn, "de") == {}
