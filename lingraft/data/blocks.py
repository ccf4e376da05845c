"""Packing of text into blocks of token ids, all of full length, so that they need no attention mask.

Each block begins with <s>; documents stand one after the other, each closed by </s> (RoBERTa's FULL-SENTENCES).
"""

import functools
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from lingraft.artifacts import artifact
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.artifacts.remote import open_remote, uri_of
from lingraft.artifacts.token_ids import TENSOR, Ids, ids_dtype, map_ids
from lingraft.config.recipe import Recipe
from lingraft.console import with_progress
from lingraft.data.documents import Document, batch_documents
from lingraft.data.shards import SHARD_BYTES, Blocks, BlockWriter
from lingraft.data.text import SPLITS, SplitName, read_split
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.errors import ArtifactError, TextError, TokenizerError

_CHUNK_CHARACTERS = 1 << 20
"""Characters of the documents that are encoded at once, on all cores."""


def build(recipe: Recipe, text: Path, tokenizer: Path, out: Path, shard_bytes: int = SHARD_BYTES) -> Artifact:
    """Tokenize and pack all splits of one language as a stream, never holding a split in memory."""
    source = Artifact.load(text, Kind.TEXT)
    pieces = Tokenizer.load(tokenizer, source.manifest.language)
    length = recipe.encoder.block_tokens
    with artifact.create(out, Kind.BLOCKS) as draft:
        counts, left_out = {}, {}
        for name in SPLITS:
            writer = BlockWriter(draft, name, length, len(pieces), shard_bytes)
            left_out[name] = _write(_documents(source, name), pieces, writer, recipe)
            if not writer.count:
                raise TextError(
                    f"the {name} split of {source.manifest.language!r} is shorter than a block: {length}. "
                    "Give more text, raise the split's share, or lower encoder.block_tokens."
                )
            counts[name] = writer.count * length
        draft.facts = {
            "language": source.manifest.language,
            "tokenizer_hash": pieces.hash,
            "data_hashes": {"text": source.fingerprint} | source.manifest.data_hashes,
            "details": {
                "tokens": counts,
                "tokens_left_out": left_out,
                "block_tokens": length,
                "vocabulary": len(pieces),
            },
        }
    return Artifact.open(out, Kind.BLOCKS)


def _documents(text: Artifact, split: SplitName) -> Iterator[Document]:
    total = text.manifest.detail("documents", dict[SplitName, int]).get(split, 0)
    return with_progress(read_split(text, split), f"blocks {text.manifest.language} {split}", "document", total)


def _write(documents: Iterator[Document], pieces: Tokenizer, writer: BlockWriter, recipe: Recipe) -> int:
    """Write a split, and return how many of its tokens fill no block.

    Where no masked tokens are predicted, words are only looked up in blocks: of a long split there are some, and a
    short one is repeated to fill one.
    """
    rest = np.empty(0, writer.dtype)
    for stream in token_stream(documents, pieces, writer.dtype):
        blocks_NT, rest = pack_blocks(np.concatenate([rest, stream]), writer.block_tokens, pieces.special.begin)
        writer.add(blocks_NT)
        if writer.count and not recipe.has_masked_tokens:
            break
    if not writer.count and not recipe.has_masked_tokens:
        filling = np.resize([*rest, pieces.special.end], writer.block_tokens - 1)
        blocks_NT, rest = pack_blocks(filling, writer.block_tokens, pieces.special.begin)
        writer.add(blocks_NT)
    writer.close()
    return len(rest)


def token_stream(documents: Iterable[Document], pieces: Tokenizer, dtype: "np.dtype[Any]") -> Iterator[Ids]:
    """Yield the ids of document after document, each closed by </s>, in chunks (n) of varying length."""
    for portion in batch_documents(documents, _CHUNK_CHARACTERS):
        encoded = pieces.encode_all([document.text for document in portion])
        yield np.array([token for ids in encoded for token in (*ids, pieces.special.end)], dtype)


def load_blocks(folder: Path | str, tokenizer: Tokenizer, block_tokens: int) -> Artifact:
    """Open blocks, and check that they have the given length and were made with the given tokenizer.

    Local shards are not read yet: each is verified against its hash before its first use.
    """
    uri = uri_of(folder)
    found = open_remote(uri, Kind.BLOCKS) if uri else Artifact.open(Path(folder), Kind.BLOCKS)
    made_with = found.manifest.tokenizer_hash
    if made_with != tokenizer.hash:
        raise TokenizerError(
            f"{folder} was made with tokenizer {made_with}, not with {tokenizer.hash} of {tokenizer.language!r}. "
            "Make the blocks again with this tokenizer."
        )
    length = found.manifest.detail("block_tokens", int)
    if length != block_tokens:
        raise ArtifactError(
            f"{folder} has blocks of {length} tokens, but the recipe says {block_tokens}. Make them again with it."
        )
    return found


def input_hashes(blocks: Artifact) -> dict[str, str]:
    """Return the hashes of the blocks and of everything they were made from, down to the text's documents."""
    return {"blocks": blocks.fingerprint} | blocks.manifest.data_hashes


def open_split(blocks: Artifact, name: SplitName, sequential: bool = False) -> Blocks:
    """Open the blocks of one split, by row number; each shard is verified against its hash before its first use."""
    manifest = blocks.manifest
    parts = sorted(part for part in manifest.fingerprints if part.startswith(f"{name}-"))
    if not parts:
        raise ArtifactError(
            f"{blocks.folder} was made by lingraft {manifest.library_version} and has no shards of "
            f"its {name} split, only {sorted(manifest.fingerprints)}. Make the blocks again with `lingraft blocks`."
        )
    shapes = [manifest.shapes[part][TENSOR] for part in parts]
    shard_blocks, block_tokens = shapes[0]
    dtype = ids_dtype(manifest.detail("vocabulary", int))
    for part in parts:
        path = blocks.folder / f"{part}.safetensors"
        if path.stat().st_size <= math.prod(manifest.shapes[part][TENSOR]) * dtype.itemsize:
            blocks.verify(path.name)  # a cut file is found now, not after days of training

    @functools.lru_cache(maxsize=1 if sequential else None)
    def shard(number: int) -> Ids:
        blocks.verify(f"{parts[number]}.safetensors")
        return map_ids(blocks.folder / f"{parts[number]}.safetensors")

    return Blocks(
        count=sum(count for count, _ in shapes),
        block_tokens=block_tokens,
        shard_blocks=shard_blocks,
        shard=shard,
    )


def pack_blocks(stream: Ids, block_tokens: int, begin: int) -> tuple[Ids, Ids]:
    """Cut a stream of ids into blocks (N, T) that begin with <s>; return them, and the rest that fills no block."""
    body = block_tokens - 1
    count = len(stream) // body
    blocks_NT = np.full((count, block_tokens), begin, stream.dtype)
    blocks_NT[:, 1:] = stream[: count * body].reshape(count, body)
    return blocks_NT, stream[count * body :]
