"""Examples from pages, and the index that they are searched in."""

from pathlib import Path

import pytest
import torch

from benchmarks.page_search import ask, training_pairs, write_examples, write_index
from lingraft.data import text
from lingraft.data.documents import Document
from lingraft.errors import LingraftError
from tests.made_up import write
from tests.workshop import Workshop


def test_pairs_of_a_page_share_no_line_but_what_is_the_same() -> None:
    pairs = [*training_pairs(Document("page", "title\none\ntwo\nthree\nfour"))]
    assert pairs == [("title", "one two three four"), ("title two four", "one three")]
    assert [*training_pairs(Document("page", "title\none"))] == [("title", "one")]
    assert [*training_pairs(Document("page", "title"))] == []


def test_an_index_finds_the_nearest_by_cosine(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(1)
    pages_PE = torch.randn(60, 8, generator=generator) * torch.rand(60, 1, generator=generator)
    questions_NE = 3 * pages_PE[:20] + 0.1 * torch.randn(20, 8, generator=generator)
    cosines_NP = torch.nn.functional.normalize(questions_NE) @ torch.nn.functional.normalize(pages_PE).T
    file = tmp_path / "pages.faiss"
    write_index(pages_PE, file)
    found_NK = ask(file, questions_NE)
    assert found_NK.tolist() == cosines_NP.topk(10).indices.tolist()


def test_pages_without_translations_are_refused(workshop: Workshop, tmp_path: Path) -> None:
    source = write(tmp_path / "source", ("de",))
    (source / "de.jsonl").write_text((source / "de.jsonl").read_text().replace("page-", "Seite-"))
    text.prepare(workshop.recipe.with_folder(source), "de", tmp_path / "de")
    with pytest.raises(LingraftError, match=r"no test page in 'de'.*pages that are translations"):
        write_examples(tmp_path / "data", {"en": workshop.texts["en"], "de": tmp_path / "de"}, "en")
