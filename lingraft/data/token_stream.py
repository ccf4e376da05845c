"""Tokenization of documents on all cores into one stream of token ids.

The stream does not depend on the number of cores. Worker processes import this module, so it does without PyTorch.
"""

import functools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lingraft.data.documents import Document, batch_documents
from lingraft.data.pool import parallel_map
from lingraft.data.tokenizer.pieces import SpecialIds
from lingraft.data.tokenizer.tokenizer import Tokenizer

_CHUNK_CHARACTERS = 1 << 18
"""Characters of the documents that a worker gets at once."""


def token_stream(
    documents: Iterable[Document], pieces: Tokenizer, dtype: "np.dtype[Any]", workers: int | None = None
) -> Iterator[NDArray[Any]]:
    """Yield the ids of document after document, each closed by </s>, in chunks (n) of varying length.

    Args:
        documents: documents, taken as they are needed.
        pieces: the tokenizer.
        dtype: type of the ids.
        workers: number of processes; as many as there are cores if None.
    """
    work = functools.partial(_encode, pieces.model.resolve(), pieces.language, pieces.special, dtype)
    chunks = ([document.text for document in portion] for portion in batch_documents(documents, _CHUNK_CHARACTERS))
    return parallel_map(work, chunks, workers)


def _encode(model: Path, language: str, special: SpecialIds, dtype: "np.dtype[Any]", texts: list[str]) -> NDArray[Any]:
    pieces = _load_tokenizer(model, language, special)
    ids: list[int] = []
    for text in texts:
        ids += pieces.encode(text)
        ids.append(special.end)
    return np.array(ids, dtype)


@functools.lru_cache(maxsize=1)
def _load_tokenizer(model: Path, language: str, special: SpecialIds) -> Tokenizer:
    return Tokenizer.from_file(model, language, special)
