"""What decides a job's result beside its inputs."""

from pathlib import Path

from lingraft.config.alignment import Alignment
from lingraft.config.recipe import Recipe
from lingraft.config.training import Initialisation
from lingraft.data.bilingual_dictionary import translation_hashes
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
    assert translation_hashes(aligned, "tr") == translation_hashes(drawn, "de") == {}
