"""Rows of pieces by the source's own reading of their text, and lengths of means of rows."""

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
import torch

from lingraft.data.tokenizer.pieces import DEFAULT_SPECIAL_IDS, OwnPieces, Surface
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.model.encoder import Vocabulary
from lingraft.model.initialisation.aligned_rows import AlignmentResource, translate_rows
from lingraft.model.initialisation.decomposition import decompose
from lingraft.model.initialisation.mixed_rows import RowMixer
from lingraft.model.initialisation.translation import TranslationTable
from tests.data.tokenizer.test_borrowed_pieces import byte_level, word_piece
from tests.languages_made_up import FIRST

WIDTH = 8


def target(*surfaces: Surface) -> OwnPieces:
    return OwnPieces(DEFAULT_SPECIAL_IDS, [*[None] * FIRST, *surfaces])


def parts(source: Tokenizer, surface: Surface) -> list[str]:
    """The source's pieces that a piece is made of, in the order of their ids."""
    weights_TS = decompose(source, target(surface))
    found = weights_TS.indices[weights_TS.indptr[FIRST] :]
    characters = [len(each.text) if each else 1 for each in map(source.surfaces().__getitem__, found)]
    assert weights_TS.data == pytest.approx([each / sum(characters) for each in characters])
    return sorted(source.pieces()[index] for index in found)


@pytest.mark.parametrize(
    ("text", "initial", "pieces"),
    [
        ("Harbourmaster", True, ["##master", "harbour"]),
        ("master", True, ["##a", "##e", "##r", "##s", "##t", "m"]),
        ("master", False, ["##master"]),
        ("Réd", False, ["##d", "##e", "##r"]),  # normalised as the source does
        (",", False, [","]),
        ("ж", True, ["ж"]),
        ("жq", False, ["##q", "##ж"]),
        ("北", False, ["北"]),
        ("42", False, ["42"]),  # only known where a word begins
        ("ш", True, []),
        ("шш", False, []),
        ("ш, jared", True, [",", "jared"]),
    ],
)
def test_pieces_are_what_the_source_reads_where_they_stand(
    tmp_path: Path, text: str, initial: bool, pieces: list[str]
) -> None:
    source = word_piece(tmp_path, lower_case=True)
    assert parts(source, Surface(text, initial)) == pieces


def test_spaces_are_no_part_and_bytes_of_characters_are(tmp_path: Path) -> None:
    source = byte_level(tmp_path)
    assert parts(source, Surface("ab", True)) == ["a", "b"]
    assert parts(source, Surface("fen", False)) == ["fen"]
    assert parts(source, Surface("ж", False)) == ["Ð"]


@pytest.fixture
def source(tmp_path: Path) -> tuple[Vocabulary, Tokenizer]:
    pieces = word_piece(tmp_path)
    found = Vocabulary(len(pieces), WIDTH)
    generator = torch.Generator().manual_seed(2)
    lengths_V1 = torch.rand(len(pieces), 1, generator=generator) + 0.5
    rows_VD = torch.nn.functional.normalize(torch.randn(len(pieces), WIDTH, generator=generator))
    found.table_VD = torch.nn.Parameter(rows_VD * lengths_V1)
    return found, pieces


def test_rows_without_translations_are_those_of_the_text_and_fitted_only_where_the_source_cannot_read_it(
    source: tuple[Vocabulary, Tokenizer],
) -> None:
    rows, pieces = source
    own = target(Surface("jared", True), Surface("harbourmaster", True), Surface("шш", True), Surface("re", True))
    mixer = RowMixer.of(rows, pieces, own, seed=1, rescales=False)
    harbour, master, jared, again = (pieces.pieces().index(each) for each in ("harbour", "##master", "jared", "re"))
    translated = scipy.sparse.csr_array(
        (np.ones(1, np.float32), ([FIRST + 3], [jared])), shape=mixer.decomposed_TS.shape
    )
    made = translate_rows(mixer, AlignmentResource.DICTIONARY, TranslationTable(translated, pairs=1, left_out={}))
    table_VD = rows.table_VD.detach()
    assert torch.equal(made.rows.table_VD[FIRST], table_VD[jared])
    torch.testing.assert_close(made.rows.table_VD[FIRST + 1], (7 * table_VD[harbour] + 6 * table_VD[master]) / 13)
    assert torch.equal(made.rows.table_VD[FIRST + 2], mixer.fitted.table_VD[FIRST + 2])
    assert torch.equal(made.rows.table_VD[FIRST + 3], table_VD[jared])  # translated, not copied from `again`
    assert not torch.equal(table_VD[jared], table_VD[again])
    assert (made.quality.translated, made.quality.copied_of_shared, made.quality.shared) == (1, 1, 2)
    assert made.quality.summary.startswith("from dictionary (1 pairs): rows 1 from translations, 1 of 2 shared ones")
    assert made.quality.metrics == {"alignment_succeeded": 1.0}


def test_means_are_as_long_as_the_rows_that_they_are_means_of(source: tuple[Vocabulary, Tokenizer]) -> None:
    rows, pieces = source
    own = target(Surface("harbourmaster", True), Surface("jared", True), Surface("master", False))
    mixer = RowMixer.of(rows, pieces, own, seed=1, rescales=True)
    found_VD, lengths_V = mixer.mix(mixer.nothing).table_VD, rows.table_VD.detach().norm(dim=1)
    harbour, master, jared = (pieces.pieces().index(each) for each in ("harbour", "##master", "jared"))
    expected = torch.stack([(7 * lengths_V[harbour] + 6 * lengths_V[master]) / 13, lengths_V[jared], lengths_V[master]])
    torch.testing.assert_close(found_VD[FIRST:].norm(dim=1), expected)
    assert torch.equal(found_VD[FIRST + 1], rows.table_VD[jared])
