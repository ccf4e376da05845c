import numpy as np
import pytest

from lingraft.data import token_stream
from lingraft.data.documents import Document
from lingraft.data.tokenizer.tokenizer import DEFAULT_SPECIAL_IDS, Tokenizer
from tests.workshop import Workshop


def documents(texts: list[str]) -> list[Document]:
    return [Document(str(number), text) for number, text in enumerate(texts)]


def test_every_document_is_closed_and_in_its_place(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_stream, "_CHUNK_CHARACTERS", 10)
    pieces = Tokenizer.load(workshop.tokenizers["de"])
    texts = ["ein haus", "", "der hund und die katze", "x" * 50] * 5
    expected = [token for text in texts for token in [*pieces.encode(text), DEFAULT_SPECIAL_IDS.end]]
    for workers in (1, 2):
        streams = list(token_stream.token_stream(documents(texts), pieces, np.dtype(np.uint16), workers))
        assert len(streams) > 4
        assert np.concatenate(streams).tolist() == expected


def test_workers_do_without_pytorch() -> None:
    import subprocess
    import sys

    program = "import sys; import lingraft.data.token_stream; print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"
