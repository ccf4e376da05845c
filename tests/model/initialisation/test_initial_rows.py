from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer as FastTokenizer
from tokenizers import decoders, models, normalizers, pre_tokenizers

from lingraft.data.tokenizer.pieces import DEFAULT_SPECIAL_IDS, SPECIAL_PIECES, SpecialIds, Surface
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.errors import TokenizerError
from lingraft.model.encoder import INITIAL_STD, Vocabulary
from lingraft.model.initialisation.initial_rows import InitialRows, initialise_rows, shared_pieces
from lingraft.model.initialisation.piece_classes import Pieces
from tests.huggingface.scripts import trained
from tests.workshop import Workshop

WIDTH = 24
ELSEWHERE = SpecialIds(begin=6, pad=0, end=7, unknown=3, mask=9)


@dataclass(frozen=True)
class Listed:
    """Pieces given one by one; None at special ids."""

    listed: list[Surface | None]
    special: SpecialIds = field(default=DEFAULT_SPECIAL_IDS)

    def __len__(self) -> int:
        return len(self.listed)

    def surfaces(self) -> list[Surface | None]:
        return self.listed


OWN = (None,) * len(DEFAULT_SPECIAL_IDS)


def own(*texts: str) -> Listed:
    """A vocabulary with our special ids; a leading space marks pieces that begin a word."""
    return Listed([*OWN, *[Surface(text.strip(), text.startswith(" ")) for text in texts]])


SOURCE = Listed(
    [
        None,
        Surface("ba", True),
        Surface("de", False),
        None,
        Surface("ki", True),
        *[None] * 3,
        Surface("lo", True),
        None,
    ],
    ELSEWHERE,
)
TARGET = own(" lo", " xa", "ba", " ba", "de", "", *(f"new{number}" for number in range(500)))


def vocabulary(pieces: Pieces, table_VD: torch.Tensor | None = None, bias_V: torch.Tensor | None = None) -> Vocabulary:
    """Every number of it is another one, unless given."""
    found, size = Vocabulary(0, WIDTH), len(pieces)
    numbers_VD = torch.arange(size * WIDTH, dtype=torch.float32).view(size, WIDTH) + 10
    found.table_VD = torch.nn.Parameter(numbers_VD if table_VD is None else table_VD)
    found.bias_V = torch.nn.Parameter(torch.arange(size, dtype=torch.float32) + 1 if bias_V is None else bias_V)
    return found


def rows(fitted: bool = False, seed: int = 1) -> InitialRows:
    return initialise_rows(vocabulary(SOURCE), SOURCE, TARGET, torch.Generator().manual_seed(seed), fitted)


def test_pieces_are_shared_if_they_read_alike_and_agree_in_beginning_a_word() -> None:
    assert shared_pieces(SOURCE, TARGET) == {5: 8, 8: 1, 9: 2}
    assert shared_pieces(TARGET, own(" la")) == {}
    assert shared_pieces(own(" a", " a"), own("b", " a")) == {6: 5}


@pytest.mark.parametrize("fitted", [False, True])
def test_special_rows_are_copied_by_role(fitted: bool) -> None:
    found, source = rows(fitted), vocabulary(SOURCE)
    for target, origin in zip(DEFAULT_SPECIAL_IDS, ELSEWHERE, strict=True):
        assert torch.equal(found.table_VD[target], source.table_VD[origin])
        assert found.bias_V[target] == source.bias_V[origin]


def test_a_piece_that_does_not_tell_agrees_with_any_but_comes_behind_one_that_does() -> None:
    untold = Listed([*OWN, Surface(",", None), Surface("a", False)])
    assert shared_pieces(untold, own(" ,", ",", " a", "a")) == {5: 5, 6: 5, 8: 6}
    assert shared_pieces(own(" ,", ","), untold) == {5: 6}
    assert shared_pieces(own(" ,"), untold) == {5: 5}
    both = Listed([*OWN, Surface(",", None), Surface(",", True), Surface(",", False)])
    assert shared_pieces(both, both) == {5: 5, 6: 6, 7: 7}


