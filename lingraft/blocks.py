"""Text to packed, fixed-length blocks of token ids: full length everywhere, so that no attention mask is needed.

Each block begins with <s>; documents stand one after the other, each closed by </s> (RoBERTa's FULL-SENTENCES).
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from lingraft import artifact
from lingraft.artifact import Artifact, Kind
from lingraft.config import Recipe
from lingraft.errors import ArtifactError, TextError, TokenizerError
from lingraft.pieces import SpecialIds
from lingraft.shards import TENSOR, Blocks, LocalShards
from lingraft.text import SPLITS, SplitName, load_split
from lingraft.tokenizer import Tokenizer


def build(recipe: Recipe, text: Path, tokenizer: Path, out: Path) -> Artifact:
    """Tokenize and pack all splits of one language.

    Raises:
        TokenizerError: the tokenizer belongs to another language.
        TextError: a split is shorter than one block.
        ArtifactError: an input is not what it should be, or `out` cannot be written.
    """
    source = Artifact.load(text, Kind.TEXT)
    pieces = Tokenizer.load(tokenizer, source.manifest.language)
    length = recipe.encoder.block_tokens
    with artifact.create(out, Kind.BLOCKS) as draft:
        counts, left_out = {}, {}
        for name in SPLITS:
            documents = pieces.encode_all([document.text for document in load_split(source, name)])
            blocks_NT = pack(documents, length, pieces.special)
            if not len(blocks_NT):
                raise TextError(
                    f"the {name} split of {source.manifest.language!r} is shorter than a block: {length}. "
                    "Bring more text, raise the split's share, or lower encoder.block_tokens."
                )
            draft.tensors(name, {"tokens_NT": blocks_NT})
            counts[name] = blocks_NT.numel()
            left_out[name] = sum(map(len, documents)) + len(documents) - len(blocks_NT) * (length - 1)
        draft.facts = {
            "language": source.manifest.language,
            "tokenizer_hash": pieces.hash,
            "data_hashes": {"text": source.fingerprint},
            "details": {
                "tokens": counts,
                "tokens_left_out": left_out,
                "block_tokens": length,
                "vocabulary": len(pieces),
            },
        }
    return Artifact.load(out, Kind.BLOCKS)


def load_blocks(folder: Path, tokenizer: Tokenizer, block_tokens: int) -> Artifact:
    """Open blocks of the length given that were made with the tokenizer given.

    Raises:
        ArtifactError: not blocks, damaged, or of another length.
        TokenizerError: they were made with another tokenizer.
    """
    found = Artifact.load(folder, Kind.BLOCKS)
    made_with = found.manifest.tokenizer_hash
    if made_with != tokenizer.hash:
        raise TokenizerError(
            f"{folder} was made with tokenizer {made_with}, not with {tokenizer.hash} of {tokenizer.language!r}. "
            "Make the blocks again with this tokenizer."
        )
    length = found.manifest.details["block_tokens"]
    if length != block_tokens:
        raise ArtifactError(
            f"{folder} has blocks of {length} tokens, but the recipe says {block_tokens}. Make them again with it."
        )
    return found


def split(blocks: Artifact, name: SplitName) -> Blocks:
    """The blocks of one split, by row number; each shard is compared with its hash before its first use."""
    count, block_tokens = blocks.manifest.shapes[name][TENSOR]
    return Blocks(count, block_tokens, count, None, LocalShards(blocks, [f"{name}.safetensors"]))


def pack(documents: list[list[int]], block_tokens: int, special: SpecialIds) -> Tensor:
    """Pack documents into (N blocks, T tokens), int32; a last block that is not full is left out."""
    stream = np.concatenate([np.asarray([*ids, special.end], dtype=np.int32) for ids in documents])
    body = block_tokens - 1
    count = len(stream) // body
    blocks_NT = np.full((count, block_tokens), special.begin, dtype=np.int32)
    blocks_NT[:, 1:] = stream[: count * body].reshape(count, body)
    return torch.from_numpy(blocks_NT)


def batches(blocks_NT: Tensor, batch_blocks: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Endless shuffled batches (B, T), int64: each epoch a new order, every block once an epoch.

    A batch that an epoch's end would cut short is filled from the next epoch.
    """
    order = torch.empty(0, dtype=torch.long)
    while True:
        while len(order) < batch_blocks:
            order = torch.cat([order, torch.randperm(len(blocks_NT), generator=generator)])
        chosen, order = order[:batch_blocks], order[batch_blocks:]
        yield blocks_NT[chosen].long()
