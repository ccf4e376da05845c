"""Every kind of task, and the primary itself, in every family of bodies."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.bundle.format import FEATURES, HIDDEN, OUTPUTS, PRECISIONS, VECTORS
from lingraft.config.encoder import Family, PreNorm
from lingraft.config.gate import PARITY_TOLERANCE
from lingraft.config.tasks import DenseLayer, NormaliseLayer, Retrieval, Task, TaskFile, TaskKindName
from lingraft.data.tokenizer.pieces import DEFAULT_SPECIAL_IDS
from lingraft.export import add_to_bundle, measure_parity
from lingraft.export import export_bundle as export
from lingraft.model.loading import load_embeddings, load_primary
from lingraft.serving.bundle import Bundle, OpenedFiles
from lingraft.tasks.finetuned import load_task
from lingraft.tasks.pairs import pad, pad_types
from lingraft.tasks.query_passages import QueryPassage
from tests.tiny import Pieces, Tiny, write_task

ROBERTA, BERT = Family(), Family(position_offset=0, segments=2, separators=1, layer_norm_eps=1e-3)
MODERN = Family(position_offset=0, separators=1, pre_norm=PreNorm(global_every=2, local_tokens=6))
BIASES: Any = dict.fromkeys(("attention_bias", "feedforward_bias", "norm_bias", "head_bias"), True)
MODERN_OF_FIRST = PreNorm(local_tokens=9, pooling="first", **BIASES)
FAMILIES = {
    "roberta": ROBERTA,
    "bert": BERT,
    "one segment, tanh": Family(segments=1, activation="gelu_tanh", head_activation="gelu_tanh"),
    "modern": MODERN,
    "modern with biases, relu, first token": MODERN.model_copy(
        update={"activation": "relu", "head_activation": "gelu_tanh", "pre_norm": MODERN_OF_FIRST}
    ),
}
ROWS = [[0, 7, 8, 9, 2, 11, 12, 2], [0, 7, 2, 5, 2]]
TYPES = [[0, 0, 0, 0, 0, 1, 1, 1], [0, 0, 0, 1, 1]]


NORMALISE = NormaliseLayer(kind="normalise")


def dense(width: int, activation: Any, bias: bool = True) -> DenseLayer:
    return DenseLayer(kind="dense", width=width, activation=activation, bias=bias)


def in_family(pieces: Pieces, family: Family) -> tuple[Pieces, Tiny]:
    """Pieces of another recipe, and models of this family, which a run of the tests makes once."""
    encoder = pieces.recipe.encoder.model_copy(update={"family": family})
    own = pieces._replace(recipe=pieces.recipe.model_copy(update={"encoder": encoder}))
    return own, Tiny.shared_of(own)


def task_of(kind: TaskKindName, pieces: Pieces, tiny: Tiny, folder: Path, **more: Any) -> Path:
    files = {split: TaskFile(kind="file", path=f"{split}.tsv") for split in ("train", "dev", "test")}
    recipe = pieces.recipe.model_copy(update={"tasks": (Task(name=f"a-{kind}", kind=kind, **files, **more),)})
    return write_task(recipe, tiny.primary, folder / kind, seed=2)


@pytest.mark.parametrize(
    ("kind", "family"),
    [("texts", ROBERTA), ("questions", ROBERTA), ("pairs", BERT), ("tags", BERT), ("pairs", MODERN), ("tags", MODERN)],
)
def test_each_kind_is_answered_as_pytorch_answers_it(
    pieces: Pieces, tmp_path: Path, kind: TaskKindName, family: Family
) -> None:
    own, tiny = in_family(pieces, family)
    task = task_of(kind, own, tiny, tmp_path)
    made = export(tiny.primary, task, [tiny.embeddings["de"]], tmp_path / "bundle")
    opened, model = Bundle.load(tmp_path / "bundle"), load_task(task)
    types = TYPES if family.marks_second_text else None
    found = opened.body.run(*opened.gather([("de", ids) for ids in ROWS], types))
    model.swap_in(load_embeddings(tiny.embeddings["de"]))
    with torch.inference_mode():
        expected = model.net.eval()(*pad(ROWS, DEFAULT_SPECIAL_IDS.pad), pad_types(types))
    assert tuple(found) == OUTPUTS[kind]
    (actual,) = map(torch.from_numpy, found.values())
    for row, ids in enumerate(ROWS if kind in ("questions", "tags") else ()):
        torch.testing.assert_close(actual[row, : len(ids)], expected[row, : len(ids)], rtol=0, atol=PARITY_TOLERANCE)
    if kind in ("texts", "pairs"):
        torch.testing.assert_close(actual, expected, rtol=0, atol=PARITY_TOLERANCE)
    assert (opened.kind, opened.name) == (kind, f"a-{kind}")
    assert made.manifest.details["metric"] == model.kind.metric
    assert 0 <= measure_parity(task, tiny.embeddings["de"]) <= PARITY_TOLERANCE
    opened.run_self_test()


@pytest.mark.parametrize(
    ("family", "pooling", "layers"),
    [
        (ROBERTA, "mean", (dense(12, "tanh"), NORMALISE, dense(6, "identity", bias=False))),
        (BERT, "first", (dense(40, "gelu"), NORMALISE)),
        (MODERN, "last", (NORMALISE, dense(8, "sigmoid"), dense(8, "relu"))),
        (MODERN, "first", ()),
    ],
)
def test_vectors_are_pytorch_s_in_every_precision(
    pieces: Pieces, tmp_path: Path, family: Family, pooling: Any, layers: Any
) -> None:
    own, tiny = in_family(pieces, family)
    settings = Retrieval(pooling=pooling, layers=layers)
    task = task_of("retrieval", own, tiny, tmp_path, retrieval=settings)
    examples = [QueryPassage("", "ba de", "ki lo"), QueryPassage("", "lo", "mu na")]
    export(tiny.primary, task, [tiny.embeddings["de"]], tmp_path / "one", PRECISIONS, examples={"de": examples})
    add_to_bundle(tmp_path / "one", tiny.embeddings["tr"], tmp_path / "bundle")
    model = load_task(task)
    for language in ("de", "tr"):
        model.swap_in(load_embeddings(tiny.embeddings[language]))
        with torch.inference_mode():
            expected_BE = model.net.eval()(*pad(ROWS, DEFAULT_SPECIAL_IDS.pad)).numpy()
        for precision, near in (("fp32", PARITY_TOLERANCE), ("fp16", 0.05), ("int8", 0.3)):
            opened = Bundle.load(tmp_path / "bundle", precision)
            opened.run_self_test()
            found = opened.body.run(*opened.gather([(language, ids) for ids in ROWS]))
            assert found.keys() == {VECTORS}
            scale = max(1.0, np.abs(expected_BE).max())
            np.testing.assert_allclose(found[VECTORS], expected_BE, rtol=0, atol=near * scale)
    parity = Artifact.load(tmp_path / "bundle", Kind.BUNDLE).manifest.record["parity"]["fp32"]
    assert parity["de"]["loss"] == 0
    assert max(each["difference"] for each in parity.values()) <= PARITY_TOLERANCE


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_a_primary_gives_states_and_what_its_tables_make_logits_of(
    pieces: Pieces, tmp_path: Path, family: Family
) -> None:
    _, tiny = in_family(pieces, family)
    made = export(tiny.primary, None, [tiny.embeddings["tr"]], tmp_path / "bundle")
    opened, source = Bundle.load(tmp_path / "bundle"), load_primary(tiny.primary)
    source.swap_in(load_embeddings(tiny.embeddings["tr"]))
    opened.run_self_test()
    found = opened.body.run(*opened.gather([("tr", ROWS[0])]))
    assert (set(found), opened.kind) == ({HIDDEN, FEATURES}, "primary")
    assert found[HIDDEN].shape == found[FEATURES].shape == (1, len(ROWS[0]), source.encoder.shape.width)
    tr = opened.languages["tr"]
    assert tr.bias_V is not None
    logits_TV = tr.table.dot(found[FEATURES][0]) + tr.bias_V
    top, places = source.encoder.shape.layers, torch.arange(len(ROWS[0]))
    with torch.inference_mode():
        expected_TV = source.encoder.masked_logits(torch.tensor(ROWS[:1]), places, (top,))[top]
    np.testing.assert_allclose(logits_TV, expected_TV.numpy(), rtol=0, atol=20 * PARITY_TOLERANCE)
    # The heads of mini-models stay behind.
    heads = {name.split(".")[1] for name in made.tensors("body") if name.startswith("heads.")}
    assert heads == {str(top)}


def test_tasks_and_the_primary_have_one_fingerprint_for_a_language_s_table(
    bundle: Path, tiny: Tiny, tmp_path: Path
) -> None:
    export(tiny.primary, None, [tiny.embeddings["de"]], tmp_path / "bundle")
    marks = [Artifact.load(folder, Kind.BUNDLE).manifest.fingerprints for folder in (bundle, tmp_path / "bundle")]
    assert marks[0]["de/table"] == marks[1]["de/table"]
    assert marks[0]["body"] != marks[1]["body"]
    shared = OpenedFiles.from_languages()
    opened = [Bundle.load(folder, shared=shared) for folder in (bundle, tmp_path / "bundle")]
    assert opened[0].languages["de"].table is opened[1].languages["de"].table
    assert len(shared.tables) == 3
