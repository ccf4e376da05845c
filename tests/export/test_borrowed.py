"""A language that borrows rows of the source, in bundles of every kind and in a server."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.bundle.format import FEATURES, TABLE, TableFormat
from lingraft.bundle.tables import BorrowingTable
from lingraft.config.gate import PARITY_TOLERANCE
from lingraft.errors import TokenizerError
from lingraft.export import add_to_bundle, export_bundle, export_standalone, measure_parity
from lingraft.model.loading import load_embeddings, load_primary
from lingraft.serving.bundle import Bundle, OpenedFiles, open_language
from lingraft.serving.model import ServingContext
from lingraft.serving.repository import Change, Repository
from lingraft.serving.served_bundles import ServedBundles
from lingraft.serving.settings import ServingSettings
from lingraft.tasks.finetuned import load_task
from tests.borrowing import Borrowing
from tests.tiny import Tiny, write_embeddings, write_primary


class German(NamedTuple):
    """Embeddings of large random rows, and a row of own and borrowed ids."""

    embeddings: Path
    ids: list[int]
    own: int


@pytest.fixture(scope="module")
def german(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> German:
    pieces = Borrowing.shared().tokenizer
    folder = write_embeddings(pieces, tiny.primary, tmp_path_factory.mktemp("german") / "de", seed=5)
    learned = load_embeddings(folder)
    own, name = len(learned.tokenizer.own), Borrowing.shared().name()[0]
    encoded = learned.tokenizer.encode(f"{name} ba de {name}")
    assert min(encoded) < own <= max(encoded)
    return German(folder, [0, *encoded, 2], own)


def logits_of(tiny: Tiny, german: German) -> torch.Tensor:
    """What PyTorch says."""
    task, learned = load_task(tiny.task), load_embeddings(german.embeddings)
    load_primary(tiny.primary).lend_to(learned)
    task.swap_in(learned)
    tokens_BT = torch.tensor([german.ids])
    with torch.inference_mode():
        logits_BC: torch.Tensor = task.net.eval()(tokens_BT, torch.ones_like(tokens_BT, dtype=torch.bool))
    return logits_BC


def answer(bundle: Bundle, german: German) -> torch.Tensor:
    (logits_BC,) = bundle.body.run(*bundle.gather([("de", german.ids)])).values()
    return torch.from_numpy(logits_BC)


@pytest.mark.parametrize(("tables", "tolerance"), [("float32", PARITY_TOLERANCE), ("float16", 0.02), ("int8", 0.2)])
def test_answers_are_pytorchs_and_a_part_holds_own_rows_alone(
    tiny: Tiny, german: German, tmp_path: Path, tables: TableFormat, tolerance: float
) -> None:
    made = export_bundle(tiny.primary, tiny.task, [german.embeddings], tmp_path / "bundle", tables=tables)
    assert made.manifest.shapes["de/table"][TABLE][0] == german.own
    opened = Bundle.load(tmp_path / "bundle")
    opened.run_self_test()
    torch.testing.assert_close(answer(opened, german), logits_of(tiny, german), rtol=0, atol=tolerance)
    de, en = opened.languages["de"], opened.languages["en"]
    assert isinstance(de.table, BorrowingTable)
    assert de.table.source is en.table
    assert de.table.nbytes == de.own_table.nbytes < german.own * (de.table.width * 4 + 1)
    sources = de.tokenizer.borrowed_B
    borrowed_ND = de.table.rows(np.arange(german.own, len(de.tokenizer)))
    np.testing.assert_array_equal(borrowed_ND, en.table.rows(sources))
    for wrong in (-1, len(de.tokenizer)):
        with pytest.raises(IndexError):
            de.table.rows(np.array([wrong]))


@pytest.mark.parametrize("tables", ["float32", "int8"])
@pytest.mark.parametrize("kind", ["task", "primary"])
def test_it_is_added_as_if_it_had_been_there_from_the_beginning(
    tiny: Tiny, german: German, tmp_path: Path, tables: TableFormat, kind: str
) -> None:
    task = tiny.task if kind == "task" else None
    whole = export_bundle(tiny.primary, task, [german.embeddings], tmp_path / "whole", tables=tables)
    export_bundle(tiny.primary, task, [], tmp_path / "first", tables=tables)
    made = add_to_bundle(tmp_path / "first", german.embeddings, tmp_path / "second")
    assert made.fingerprint == whole.fingerprint
    Bundle.load(tmp_path / "second").run_self_test()


def test_masks_are_filled_with_borrowed_pieces_too(tiny: Tiny, german: German, tmp_path: Path) -> None:
    export_bundle(tiny.primary, None, [german.embeddings], tmp_path / "bundle")
    opened, source = Bundle.load(tmp_path / "bundle"), load_primary(tiny.primary)
    source.swap_in(load_embeddings(german.embeddings))
    de = opened.languages["de"]
    assert de.bias_V is not None
    features_TD = opened.body.run(*opened.gather([("de", german.ids)]))[FEATURES][0]
    with torch.inference_mode():
        expected = source.encoder.masked_logits(torch.tensor([german.ids]), torch.arange(len(german.ids)), (3,))[3]
    found_TV = de.table.dot(features_TD) + de.bias_V
    assert found_TV.shape[1] == len(de.tokenizer) > german.own
    np.testing.assert_allclose(found_TV, expected.numpy(), rtol=0, atol=20 * PARITY_TOLERANCE)


def test_a_running_server_loads_a_language_that_borrows_its_sources_rows(
    tiny: Tiny, german: German, tmp_path: Path
) -> None:
    export_bundle(tiny.primary, tiny.task, [tiny.embeddings["tr"]], tmp_path / "first")
    add_to_bundle(tmp_path / "first", german.embeddings, tmp_path / "second")
    served = ServedBundles.load([tmp_path / "first"])
    served.remove_language("topic", "en")
    repository = Repository(served, ServingContext(served.bundles, ServingSettings(repository=tmp_path)))
    repository.load_bundle("topic", Change(bundle="second", language="de"))
    opened = served["topic"]
    assert set(opened.languages) == {"de", "tr"}
    torch.testing.assert_close(answer(opened, german), logits_of(tiny, german), rtol=0, atol=PARITY_TOLERANCE)


def test_tasks_share_a_table_that_borrows(tiny: Tiny, german: German, tmp_path: Path) -> None:
    shared = OpenedFiles.from_languages()
    opened = []
    for name, task in (("task", tiny.task), ("primary", None)):
        export_bundle(tiny.primary, task, [german.embeddings], tmp_path / name)
        opened.append(Bundle.load(tmp_path / name, shared=shared).languages["de"])
    assert opened[0].own_table is opened[1].own_table
    assert len(shared.tables) == 2


@pytest.mark.parametrize("tables", ["float32", "int8"])
def test_a_model_of_its_own_holds_the_whole_table(
    tiny: Tiny, german: German, tmp_path: Path, tables: TableFormat
) -> None:
    differences = export_standalone(tiny.primary, tiny.task, [german.embeddings], tmp_path / "out", tables=tables)
    assert differences["de"] <= PARITY_TOLERANCE
    if tables == "float32":
        assert export_standalone(tiny.primary, None, [german.embeddings], tmp_path / "masked")["de"] <= PARITY_TOLERANCE


def test_a_body_is_compared_without_its_primary(tiny: Tiny, german: German) -> None:
    assert measure_parity(tiny.task, german.embeddings) <= PARITY_TOLERANCE


def test_a_bundle_of_another_source_lends_nothing(tiny: Tiny, german: German, tmp_path: Path) -> None:
    export_bundle(tiny.primary, tiny.task, [german.embeddings], tmp_path / "bundle")
    found, opened = Artifact.load(tmp_path / "bundle", Kind.BUNDLE), Bundle.load(tmp_path / "bundle")
    with pytest.raises(TokenizerError, match="borrows pieces of tokenizer"):
        open_language(found, "de", OpenedFiles.from_languages(), opened.languages["de"])


def test_embeddings_of_another_tokenizers_source_are_refused(tiny: Tiny, tmp_path: Path) -> None:
    pieces = Borrowing.shared()
    turkish = write_primary(pieces.recipe, Path(tiny.embeddings["tr"]), tmp_path / "primary", seed=4)
    strange = write_embeddings(pieces.tokenizer, turkish, tmp_path / "de", seed=3)
    with pytest.raises(TokenizerError, match="of 'tr'"):
        export_bundle(turkish, None, [strange], tmp_path / "bundle")
