"""Words of a language beside the source's nearest ones."""

import torch

from lingraft.model.encoder import Vocabulary
from lingraft.model.initialisation.piece_classes import Pieces
from lingraft.stages.nearest_words import nearest_words
from lingraft.stages.results import NearestWords
from tests.model.initialisation.test_initial_rows import Listed, own

WIDTH = 64
SOURCE = own(" house", " file", " window", " Writer", " 12", " ing", "ing", ",", " the")
TARGET = own(" haus", " datei", " fenst", "er", " Writer", " 12", "12", " der", " Haus", ",", " the", " writer")


def vocabulary(pieces: Pieces, rows: dict[int, torch.Tensor]) -> Vocabulary:
    """Random rows, but for those given."""
    found = Vocabulary(0, WIDTH)
    table_VD = torch.randn(len(pieces), WIDTH, generator=torch.Generator().manual_seed(len(pieces)))
    for index, row in rows.items():
        table_VD[index] = row
    found.table_VD = torch.nn.Parameter(table_VD)
    return found


def place(pieces: Listed, text: str) -> int:
    """Id of the first piece that reads so; a leading space marks one that begins a word."""
    wanted = (text.strip(), text.startswith(" "))
    return next(index for index, each in enumerate(pieces.listed) if each and tuple(each) == wanted)


def blocks(pieces: Listed, *texts: str) -> torch.Tensor:
    return torch.tensor([[place(pieces, text) for text in texts]])


def found(blocks_NT: torch.Tensor, target: Listed = TARGET, source: Listed = SOURCE) -> tuple[NearestWords, ...]:
    """With rows that have "house" nearest to the first word before training, and "file" after it."""
    rows, word = vocabulary(source, {}), next(index for index, each in enumerate(target.listed) if each)
    before, after = (
        vocabulary(target, {word: rows.table_VD[place(source, text)].detach()}) for text in (" house", " file")
    )
    return nearest_words(rows, source, target, blocks_NT, before, after)


TEXT = blocks(TARGET, " haus", " datei", " haus", ",", " fenst", "er", " Writer", " 12", "12", " der", " the", " haus")


def test_a_word_stands_beside_what_its_row_is_near_before_and_after_training() -> None:
    house, *_ = found(TEXT)
    assert (house.word, house.shared) == ("haus", False)
    assert (house.before[0].piece, house.after[0].piece) == ("house", "file")
    for neighbours in (house.before, house.after):
        cosines = [each.cosine for each in neighbours]
        assert len(cosines) == 3
        assert cosines == sorted(cosines, reverse=True)
        assert cosines[0] > 0.9 > 0.6 > cosines[1]


def test_words_are_whole_long_frequent_and_not_the_source_s() -> None:
    words = [each.word for each in found(TEXT) if not each.shared]
    assert words == ["haus", "datei"]  # not "fenst", which goes on, nor "der", "the" and ","
    assert [each.word for each in found(blocks(TARGET, " datei", " datei", " haus", " Haus"))] == ["datei", "haus"]


def test_shared_names_and_numbers_stand_apart_and_once() -> None:
    shared = [each.word for each in found(TEXT) if each.shared]
    assert shared == ["Writer", "12"]


def test_neighbours_are_words_and_numbers_and_never_special_pieces() -> None:
    pieces = {near.piece for each in found(TEXT) for near in (*each.before, *each.after)}
    assert pieces <= {"house", "file", "window", "Writer", "12", "ing", "the"}


def test_a_script_without_spaces_has_words_too() -> None:
    target = own("文件", "的", "窗口", "文本", "单元格", ",")
    words = [each.word for each in found(blocks(target, "窗口", "的", "文件", "的", ",", "窗口"), target)]
    assert words == ["窗口", "文件"]


def test_at_most_twelve_words_are_shown() -> None:
    target = own(*(f" wort{chr(97 + number)}" for number in range(20)))
    assert len(found(torch.arange(len(target) - 20, len(target))[None], target)) == 12
