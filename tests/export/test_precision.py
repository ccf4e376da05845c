"""Bodies and tables in number formats other than float32."""

from pathlib import Path

import numpy as np
import pytest
import torch

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.bundle.format import PRECISIONS, TABLE_FORMATS, TableFormat
from lingraft.bundle.tables import EmbeddingTable
from lingraft.errors import ArtifactError, ExportError, ServingError
from lingraft.export import evaluation_examples
from lingraft.export import export_bundle as export
from lingraft.export.operators import quantise
from lingraft.export.parity import require_parity
from lingraft.model.loading import load_embeddings, load_primary
from lingraft.serving.bundle import Bundle
from lingraft.tasks.labelled_texts import Example
from lingraft.training import masked_lm
from tests.export.test_kinds import MODERN, in_family
from tests.serving.answers import LANGUAGES, onnx_logits, pytorch_logits, rows_of, sentences
from tests.tiny import Pieces, Tiny


@pytest.fixture(scope="module")
def precise(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("precise") / "bundle"
    export(tiny.primary, tiny.task, [*tiny.embeddings.values()], out, PRECISIONS, examples=examples(tiny))
    return out


def examples(tiny: Tiny) -> dict[str, list[Example]]:
    """Texts whose labels are those that PyTorch gives them, so that any other answer costs accuracy."""
    found = {}
    for language in LANGUAGES:
        texts = sentences(language, words=tuple(range(1, 25)))
        best_N = pytorch_logits(tiny, language, rows_of(tiny, language, texts)).argmax(1).tolist()
        labels = (["garden", "harbour", "kitchen"][best] for best in best_N)
        found[language] = [
            Example(texts=(text,), label=label, place=f"line {place}")
            for place, (text, label) in enumerate(zip(texts, labels, strict=True))
        ]
    return found


def test_each_precision_is_near_pytorch_and_the_manifest_says_how_near(precise: Path) -> None:
    manifest = Artifact.load(precise, Kind.BUNDLE).manifest
    assert manifest.details["precisions"] == list(PRECISIONS)
    furthest = {}
    for precision, parity in manifest.record["parity"].items():
        Bundle.load(precise, precision).run_self_test()
        assert set(parity) == set(LANGUAGES)
        assert {one["score"] + one["loss"] for one in parity.values()} == {1.0}
        furthest[precision] = max(one["difference"] for one in parity.values())
    assert {one["loss"] for one in manifest.record["parity"]["fp32"].values()} == {0.0}
    assert furthest["fp32"] < furthest["fp16"] < furthest["int8"]


def test_pre_norm_bodies_are_as_near_and_their_int8_rows_as_independent(pieces: Pieces, tmp_path: Path) -> None:
    _, modern = in_family(pieces, MODERN)
    made = export(modern.primary, modern.task, [*modern.embeddings.values()], tmp_path / "bundle", PRECISIONS)
    parity = made.manifest.record["parity"]
    furthest = {precision: max(one["difference"] for one in parity[precision].values()) for precision in PRECISIONS}
    assert furthest["fp32"] < furthest["fp16"] < furthest["int8"]
    opened = Bundle.load(tmp_path / "bundle", "int8")
    opened.run_self_test()
    rows = rows_of(modern, "de", sentences("de", words=(3, 1, 40)))
    alone_BC, among_BC = (onnx_logits(opened, "de", each) for each in (rows[:1], rows))
    torch.testing.assert_close(alone_BC[0], among_BC[0], rtol=0, atol=1e-4)


def test_quantised_weights_are_7_bits_a_channel_and_near_what_they_were() -> None:
    weight_IO = torch.randn(64, 8, generator=torch.Generator().manual_seed(1)) * torch.logspace(-3, 2, 8)
    stored_IO, scale_O = quantise(weight_IO)
    assert stored_IO.abs().amax(0).tolist() == [63] * 8
    assert ((stored_IO * scale_O - weight_IO).abs() <= scale_O / 2 * 1.001).all()
    assert quantise(torch.zeros(4, 2))[0].count_nonzero() == 0


@pytest.mark.parametrize("table_format", TABLE_FORMATS)
def test_tables_of_each_format_are_read_in_place(tiny: Tiny, tmp_path: Path, table_format: TableFormat) -> None:
    made = export(tiny.primary, tiny.task, [tiny.embeddings["de"]], tmp_path / "bundle", tables=table_format)
    opened = Bundle.load(tmp_path / "bundle")
    opened.run_self_test()
    table = opened.languages["de"].table
    assert isinstance(table.table_VD, np.memmap)
    assert table.table_VD.dtype.name == table_format
    assert (len(table), table.width) == tuple(made.manifest.shapes["de/table"]["table_VD"])
    assert table.nbytes == len(table) * (table.width * table.table_VD.itemsize + 4 * (table_format == "int8"))
    ids_N = np.array([5, 0, 5])
    whole_VD = Artifact.load(tiny.embeddings["de"], Kind.EMBEDDINGS).tensors("vocabulary")["table_VD"].numpy()
    step = {"float32": 0.0, "float16": 2e-3, "int8": np.abs(whole_VD[ids_N]).max() / 250}[table_format]
    np.testing.assert_allclose(table.rows(ids_N), whole_VD[ids_N], rtol=0, atol=step)
    features_ND = np.ones((2, table.width), np.float32)
    np.testing.assert_allclose(table.dot(features_ND)[1], table.rows(np.arange(len(table))).sum(1), atol=1e-4)


@pytest.mark.parametrize("ids", [[-1], [0, 120]])
def test_ids_outside_a_table_are_refused(bundle: Path, ids: list[int]) -> None:
    table = EmbeddingTable.open(bundle / "de" / "table.safetensors")
    with pytest.raises(IndexError, match="table of 120 rows"):
        table.rows(np.array(ids))


def test_a_precision_that_a_bundle_lacks_is_named(bundle: Path, precise: Path) -> None:
    assert Bundle.load(precise, "int8").precision == "int8"
    with pytest.raises(ServingError, match=r"bodies in \['fp32'\].* --precision int8"):
        Bundle.load(bundle, "int8")


def test_a_body_beyond_what_fp16_holds_is_refused() -> None:
    require_parity("fp16", {"de": 0.1})
    with pytest.raises(ExportError, match=r"fp16 body \(largest difference: en nan, de 0.1\).*below 65504"):
        require_parity("fp16", {"en": float("nan"), "de": 0.1})


def test_examples_of_documents_are_those_of_the_texts_given(pieces: Pieces, tiny: Tiny) -> None:
    texts = [pieces.tokenizers["de"].parents[1] / "text" / "de"]
    found = evaluation_examples(tiny.task, [tiny.embeddings["de"]], texts)
    assert [*found] == ["de"]
    assert {example.label for example in found["de"]} <= {"garden", "harbour", "kitchen"}
    with pytest.raises(ExportError, match="Give --text once a language"):
        evaluation_examples(tiny.task, [tiny.embeddings["de"]], [])
    with pytest.raises(ExportError, match=r"\['de', 'de'\]"):
        evaluation_examples(tiny.task, [tiny.embeddings["de"]], texts * 2)
    with pytest.raises(ExportError, match="judged on blocks"):
        evaluation_examples(None, [], texts)


def test_a_primary_is_judged_on_masked_tokens(tiny: Tiny, tmp_path: Path) -> None:
    blocks_NT = torch.randint(5, 120, (40, 32), generator=torch.Generator().manual_seed(1))
    given = tiny.primary, None, [tiny.embeddings["de"]], tmp_path / "bundle"
    parity = export(*given, ["int8"], examples={"de": blocks_NT}).manifest.record["parity"]
    source = load_primary(tiny.primary)
    source.swap_in(load_embeddings(tiny.embeddings["de"]))
    expected = masked_lm.accuracy(source.encoder, blocks_NT, (3,))[3]
    assert parity["fp32"]["de"]["score"] == pytest.approx(expected, abs=0.01)
    assert parity["int8"]["de"]["score"] + parity["int8"]["de"]["loss"] == pytest.approx(expected)
    assert "score" not in parity["fp32"]["en"]


def test_a_file_that_is_no_table_is_refused(bundle: Path) -> None:
    with pytest.raises(ArtifactError, match="is no table"):
        EmbeddingTable.open(bundle / "de" / "golden.safetensors")


def test_rows_of_a_language_that_is_not_exported_are_refused(tiny: Tiny, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"rows of \['tr'\] to judge, but the languages are \['en', 'de'\]"):
        export(tiny.primary, tiny.task, [tiny.embeddings["de"]], tmp_path / "bundle", examples={"tr": []})
