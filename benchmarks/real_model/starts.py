"""Rows for a tokenizer of the language from FOCUS (Dobler and de Melo 2023) or WECHSEL (Minixhofer et al. 2022)."""

import tempfile
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lingraft.errors import TextError

_VECTOR_DIM = 300
_EPOCHS = 3


class Material(NamedTuple):
    """Texts and dictionary that rows are made from."""

    text: Path
    """Text of the language, a file of lines."""
    english: Path | None
    dictionary: Path | None
    """English words and their translations, TAB between them."""


def with_rows(model: Any, kind: str, material: Material) -> Any:
    """Return a sentence-transformers model with a tokenizer of the language, trained as the source's was, and rows."""
    encoder, lines = model[0].auto_model, material.text.read_text(encoding="utf-8").splitlines()
    source = encoder.get_input_embeddings().weight.detach()
    tokenizer = model.tokenizer.train_new_from_iterator(lines, vocab_size=len(source), show_progress=False)
    rows = {"focus": _focus, "wechsel": _wechsel}[kind](model.tokenizer, tokenizer, source, material)
    encoder.resize_token_embeddings(len(rows))
    encoder.get_input_embeddings().weight.data.copy_(rows)
    with tempfile.TemporaryDirectory() as folder:
        model.save(folder, create_model_card=False)
        tokenizer.save_pretrained(folder)
        return type(model)(folder, device="cpu")


def installed(package: str) -> Any:
    """Return a package that only this benchmark needs.

    Raises:
        ImportError: it is not installed.
    """
    try:
        return import_module(package)
    except ImportError as error:
        raise ImportError(f"{error}: this cell needs {package}. Run: pip install {package}") from error


def _focus(source_tokenizer: Any, tokenizer: Any, source: Tensor, material: Material) -> Tensor:
    """Pieces that both have keep their rows; others are means of these, by sparsemax over fastText's similarities."""
    rows: Tensor = installed("deepfocus").FOCUS(
        target_tokenizer=tokenizer,
        source_tokenizer=source_tokenizer,
        source_embeddings=source,
        target_training_data_path=str(material.text),
        fasttext_model_dim=_VECTOR_DIM,
        fasttext_model_epochs=_EPOCHS,
        processes=torch.get_num_threads(),
        verbosity="silent",
    )
    return rows


def _wechsel(source_tokenizer: Any, tokenizer: Any, source: Tensor, material: Material) -> Tensor:
    """Means of the ten nearest source pieces, by fastText vectors that a dictionary aligns."""
    if material.dictionary is None or material.english is None:
        raise TextError("WECHSEL needs English text and a dictionary. Give --text en=FILE and --dictionary de=FILE.")
    train = partial(installed("fasttext").train_unsupervised, model="cbow", dim=_VECTOR_DIM, epoch=_EPOCHS)
    vectors = [train(str(text), thread=torch.get_num_threads()) for text in (material.english, material.text)]
    aligned = installed("wechsel").WECHSEL(*vectors, bilingual_dictionary=str(material.dictionary))
    rows, _ = aligned.apply(source_tokenizer, tokenizer, source.numpy())
    return torch.from_numpy(rows).float()
