"""A language that borrows rows of the source, as transformers and sentence-transformers load it."""

from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file
from transformers import AutoTokenizer

from lingraft.data.tokenizer.borrowed_pieces import choose_borrowed, lower_cases
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.data.tokenizer.unigram import train_unigram
from lingraft.huggingface.export import TOLERANCE, export_hf
from lingraft.huggingface.importing import import_hf
from lingraft.model.loading import load_embeddings, load_primary
from tests.huggingface.checkpoints import LINES, MODEL_TYPES, Made
from tests.huggingface.models import LANGUAGE, write_language, write_task_of
from tests.huggingface.scripts import lines_of


def borrowing(source: Tokenizer, folder: Path) -> Tokenizer:
    """A tokenizer of a language in another script, whose texts have words of the source's."""
    learned = train_unigram(lines_of("Greek", 200), 90, 1.0, lower_cases(source))
    file = folder / "own" / "tokenizer.json"
    learned.write(file, source.hash, choose_borrowed(learned, source))
    return Tokenizer.from_file(file, LANGUAGE)


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_every_kind_of_source_lends_rows_that_transformers_computes_with(
    model_type: str, checkpoints: dict[str, Made], tmp_path: Path
) -> None:
    import_hf(str(checkpoints[model_type].folder), tmp_path / "primary", "en")
    primary = load_primary(tmp_path / "primary")
    pieces = borrowing(primary.tokenizer, tmp_path)
    text = f"{LINES[0]} {lines_of('Greek', 1)[0]} {LINES[1]}"
    assert max(pieces.encode(text)) >= len(pieces.own)
    folder = write_language(tmp_path / "primary", pieces, tmp_path / "embeddings")
    for task in (None, write_task_of("tags", tmp_path / "primary", tmp_path / "task")):
        out = tmp_path / ("masked" if task is None else "tags")
        assert export_hf(tmp_path / "primary", out, folder, task).difference <= TOLERANCE
    masked = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "masked").eval()
    batch = AutoTokenizer.from_pretrained(tmp_path / "masked")(text, return_tensors="pt", truncation=True)
    ids = [pieces.special.begin, *pieces.encode(text), pieces.special.end]
    room = primary.encoder.shape.block_tokens
    assert batch["input_ids"][0].tolist()[: room - 1] == ids[: room - 1]
    learned = load_embeddings(folder)
    primary.swap_in(learned)
    tokens_BT = batch["input_ids"]
    with torch.inference_mode():
        top = primary.encoder.shape.layers
        expected = primary.encoder.eval().masked_logits(tokens_BT, torch.arange(tokens_BT.shape[1]), (top,))[top]
        torch.testing.assert_close(masked(**batch).logits[0], expected, rtol=0, atol=1e-4)
    assert masked.get_input_embeddings().weight.shape[0] == len(pieces) > len(pieces.own)
    whole_VD = masked.get_input_embeddings().weight
    sources_BD = primary.source.table_VD[torch.from_numpy(pieces.borrowed_B).long()]
    assert torch.equal(whole_VD[len(pieces.own) :], sources_BD)


def test_an_embedding_model_holds_the_whole_table(checkpoints: dict[str, Made], tmp_path: Path) -> None:
    import_hf(str(checkpoints["bert"].folder), tmp_path / "primary", "en")
    pieces = borrowing(load_primary(tmp_path / "primary").tokenizer, tmp_path)
    folder = write_language(tmp_path / "primary", pieces, tmp_path / "embeddings")
    task = write_task_of("retrieval", tmp_path / "primary", tmp_path / "task")
    assert export_hf(tmp_path / "primary", tmp_path / "out", folder, task).difference <= TOLERANCE
    tensors = load_file(tmp_path / "out" / "model.safetensors")
    assert tensors["embeddings.word_embeddings.weight"].shape[0] == len(pieces)
