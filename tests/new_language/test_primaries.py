"""Languages added to primaries of every kind, and to text that supports few pieces."""

from pathlib import Path
from typing import NamedTuple

import pytest
from sentence_transformers import SentenceTransformer
from transformers import AutoModelForMaskedLM

from lingraft import Wanted, add_language
from lingraft.config.recipe import Recipe
from lingraft.data import blocks, text
from lingraft.data.tokenizer.unigram import TooManyPiecesError
from lingraft.errors import AlignmentError, DepthError
from lingraft.huggingface.importing import import_hf
from lingraft.model.loading import load_embeddings, load_primary
from lingraft.reports.run.page import PAGE_FILE, write
from lingraft.reports.run.records import RunRecords
from lingraft.reports.run.tables import as_text
from lingraft.serving.bundle import Bundle
from lingraft.stages import build_mini
from lingraft.stages.evaluate import evaluate_source
from lingraft.stages.results import load_source
from lingraft.training.schedule import ignore_metrics
from tests import made_up
from tests.huggingface.checkpoints import make_checkpoint
from tests.huggingface.embedding_models import WIDTH, make_embedding_model
from tests.new_language.given import BRIEFLY, RECIPE, mini_of, one_head, plain_text
from tests.workshop import Workshop


class Searching(NamedTuple):
    """An imported embedding model, and what else it is given a language with."""

    folder: Path
    recipe: Recipe
    primary: Path
    task: Path


def test_an_imported_primary_learns_a_language_with_a_tokenizer_of_our_own(tmp_path: Path) -> None:
    make_checkpoint(tmp_path / "checkpoint", "xlm-roberta")
    import_hf(str(tmp_path / "checkpoint"), tmp_path / "primary", "en")
    added = add_language(tmp_path / "primary", plain_text(tmp_path, "de"), "de", tmp_path / "de", wanted=BRIEFLY)
    model = AutoModelForMaskedLM.from_pretrained(added.hf["masked_lm"])
    assert (model.config.model_type, model.config.vocab_size) == (
        "xlm-roberta",
        len(load_embeddings(added.embeddings).tokenizer),
    )
    assert load_embeddings(added.embeddings).tokenizer.model.name == "tokenizer.json"


@pytest.fixture(scope="module")
def searching(tmp_path_factory: pytest.TempPathFactory) -> Searching:
    """An imported embedding model with a mini-model, and its source's evaluation."""
    folder = tmp_path_factory.mktemp("searching")
    make_embedding_model(folder / "embedding")
    imported = import_hf(str(folder / "embedding" / "model"), folder / "primary", "en")
    assert imported.task
    pages = zip(made_up.documents("en", 40), made_up.documents("de", 40), strict=True)
    lines = ["\t".join(" ".join(page["text"].split()[:8]) for page in pair) for pair in pages]
    (folder / "en-de.tsv").write_text("\n".join(lines), encoding="utf-8")
    test = {"kind": "parallel", "files": f"{folder}/en-{{language}}.tsv"}
    raw = Recipe.load(RECIPE).model_dump(mode="json") | {"system": "MINIPOST", "search": None, "targets": ["de"]}
    raw["encoder"] = load_primary(imported.primary.folder).encoder.shape.model_dump(mode="json")
    raw["mini"] = {"fresh_layers": 1, "steps": 2, "batch_blocks": 4, "learning_rate": 1e-3}
    raw["adaptation"] |= {"depth": 1}
    raw["tasks"] = [{"name": "retrieval", "kind": "retrieval", "languages": ["de"], "test": test}]
    recipe = Recipe.parse(raw).with_folder(made_up.write(folder / "text", ("en",), count=100))
    text.prepare(recipe, "en", folder / "text-en")
    blocks.build(recipe, folder / "text-en", imported.primary.folder, folder / "blocks-en")
    build_mini.build_mini(recipe, imported.primary.folder, folder / "blocks-en", folder / "mini", ignore_metrics)
    given = folder / "text-en", folder / "blocks-en", folder / "source"
    evaluate_source(recipe, imported.primary.folder, [imported.task.folder], *given)
    return Searching(folder, recipe, imported.primary.folder, imported.task.folder)