def test_a_special_piece_is_never_matched_by_how_it_reads() -> None:
    spelled = Listed([*own(" a").listed[:4], Surface("a", True), Surface("a", True)])
    assert shared_pieces(spelled, spelled) == {5: 5}


@pytest.mark.parametrize("fitted", [False, True])
def test_rows_of_shared_pieces_are_copied_bit_for_bit_with_their_bias(fitted: bool) -> None:
    found, source = rows(fitted), vocabulary(SOURCE)
    assert found.copied == len(DEFAULT_SPECIAL_IDS) + 3
    for mine, theirs in {5: 8, 8: 1, 9: 2}.items():
        assert torch.equal(found.table_VD[mine], source.table_VD[theirs])
        assert found.bias_V[mine] == source.bias_V[theirs]


def test_all_other_rows_are_drawn_anew_and_none_is_zero() -> None:
    found = rows()
    drawn = found.table_VD[10:]
    assert float(drawn.std()) == pytest.approx(INITIAL_STD, rel=0.05)
    assert float(drawn.mean()) == pytest.approx(0, abs=0.001)
    assert drawn.any(dim=1).all()
    assert len(drawn.unique(dim=0)) == len(drawn)
    assert found.bias_V.count_nonzero() == found.copied


def test_a_tokenizer_of_another_size_is_refused() -> None:
    with pytest.raises(TokenizerError, match="10 rows, but its tokenizer 511 pieces"):
        initialise_rows(vocabulary(SOURCE), TARGET, TARGET, torch.Generator())
    with pytest.raises(TokenizerError, match="all 5 pieces of the source are special"):
        initialise_rows(vocabulary(own()), own(), TARGET, torch.Generator())


def fast(model: models.Model, around: str, path: Path) -> Tokenizer:
    """A Hugging Face tokenizer file with its special pieces first."""
    made = FastTokenizer(model)
    if around == "bytes":
        made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    elif around == "bert":
        made.normalizer, made.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    else:
        made.pre_tokenizer, made.decoder = pre_tokenizers.Whitespace(), decoders.WordPiece()
    made.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    made.save(str(path))
    return Tokenizer.from_file(path, "en")


def test_pieces_of_different_kinds_of_tokenizers_meet(tmp_path: Path, workshop: Workshop) -> None:
    ours = Tokenizer.load(workshop.tokenizers["en"])
    read = {surface: index for index, surface in enumerate(ours.surfaces()) if surface and surface.text.isascii()}
    begins = next(surface.text for surface in read if surface.initial and len(surface.text) > 1)
    goes_on = next(surface.text for surface in read if not surface.initial and surface.text)
    special = {piece: index for index, piece in enumerate(("<s>", "<pad>", "</s>", "<unk>", "<mask>"))}
    in_bytes = special | {f"\u0120{begins}": 5, goes_on: 6}
    in_words = special | {begins: 5, f"##{goes_on}": 6}
    expected = {read[Surface(begins, True)]: 5, read[Surface(goes_on, False)]: 6}
    for name, model in (("bytes", models.BPE(in_bytes, [])), ("words", models.WordPiece(in_words, unk_token="<unk>"))):
        assert shared_pieces(fast(model, name, tmp_path / f"{name}.json"), ours) == expected


ALONE = [",", ".", "港"]
"""Words of their own to BERT, wherever they stand."""


def alone_in(kind: str, folder: Path) -> Tokenizer:
    """A tokenizer that has each character alone, without a mark of a word's beginning."""
    if kind == "sentencepiece":
        return trained(["港港,港.港,,港..a"] * 9, folder, 12, "xx")
    special = {piece: index for index, piece in enumerate(SPECIAL_PIECES)}
    if kind == "bert":
        pieces = special | {piece: 5 + place for place, piece in enumerate([*(f"##{each}" for each in ALONE), *ALONE])}
        model: models.Model = models.WordPiece(pieces, unk_token="<unk>")
    else:
        model = models.BPE(special | {",": 5, ".": 6, "æ¸¯": 7}, [])  # GPT-2's characters for the bytes of 港
    folder.mkdir()
    return fast(model, kind, folder / "tokenizer.json")


