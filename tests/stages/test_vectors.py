"""Static vectors as an artifact: what it says of itself, and what is refused."""

from pathlib import Path

import pytest
import torch

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.data.blocks import input_hashes, open_split
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.errors import TokenizerError
from lingraft.model.initialisation.static_vectors import WINDOW, static_vectors
from lingraft.stages.vectors import WIDTH, build_vectors, load_vectors
from tests.workshop import Workshop


@pytest.fixture(scope="module")
def vectors(workshop: Workshop, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(workshop, tmp_path_factory.mktemp("vectors") / "en")


def built(shop: Workshop, out: Path) -> Path:
    build_vectors(shop.recipe, shop.blocks["en"], shop.tokenizers["en"], out)
    return out


def test_the_artifact_has_the_vectors_of_the_training_split(workshop: Workshop, vectors: Path) -> None:
    pieces, blocks = Tokenizer.load(workshop.tokenizers["en"]), Artifact.load(workshop.blocks["en"], Kind.BLOCKS)
    found = load_vectors(vectors, pieces)
    expected = static_vectors(open_split(blocks, "train"), len(pieces), pieces.special, WIDTH, seed=1)
    assert torch.equal(found.vectors_VW, expected.vectors_VW)
    assert torch.equal(found.counts_V, expected.counts_V)
    assert (found.vectors_VW.dtype, found.counts_V.dtype) == (torch.float32, torch.int64)
    manifest = Artifact.load(vectors, Kind.VECTORS).manifest
    assert (manifest.language, manifest.tokenizer_hash) == ("en", pieces.hash)
    assert manifest.data_hashes == input_hashes(blocks)
    assert (manifest.details["width"], manifest.details["window"]) == (WIDTH, WINDOW)
    assert 0 < manifest.details["known"] == int(found.known.sum()) < len(pieces)


def test_vectors_of_another_tokenizer_are_refused(workshop: Workshop, vectors: Path, tmp_path: Path) -> None:
    german = Tokenizer.load(workshop.tokenizers["de"])
    with pytest.raises(TokenizerError, match=rf"not with {german.hash} of 'de'. Compute them again"):
        load_vectors(vectors, german)
    with pytest.raises(TokenizerError, match="Make the blocks again"):
        build_vectors(workshop.recipe, workshop.blocks["en"], workshop.tokenizers["de"], tmp_path / "out")
    assert not (tmp_path / "out").exists()