def test_an_imported_embedding_model_is_judged_bundled_and_reported_in_a_new_language(
    searching: Searching, tmp_path: Path
) -> None:
    """What it lacks is a dev score, a test, an MLM head, and curves; the recipe names the test."""
    added = add_language(
        searching.primary,
        plain_text(tmp_path, "de"),
        "de",
        tmp_path / "de",
        tasks=[searching.task],
        mini=searching.folder / "mini",
        recipe=searching.recipe,
        wanted=BRIEFLY,
        source_evaluation=searching.folder / "source",
    )
    [scores] = added.scores.tasks
    assert (scores.name, scores.metric, {*scores.baselines}) == (
        "retrieval",
        "accuracy_at_1",
        {"BM25", "source_tokenizer"},
    )
    assert added.left_out == {}
    assert (added.hf.keys(), added.loaders) == ({"retrieval"}, {"retrieval": "SentenceTransformer"})
    assert f'to load: sentence_transformers.SentenceTransformer("{added.hf["retrieval"]}")' in added.summary()
    assert SentenceTransformer(str(added.hf["retrieval"]), device="cpu").encode(["ba de ki"]).shape == (1, WIDTH)
    bundle = Bundle.load(added.bundles["retrieval"])
    assert [*bundle.languages] == ["en", "de"]
    bundle.run_self_test()
    records = RunRecords.of(load_source(searching.folder / "source"), [added.scores])
    page = (write(records, tmp_path / "report").folder / PAGE_FILE).read_text(encoding="utf-8")
    assert "Pretraining in English" not in page
    assert "Finetuning in English" not in page
    assert "retrieval, accuracy at 1" in as_text(records)


def test_without_a_recipe_and_a_head_a_mini_model_is_enough(searching: Searching, tmp_path: Path) -> None:
    text, out = plain_text(tmp_path, "de"), tmp_path / "de"
    tasks, mini = [searching.task], searching.folder / "mini"
    added = add_language(searching.primary, text, "de", out, tasks=tasks, mini=mini, wanted=BRIEFLY)
    assert added.scores.tasks == ()
    assert "has no test examples. Give sentence pairs" in added.left_out["judged on task 'retrieval'"]


def test_with_a_mini_model_the_embeddings_are_learned_over_it(workshop: Workshop, tmp_path: Path) -> None:
    primary = one_head(workshop, tmp_path)
    mini, text = mini_of(workshop, primary, tmp_path / "mini"), plain_text(tmp_path, "de")
    added = add_language(primary, text, "de", tmp_path / "de", mini=mini, wanted=BRIEFLY)
    scores = added.scores
    assert (scores.system, scores.depth, scores.fresh_layers, scores.standard) == ("MINIPOST", 1, 2, False)
    with pytest.raises(DepthError, match="depth 2 was asked for, but the mini-model is of depth 1"):
        add_language(primary, text, "de", tmp_path / "other", mini=mini, wanted=Wanted(depth=2))
    with pytest.raises(AlignmentError, match="the mini-model of depth 1 is aligned with primary"):
        add_language(workshop.primary, text, "de", tmp_path / "other", mini=mini)


def test_a_vocabulary_that_nobody_asked_for_is_lowered_to_what_the_text_supports(
    workshop: Workshop, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["kalem", "defter", "masa", "kapı", "pencere", "yol"]
    lines = [" ".join([words[number % 6], words[number % 5]] * 4) for number in range(120)]
    (tmp_path / "few.txt").write_text("\n".join(f"{line} {number % 7}" for number, line in enumerate(lines)))
    added = add_language(workshop.primary, tmp_path / "few.txt", "tr", tmp_path / "tr", wanted=BRIEFLY)
    supported = added.scores.vocabulary
    assert supported < workshop.recipe.tokenizer.vocabulary
    assert f"the text supports {supported} pieces at most" in capsys.readouterr().err
    wanted = Wanted(vocabulary=5000)
    with pytest.raises(TooManyPiecesError, match=f"a vocabulary of 5000 pieces .* supports {supported} at most"):
        add_language(workshop.primary, tmp_path / "few.txt", "tr", tmp_path / "more", wanted=wanted)