@pytest.mark.parametrize("other", ["sentencepiece", "bytes"])
def test_punctuation_and_chinese_characters_of_bert_meet_those_of_other_tokenizers(other: str, tmp_path: Path) -> None:
    """BERT has them without a prefix inside a word too; its rows of those with a prefix were never trained."""
    bert, theirs = alone_in("bert", tmp_path / "bert"), alone_in(other, tmp_path / other)
    in_bert = {piece: index for index, piece in enumerate(bert.pieces())}
    elsewhere = {surface: index for index, surface in enumerate(theirs.surfaces())}
    same = {in_bert[piece]: elsewhere[Surface(piece, False)] for piece in ALONE}
    untrained = {in_bert[f"##{piece}"] for piece in ALONE}
    to_theirs, to_bert = shared_pieces(bert, theirs), shared_pieces(theirs, bert)
    assert same.items() <= to_bert.items()
    assert {other: own for own, other in same.items()}.items() <= to_theirs.items()
    assert untrained.isdisjoint(to_theirs.values())
    assert untrained.isdisjoint(to_bert)


def kinds(count: int, letters: str = "abcdefghij") -> Listed:
    """As many pieces, half of which begin a word, in no order."""
    drawn = torch.randint(len(letters), (count, 3), generator=torch.Generator().manual_seed(7)).tolist()
    return own(
        *(" " * (index * 7 % 3 == 0) + "".join(letters[each] for each in row) for index, row in enumerate(drawn))
    )


def initial(pieces: Pieces) -> torch.Tensor:
    return torch.tensor([float(surface is not None and surface.initial) for surface in pieces.surfaces()])


def fitted(source: Pieces, target: Pieces, table_VD: torch.Tensor, bias_V: torch.Tensor) -> InitialRows:
    own_rows = vocabulary(source, table_VD, bias_V)
    return initialise_rows(own_rows, source, target, torch.Generator().manual_seed(1), fitted=True)


def test_fitted_rows_follow_the_source_by_class_and_frequency() -> None:
    source, target = kinds(2000), kinds(400, letters="klmnopqrst")
    direction_D, noise_VD = torch.linspace(-1, 1, WIDTH), torch.randn(len(source), WIDTH) * 0.1
    place_V = torch.log(torch.arange(len(source)) - 5 + 2.0).nan_to_num(0)
    table_VD = (initial(source) + 0.3 * place_V)[:, None] * direction_D + noise_VD
    found = fitted(source, target, table_VD, -place_V)
    wanted_VD = (initial(target) + 0.3 * place_V[: len(target)])[:, None] * direction_D
    left = (found.table_VD - wanted_VD)[5:]
    assert float(left.std()) == pytest.approx(0.1, rel=0.05)
    assert float(left.mean(0).abs().max()) < 0.03
    assert torch.allclose(found.bias_V[5:], -place_V[5 : len(target)], atol=0.01)


def test_fitted_rows_follow_the_source_by_script() -> None:
    source = own(*"aбcгdдfзgкhлkпmтsфtшwщ" * 20)
    shift_V = torch.tensor([float(surface is not None and surface.text > "z") for surface in source.listed])
    found = fitted(source, own("б", "b", "ก"), shift_V[:, None].expand(-1, WIDTH) * 5, torch.zeros(len(source)))
    cyrillic, latin, unseen = found.table_VD[5:].mean(1).tolist()
    assert cyrillic == pytest.approx(5, abs=0.3)
    assert latin == pytest.approx(0, abs=0.3)
    assert unseen == pytest.approx(2.5, abs=0.3)
