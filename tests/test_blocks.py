from itertools import islice
from pathlib import Path

import pytest
import torch

from lingraft import blocks
from lingraft.artifact import Artifact, Kind
from lingraft.blocks import batches, load_blocks, pack
from lingraft.config import Recipe
from lingraft.errors import ArtifactError, TextError, TokenizerError
from lingraft.pieces import ByRole
from lingraft.text import SPLITS, load_split
from lingraft.tokenizer import OWN_IDS, Tokenizer
from tests.workshop import Workshop

BEGIN, END = OWN_IDS.begin, OWN_IDS.end


def with_length(recipe: Recipe, block_tokens: int) -> Recipe:
    return recipe.model_copy(update={"encoder": recipe.encoder.model_copy(update={"block_tokens": block_tokens})})


def test_packing_loses_and_adds_nothing_but_the_end() -> None:
    documents = [[10, 11, 12], [], [13], list(range(20, 40)), [14]]
    blocks_NT = pack(documents, 8, OWN_IDS)
    assert blocks_NT.shape == (4, 8)
    assert blocks_NT.dtype == torch.int32
    assert blocks_NT[:, 0].tolist() == [BEGIN] * 4
    stream = [token for ids in documents for token in [*ids, END]]
    assert blocks_NT[:, 1:].flatten().tolist() == stream[: 4 * 7]
    assert len(stream) - 4 * 7 < 7


def test_what_fills_no_block_gives_none() -> None:
    assert len(pack([[10, 11], [12]], 8, OWN_IDS)) == 0
    assert len(pack([[10, 11, 12], [13, 14]], 8, OWN_IDS)) == 1


def test_blocks_are_framed_by_the_tokenizers_own_special_ids() -> None:
    special = ByRole(begin=101, pad=0, end=102, unknown=100, mask=103)
    blocks_NT = pack([[1, 2, 3], [4, 5], [6, 7, 8]], 6, special)
    assert blocks_NT.tolist() == [[101, 1, 2, 3, 102, 4], [101, 5, 102, 6, 7, 8]]


def test_blocks_hold_the_text_of_their_split_and_count_the_rest(workshop: Workshop) -> None:
    for language, folder in workshop.blocks.items():
        found = Artifact.load(folder, Kind.BLOCKS)
        pieces = Tokenizer.load(workshop.tokenizers[language])
        for split in SPLITS:
            texts = [
                document.text for document in load_split(Artifact.load(workshop.texts[language], Kind.TEXT), split)
            ]
            stream = [token for ids in pieces.encode_all(texts) for token in [*ids, END]]
            packed = found.tensors(split)["tokens_NT"][:, 1:].flatten().tolist()
            assert packed == stream[: len(packed)]
            assert found.manifest.details["tokens_left_out"][split] == len(stream) - len(packed)
            assert found.manifest.details["tokens"][split] == found.tensors(split)["tokens_NT"].numel()


def test_no_document_stands_in_two_splits(workshop: Workshop) -> None:
    names = {
        language: [{document.name for document in load_split(Artifact.load(folder, Kind.TEXT), s)} for s in SPLITS]
        for language, folder in workshop.texts.items()
    }
    for train, dev, test in names.values():
        assert train & dev == train & test == dev & test == set()
    seen_in_training = set.union(*(train for train, _, _ in names.values()))
    judged = set.union(*(test for _, _, test in names.values()))
    assert seen_in_training & judged == set()
    assert judged


def test_blocks_are_small_integers_without_padding(workshop: Workshop) -> None:
    for folder in workshop.blocks.values():
        tokens_NT = Artifact.load(folder, Kind.BLOCKS).tensors("train")["tokens_NT"]
        assert tokens_NT.shape[1] == workshop.recipe.encoder.block_tokens
        assert int(tokens_NT.max()) < workshop.recipe.tokenizer.vocabulary
        assert not (tokens_NT[:, 1:] == BEGIN).any()


def test_every_block_comes_once_an_epoch_in_a_new_order() -> None:
    blocks_NT = torch.arange(10).view(10, 1)
    drawn = torch.cat(list(islice(batches(blocks_NT, 4, torch.Generator().manual_seed(1)), 5))).flatten()
    first, second = drawn[:10].tolist(), drawn[10:].tolist()
    assert sorted(first) == sorted(second) == list(range(10))
    assert first != second


def test_batches_are_full_even_where_they_are_larger_than_an_epoch() -> None:
    drawn = list(islice(batches(torch.arange(3).view(3, 1), 8, torch.Generator().manual_seed(1)), 3))
    assert [batch_BT.shape for batch_BT in drawn] == [(8, 1)] * 3
    assert torch.cat(drawn).flatten().bincount().tolist() == [8, 8, 8]
    assert drawn[0].dtype == torch.int64


def test_the_seed_decides_the_order() -> None:
    blocks_NT = torch.arange(100).view(100, 1)
    one, same, other = (next(batches(blocks_NT, 50, torch.Generator().manual_seed(seed))) for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_blocks_made_with_another_tokenizer_are_refused_with_both_hashes(workshop: Workshop) -> None:
    german, turkish = (Tokenizer.load(workshop.tokenizers[language]) for language in ("de", "tr"))
    with pytest.raises(TokenizerError) as caught:
        load_blocks(workshop.blocks["de"], turkish, workshop.recipe.encoder.block_tokens)
    assert german.hash in str(caught.value)
    assert turkish.hash in str(caught.value)


def test_blocks_of_another_length_are_refused_with_both_lengths(workshop: Workshop) -> None:
    with pytest.raises(ArtifactError, match="blocks of 32 tokens, but the recipe says 64"):
        load_blocks(workshop.blocks["de"], Tokenizer.load(workshop.tokenizers["de"]), 64)


def test_text_is_not_cut_by_the_tokenizer_of_another_language(workshop: Workshop, tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="the tokenizer of 'tr', not of 'de'"):
        blocks.build(workshop.recipe, workshop.texts["de"], workshop.tokenizers["tr"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_language_without_a_tokenizer_gets_no_blocks(workshop: Workshop, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"absent is not an artifact"):
        blocks.build(workshop.recipe, workshop.texts["de"], tmp_path / "absent", tmp_path / "out")


def test_text_shorter_than_a_block_is_refused_with_its_split(workshop: Workshop, tmp_path: Path) -> None:
    recipe = with_length(workshop.recipe, 100_000)
    with pytest.raises(TextError, match="the train split of 'de' is shorter than a block: 100000"):
        blocks.build(recipe, workshop.texts["de"], workshop.tokenizers["de"], tmp_path / "out")
    assert not (tmp_path / "out").exists()
