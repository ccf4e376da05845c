"""A task of kind 'retrieval' comes out as a folder of sentence-transformers, in any language."""

import logging
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize
from torch import nn

from lingraft.config.encoder import EncoderShape
from lingraft.config.tasks import DenseLayer, NormaliseLayer, Retrieval
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.huggingface.export import export_hf
from lingraft.huggingface.importing import import_hf
from lingraft.model.loading import load_embeddings
from lingraft.tasks.finetuned import load_task
from lingraft.tasks.retrieval import TokenizedTexts, embed
from tests.huggingface.checkpoints import LINES, MODEL_TYPES
from tests.huggingface.embedding_models import dense, make_embedding_model
from tests.huggingface.models import LANGUAGE, write_language, write_own_primary, write_task_of
from tests.huggingface.scripts import lines_of, trained

CLOSE = 1e-5
TEXTS = [*LINES, "", "harbour " * 60]
PROMPTS = {"query": "the harbour: ", "document": "a garden: "}
SHAPE = EncoderShape(width=32, layers=3, attention_heads=4, mlm_heads=(3,), block_tokens=40, feedforward=48)
LAYERS = (DenseLayer(kind="dense", width=12, activation="gelu", bias=False), NormaliseLayer(kind="normalise"))


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    lines = LINES * 20 + lines_of("Greek", 100)
    return trained(lines, tmp_path_factory.mktemp("tokenizer") / LANGUAGE, 160, LANGUAGE)


def loaded(folder: Path, caplog: pytest.LogCaptureFixture) -> SentenceTransformer:
    """A model that loads without a warning, from files that are no pickles."""
    root = logging.getLogger("transformers")
    root.addHandler(caplog.handler)
    model = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    root.removeHandler(caplog.handler)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert {path.suffix for path in folder.rglob("*") if path.is_file()} == {".json", ".safetensors", ".md"}
    return model


def assert_same(found: np.ndarray, expected: np.ndarray) -> None:
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=0, atol=CLOSE)
    assert np.abs(expected[0] - expected[1]).max() > 100 * CLOSE


