from pathlib import Path

import numpy as np
import pytest

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.config.recipe import Recipe
from lingraft.data import blocks
from lingraft.data.blocks import load_blocks, pack_blocks
from lingraft.data.documents import Document
from lingraft.data.text import SPLITS, load_split
from lingraft.data.tokenizer.pieces import DEFAULT_SPECIAL_IDS
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.errors import TextError, TokenizerError
from tests.workshop import Workshop

BEGIN, END = DEFAULT_SPECIAL_IDS.begin, DEFAULT_SPECIAL_IDS.end


def with_length(recipe: Recipe, block_tokens: int) -> Recipe:
    return recipe.model_copy(update={"encoder": recipe.encoder.model_copy(update={"block_tokens": block_tokens})})


@pytest.mark.parametrize(("length", "count"), [(0, 0), (6, 0), (30, 4)])
def test_packing_loses_and_adds_nothing(length: int, count: int) -> None:
    stream = np.arange(10, 10 + length, dtype=np.uint16)
    blocks_NT, rest = pack_blocks(stream, 8, BEGIN)
    assert blocks_NT.shape == (count, 8)
    assert blocks_NT.dtype == rest.dtype == np.uint16
    assert blocks_NT[:, 0].tolist() == [BEGIN] * count
    assert [*blocks_NT[:, 1:].flatten().tolist(), *rest.tolist()] == stream.tolist()


def test_blocks_hold_the_text_of_their_split_and_count_the_rest(workshop: Workshop) -> None:
    for language, folder in workshop.blocks.items():
        found = Artifact.load(folder, Kind.BLOCKS)
        pieces = Tokenizer.load(workshop.tokenizers[language])
        for split in SPLITS:
            texts = [
                document.text for document in load_split(Artifact.load(workshop.texts[language], Kind.TEXT), split)
            ]
            stream = [token for ids in pieces.encode_all(texts) for token in [*ids, END]]
            blocks_NT = blocks.open_split(found, split).all()
            packed = blocks_NT[:, 1:].flatten().tolist()
            assert packed == stream[: len(packed)]
            assert found.manifest.details["tokens_left_out"][split] == len(stream) - len(packed)
            assert found.manifest.details["tokens"][split] == blocks_NT.numel()


def test_blocks_made_with_another_tokenizer_are_refused_with_both_hashes(workshop: Workshop) -> None:
    german, turkish = (Tokenizer.load(workshop.tokenizers[language]) for language in ("de", "tr"))
    with pytest.raises(TokenizerError) as caught:
        load_blocks(workshop.blocks["de"], turkish, workshop.recipe.encoder.block_tokens)
    assert german.hash in str(caught.value)
    assert turkish.hash in str(caught.value)


def test_text_shorter_than_a_block_is_refused_with_its_split(workshop: Workshop, tmp_path: Path) -> None:
    recipe = with_length(workshop.recipe, 100_000)
    with pytest.raises(TextError, match="the train split of 'de' is shorter than a block: 100000"):
        blocks.build(recipe, workshop.texts["de"], workshop.tokenizers["de"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_every_document_is_closed_and_in_its_place(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "_CHUNK_CHARACTERS", 10)
    pieces = Tokenizer.load(workshop.tokenizers["de"])
    texts = ["ein haus", "", "der hund und die katze", "x" * 50] * 5
    documents = [Document(str(number), text) for number, text in enumerate(texts)]
    streams = list(blocks.token_stream(documents, pieces, np.dtype(np.uint16)))
    assert len(streams) > 4
    assert np.concatenate(streams).tolist() == [
        token for text in texts for token in [*pieces.encode(text), DEFAULT_SPECIAL_IDS.end]
    ]
