"""The card that comes with an exported model: its code runs as it stands there, and its header is the hub's."""

import re
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from transformers import pipeline

from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.huggingface.export import export_hf
from tests.fixtures import once
from tests.huggingface.models import LABELS, LANGUAGE, write_language, write_own_primary, write_task_of
from tests.huggingface.scripts import lines_of, trained
from tests.huggingface.test_export import SHAPE


@pytest.fixture(scope="module")
def models() -> dict[str, Path]:
    """Exported folders of a language that was brought to a primary of our own, by the task's kind."""
    folder = once.folder("exported-with-cards", export)
    return {kind: folder / kind for kind in ("masked", *LABELS)}


def export(folder: Path) -> None:
    own: dict[str, Tokenizer] = {
        language: trained(lines_of("Latin", 300, seed), folder / "tokenizer" / language, 180, language)
        for seed, language in enumerate(("en", LANGUAGE))
    }
    primary = write_own_primary(SHAPE, own["en"], folder / "primary")
    embeddings = write_language(primary, own[LANGUAGE], folder / "embeddings")
    export_hf(primary, folder / "masked", embeddings)
    for kind in LABELS:
        export_hf(primary, folder / kind, embeddings, write_task_of(kind, primary, folder / f"task-{kind}"))


@pytest.mark.parametrize("kind", ["masked", *LABELS])
def test_the_code_on_the_card_runs(kind: str, models: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (models[kind] / "README.md").read_text(), re.DOTALL)
    assert '"path/to/this/folder"' in code
    names: dict[str, Any] = {}
    capsys.readouterr()
    exec(code.replace("path/to/this/folder", str(models[kind])).replace('"..."', '"bdef ghij"'), names)
    assert capsys.readouterr().out.strip()


def test_the_hub_s_own_library_reads_the_card_s_header(models: dict[str, Path]) -> None:
    headers = {kind: huggingface_hub.ModelCard.load(folder / "README.md").data for kind, folder in models.items()}
    header = headers["masked"]
    assert (header.language, header.library_name, header.license) == (LANGUAGE, "transformers", "unknown")
    assert headers["retrieval"].library_name == "sentence-transformers"
    assert {kind: header.pipeline_tag for kind, header in headers.items()} == {
        "masked": "fill-mask",
        "texts": "text-classification",
        "pairs": "text-classification",
        "questions": "question-answering",
        "tags": "token-classification",
        "retrieval": "sentence-similarity",
    }


def test_pipelines_answer_with_the_task_s_labels(models: dict[str, Path]) -> None:
    pair = pipeline("text-classification", model=str(models["pairs"]))({"text": "bdef", "text_pair": "ghij"})
    assert pair["label"] in LABELS["pairs"]
    tagged = pipeline("token-classification", model=str(models["tags"]), ignore_labels=[])("bdef ghij")
    assert {token["entity"] for token in tagged} <= set(LABELS["tags"])
    words = pipeline("fill-mask", model=str(models["masked"]))("bdef <mask> ghij")
    assert len(words) == 5