@pytest.mark.parametrize(
    ("model_type", "pooling"),
    [*zip(MODEL_TYPES, ("mean", "cls", "lasttoken", "mean"), strict=True), ("modernbert", "cls")],
)
def test_an_embedding_model_comes_out_as_it_went_in(
    model_type: str, pooling: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    modules = [dense(16, nn.Tanh()), Normalize(), dense(8, width=16, bias=False)]
    theirs = make_embedding_model(tmp_path, model_type, pooling=pooling, modules=modules, prompts=PROMPTS, longest=24)
    import_hf(str(tmp_path / "model"), tmp_path / "primary", "en")
    caplog.clear()
    made = export_hf(tmp_path / "primary", tmp_path / "out", task=tmp_path / "primary-retrieval")
    assert (made.loader, made.difference < CLOSE) == ("SentenceTransformer", True)
    model = loaded(tmp_path / "out", caplog)
    assert model.max_seq_length == 24
    assert_same(model.encode(TEXTS), theirs.encode(TEXTS))
    assert_same(model.encode_query(TEXTS), theirs.encode_query(TEXTS))
    assert_same(model.encode_document(TEXTS), theirs.encode_document(TEXTS))
    assert_same(model.encode(TEXTS, prompt_name="passage"), theirs.encode_document(TEXTS))


@pytest.mark.parametrize("similarity", [None, "dot", "euclidean"])
def test_prompts_and_similarity_come_out_as_they_went_in(
    similarity: str | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    prompts = {"query": "the boats ", "passage": "bread ", "search": "kitchen "}
    theirs = make_embedding_model(
        tmp_path, modules=[Normalize()], prompts=prompts, default_prompt="search", similarity=similarity
    )
    import_hf(str(tmp_path / "model"), tmp_path / "primary", "en")
    export_hf(tmp_path / "primary", tmp_path / "out", task=tmp_path / "primary-retrieval")
    model = SentenceTransformer(str(tmp_path / "out"), device="cpu")
    assert_same(model.encode(TEXTS), theirs.encode(TEXTS))
    for name in prompts:
        assert_same(model.encode(TEXTS, prompt_name=name), theirs.encode(TEXTS, prompt_name=name))
    assert_same(model.encode_document(TEXTS), theirs.encode_document(TEXTS))
    assert model.similarity_fn_name == theirs.similarity_fn_name
    import_hf(str(tmp_path / "out"), tmp_path / "again", "en")
    first, again = (load_task(tmp_path / f"{name}-retrieval").settings.retrieval for name in ("primary", "again"))
    assert first == again


@pytest.mark.parametrize("pooling", ["mean", "last"])
def test_another_language_gives_our_vectors_with_its_own_tokenizer(
    pooling: Any, foreign: Tokenizer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own = trained(LINES * 20, tmp_path / "en", 120, "en")
    primary = write_own_primary(SHAPE, own, tmp_path / "primary")
    settings = Retrieval(pooling=pooling, layers=LAYERS, query_prefix="still ", passage_prefix="bread ")
    task = write_task_of("retrieval", primary, tmp_path / "task", retrieval=settings.model_dump())
    embeddings = write_language(primary, foreign, tmp_path / "embeddings")
    export_hf(primary, tmp_path / "out", embeddings, task)
    model, ours = loaded(tmp_path / "out", caplog), load_task(task)
    ours.swap_in(load_embeddings(embeddings))
    for encoded, prefix in ((model.encode_query(TEXTS), "still "), (model.encode_document(TEXTS), "bread ")):
        assert_same(encoded, embed(ours.net, TokenizedTexts.of(TEXTS, prefix, foreign, ours.shape)).numpy())
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "Its vectors are compared with those of the same task in `en`." in card
    assert "library_name: sentence-transformers" in card


def test_folders_of_several_languages_are_routes_of_one_model(foreign: Tokenizer, tmp_path: Path) -> None:
    """As the guide composes them; equal bodies are in memory once."""
    primary = write_own_primary(SHAPE, trained(LINES * 20, tmp_path / "en", 120, "en"), tmp_path / "primary")
    settings = Retrieval(
        layers=LAYERS,
        query_prefix="still ",
        passage_prefix="bread ",
        prompts={"search": "kitchen "},
        default_prompt="search",
        similarity="euclidean",
    )
    task = write_task_of("retrieval", primary, tmp_path / "task", retrieval=settings.model_dump())
    export_hf(primary, tmp_path / "work" / "hf" / "en", None, task)
    export_hf(primary, tmp_path / "work" / "hf" / "de", write_language(primary, foreign, tmp_path / "xx"), task)
    alone = {
        language: SentenceTransformer(str(tmp_path / "work" / "hf" / language), device="cpu")
        for language in ("en", "de")
    }
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "import-a-model.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    found: dict[str, Any] = {}
    exec(code.replace("work/hf", str(tmp_path / "work" / "hf")), found)
    model = found["model"]
    for language, single in alone.items():
        assert_same(model.encode(TEXTS, task=language, prompt_name="query"), single.encode_query(TEXTS))
        assert_same(model.encode(TEXTS, task=language, prompt_name="document"), single.encode_document(TEXTS))
        assert_same(model.encode(TEXTS, task=language), single.encode(TEXTS))
        assert model.similarity_fn_name == single.similarity_fn_name == "euclidean"
    bodies = {id(model[0].model.encoder) for model in found["models"].values()}
    assert len(bodies) == 1
    with pytest.raises(ValueError, match="task='en' and task='de'"):
        model.encode(TEXTS, task="fr")
    with pytest.raises(ValueError, match="No route found for task type 'query'"):
        model.encode_query(TEXTS)


def test_an_exported_folder_is_imported_as_the_same_task(foreign: Tokenizer, tmp_path: Path) -> None:
    primary = write_own_primary(SHAPE, foreign, tmp_path / "primary")
    settings = Retrieval(pooling="first", layers=LAYERS, query_prefix="still ")
    task = write_task_of("retrieval", primary, tmp_path / "task", retrieval=settings.model_dump())
    export_hf(primary, tmp_path / "out", task=task)
    import_hf(str(tmp_path / "out"), tmp_path / "again", LANGUAGE)
    assert load_task(tmp_path / "again-retrieval").settings.retrieval == settings
    heads = [load_file(folder / "head.safetensors") for folder in (task, tmp_path / "again-retrieval")]
    assert heads[0].keys() == heads[1].keys()
    assert all((heads[0][name] == heads[1][name]).all() for name in heads[0])
