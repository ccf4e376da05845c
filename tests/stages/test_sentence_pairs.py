"""Learning a language by sentence pairs, over the bottom layers and over all."""

from pathlib import Path
from typing import Any

import pytest
import torch

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.config.recipe import Recipe
from lingraft.config.systems import Stage
from lingraft.data.blocks import open_split
from lingraft.data.parallel_text import Pair, is_held_out
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.errors import RecipeError, TextError
from lingraft.jobs.training import AdaptationJob
from lingraft.model.encoder import freeze_except, mini_model
from lingraft.model.flops import step_flops
from lingraft.model.loading import Embeddings, load_embeddings, load_primary
from lingraft.model.swap import make_vocabulary, swap
from lingraft.search import Inputs, search
from lingraft.search.budget import trial_settings
from lingraft.signals import Interruption
from lingraft.stages.adapt import adapt, adaptation_run
from lingraft.stages.alignment_probe import Reference, probe_of
from lingraft.stages.embeddings import initial_rows
from lingraft.stages.evaluate import evaluate_source
from lingraft.stages.results import load_search
from lingraft.stages.sentence_pairs import PairData, PairLoss
from lingraft.training.batches import TokenBatches
from lingraft.training.schedule import MetricsCallback, ignore_metrics
from tests.made_up import documents
from tests.preflight.test_pairs import ENGLISH, FRENCH, columns
from tests.preflight.test_pairs import lines as in_lines
from tests.workshop import Workshop, same_tensors, stopping_after


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder in which the source's vectors are kept."""
    monkeypatch.setenv("LINGRAFT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made-up lines in English and German; nothing of them but names is alike."""
    path = tmp_path_factory.mktemp("parallel") / "en-de.tsv"
    texts = (
        [line for document in documents(name, 60) for line in document["text"].split("\n")] for name in ("en", "de")
    )
    path.write_text("".join(f"{source}\t{target}\n" for source, target in zip(*texts, strict=True)), encoding="utf-8")
    return path


def recipe_of(shop: Workshop, lines: Path, pairs: dict[str, Any], searches: bool = False, **adaptation: Any) -> Recipe:
    raw = shop.recipe.model_dump(mode="json") | {"targets": ["de"], "alignment": {"parallel": {"de": str(lines)}}}
    raw["gate"] = {"metric": "alignment"}
    raw["search"] = {"language": "de", "depths": [1], "steps_at_depth": 12, "metric": "alignment"} if searches else None
    raw["adaptation"] |= {"pairs": {"batch_tokens": 192, **pairs}, **adaptation}
    return Recipe.parse(raw)


def adapted(shop: Workshop, recipe: Recipe, out: Path, watch: MetricsCallback = ignore_metrics) -> Embeddings:
    adapt(recipe, shop.primary, shop.blocks["de"], shop.tokenizers["de"], recipe.adaptation.depth, out, watch)
    return load_embeddings(out)


def tensors(embeddings: Embeddings) -> dict[str, torch.Tensor]:
    return {name: tensor.detach() for name, tensor in embeddings.vocabulary.state_dict().items()}


def test_pairs_in_another_language_are_refused_before_they_are_embedded(workshop: Workshop, tmp_path: Path) -> None:
    pairs = columns(tmp_path / "pairs.tsv", in_lines(ENGLISH), in_lines(FRENCH))
    source, pieces = load_primary(workshop.primary), Tokenizer.load(workshop.tokenizers["de"])
    with pytest.raises(TextError, match=r"the target side should be in 'de', but seems to be in 'fr' \("):
        PairData.load(recipe_of(workshop, pairs, {}), source, pieces, [1])


@pytest.mark.parametrize("layers", ["bottom", "all"])
def test_vectors_of_translations_approach_the_sources_and_the_body_stays(
    workshop: Workshop, lines: Path, layers: str
) -> None:
    recipe = recipe_of(workshop, lines, {"layers": layers})
    source, pieces = load_primary(workshop.primary), Tokenizer.load(workshop.tokenizers["de"])
    body = {name: each.clone() for name, each in source.encoder.state_dict().items() if "vocabulary" not in name}
    pairs, rows = PairData.load(recipe, source, pieces, [1]), initial_rows(recipe, source, pieces)
    assert pairs
    assert pairs.depths == ((3,) if layers == "all" else (1,))
    step = recipe.steps_over(1)[Stage.ADAPT]
    blocks = open_split(Artifact.load(workshop.blocks["de"], Kind.BLOCKS), "train")
    run = adaptation_run(
        recipe=recipe,
        step=step,
        mini=mini_model(source.encoder, 1),
        rows=rows,
        blocks=blocks,
        settings=recipe.adaptation,
        pairs=pairs,
    )
    losses = [point.loss for point in run.points]
    assert losses[-1] < 0.9 * losses[0]
    after = {name: each for name, each in source.encoder.state_dict().items() if "vocabulary" not in name}
    assert same_tensors(after, body)
    vocabulary = source.encoder.vocabulary
    assert torch.equal(vocabulary.bias_V, rows.bias_V)
    assert not torch.equal(vocabulary.table_VD, rows.table_VD)


def test_the_sources_vectors_are_those_of_its_own_embeddings(workshop: Workshop, lines: Path) -> None:
    """By hand, of one sentence; held-out pairs are not among those that are learned from."""
    recipe = recipe_of(workshop, lines, {"pooling": "first", "prefixes": ["query: ", "in the house: "]})
    source, pieces = load_primary(workshop.primary), Tokenizer.load(workshop.tokenizers["de"])
    pairs = PairData.load(recipe, source, pieces, [1, 2, 1])
    assert pairs
    read = [Pair(*line.split("\t"), "") for line in lines.read_text(encoding="utf-8").splitlines()]
    learned = [pair for pair in dict.fromkeys(read) if not is_held_out(pair)]
    assert 0 < len(pairs) == len(learned) < len(read)
    special = source.tokenizer.special
    # Prefixes stand before both sentences, by turns: the second one before pairs 1, 3, 5 and so on.
    ids = [special.begin, *source.tokenizer.encode(f"in the house: {learned[3].source}")[:30], special.end]
    with torch.no_grad():
        hidden = source.encoder.eval().hidden_states(torch.tensor([ids]), (1, 2))
    expected_KD = torch.stack([hidden[depth][0, 0] for depth in (1, 2)])
    torch.testing.assert_close(pairs.vectors_NKD[3], expected_KD, rtol=0, atol=1e-5)
    batch = pairs.batch(torch.tensor([3]))
    assert batch.tokens_BT[0, 1:-1].tolist() == pieces.encode(f"in the house: {learned[3].target}")[:30]
    first = pairs.batch(torch.tensor([0]))
    assert first.tokens_BT[0, 1:-1].tolist() == pieces.encode(f"query: {learned[0].target}")[:30]


def test_no_more_pairs_are_embedded_than_all_updates_read(workshop: Workshop, lines: Path) -> None:
    source, pieces = load_primary(workshop.primary), Tokenizer.load(workshop.tokenizers["de"])
    recipe = recipe_of(workshop, lines, {})
    whole = PairData.load(recipe, source, pieces, [1])
    few = PairData.load(recipe, source, pieces, [1], updates=2)
    assert whole
    assert few
    reached = few.vectors_NKD.flatten(1).any(1)
    assert 0 < reached.sum() < len(whole)
    torch.testing.assert_close(few.vectors_NKD[reached], whole.vectors_NKD[reached])
    for step in (1, 2):
        for (_, mine), (_, others) in zip(
            few.stream(recipe.adaptation)(step), whole.stream(recipe.adaptation)(step), strict=True
        ):
            torch.testing.assert_close(mine.vectors_BKD, others.vectors_BKD)


def test_an_interrupted_training_goes_on_bit_for_bit(workshop: Workshop, lines: Path, tmp_path: Path) -> None:
    recipe = recipe_of(workshop, lines, {})
    learned = adapted(workshop, recipe, tmp_path / "whole")
    assert learned.manifest.details["pairs"] == {"layers": "bottom", "pooling": "mean"}
    assert "pairs" not in load_embeddings(workshop.embeddings["de"]).manifest.details
    whole = tensors(learned)
    with pytest.raises(Interruption):
        adapted(workshop, recipe, tmp_path / "two", stopping_after(20))
    assert same_tensors(tensors(adapted(workshop, recipe, tmp_path / "two")), whole)


def test_rows_of_pieces_that_stand_in_no_translation_stay(workshop: Workshop, lines: Path, tmp_path: Path) -> None:
    """A decay, or the momentum of a dense Adam, would move rows that a batch does not have."""
    recipe = recipe_of(workshop, lines, {"batch_tokens": 40}, steps=3, warmup_steps=1)
    source, pieces = load_primary(workshop.primary), Tokenizer.load(workshop.tokenizers["de"])
    pairs = PairData.load(recipe, source, pieces, [1])
    assert pairs
    batches = [TokenBatches(pairs, 40, recipe.adaptation.seed)(step)[0][1].tokens_BT for step in range(1, 4)]
    in_first, later = {*batches[0].flatten().tolist()}, {*torch.cat([each.flatten() for each in batches[1:]]).tolist()}
    assert in_first - later
    table = tensors(adapted(workshop, recipe, tmp_path / "all"))["table_VD"]
    moved = (table != initial_rows(recipe, source, pieces).table_VD).any(1).nonzero().flatten()
    assert {*moved.tolist()} == (in_first | later) - {pieces.special.pad}


def test_a_batchs_sparse_gradient_is_the_dense_one(workshop: Workshop, lines: Path) -> None:
    recipe = recipe_of(workshop, lines, {})
    source, pieces = load_primary(workshop.primary), Tokenizer.load(workshop.tokenizers["de"])
    pairs = PairData.load(recipe, source, pieces, [1])
    assert pairs
    rows = initial_rows(recipe, source, pieces)
    swap(source.encoder, make_vocabulary(rows.table_VD, rows.bias_V, rows.special, rows.borrowed))
    table = freeze_except(source.encoder, [source.encoder.vocabulary.table_VD])[0]
    gradients = []
    for is_sparse in (False, True):
        source.encoder.sparse_gradient = is_sparse
        table.grad = None
        PairLoss(pairs, 0)(pairs.batch(torch.arange(40))).backward()
        assert table.grad is not None
        gradients.append(table.grad)
    dense, sparse = gradients
    assert sparse.is_sparse
    torch.testing.assert_close(sparse.to_dense(), dense, rtol=0, atol=1e-9)


def test_pairs_are_learned_without_dropout(workshop: Workshop, lines: Path) -> None:
    """The source's vectors are computed without it, so that it would be noise in what is compared with them."""
    recipe = recipe_of(workshop, lines, {})
    source = load_primary(workshop.primary, recipe.primary_shape.model_copy(update={"dropout": 0.5}))
    pairs = PairData.load(recipe, source, Tokenizer.load(workshop.tokenizers["de"]), [1])
    assert pairs
    source.encoder.train()
    batch = pairs.batch(torch.arange(8))
    assert PairLoss(pairs, 0)(batch) == PairLoss(pairs, 0)(batch)


def test_the_sources_vectors_are_computed_once_and_again_if_damaged(
    workshop: Workshop, lines: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source, pieces = load_primary(workshop.primary), Tokenizer.load(workshop.tokenizers["de"])

    def loaded(prefixes: tuple[str, ...] = ()) -> torch.Tensor:
        pairs = PairData.load(recipe_of(workshop, lines, {"prefixes": prefixes}), source, pieces, [1])
        assert pairs
        return pairs.vectors_NKD.clone()

    first = loaded()
    (file,) = cache.rglob("*.safetensors")
    made_at = file.stat().st_mtime_ns
    assert torch.equal(loaded(), first)
    assert file.stat().st_mtime_ns == made_at
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    assert torch.equal(loaded(), first)
    assert "is damaged, and is made again" in capsys.readouterr().err
    assert not torch.equal(loaded(("query: ",)), first)
    assert len([*cache.rglob("*.safetensors")]) == 2
    # Where nothing can be kept, training begins all the same.
    monkeypatch.setenv("LINGRAFT_CACHE", "/proc/none")
    assert torch.equal(loaded(), first)


def test_a_trial_of_a_search_learns_what_an_adaptation_learns(workshop: Workshop, lines: Path, tmp_path: Path) -> None:
    recipe = recipe_of(workshop, lines, {}, searches=True)
    evaluate_source(workshop.recipe, workshop.primary, [], workshop.texts["en"], workshop.blocks["en"], tmp_path / "en")
    inputs = Inputs(
        primary=workshop.primary,
        blocks=workshop.blocks["de"],
        tokenizer=workshop.tokenizers["de"],
        source_evaluation=tmp_path / "en",
        text=workshop.texts["de"],
    )
    search(recipe, inputs, None, tmp_path / "search")
    (trial,) = load_search(tmp_path / "search").trials
    same = recipe.model_copy(update={"adaptation": trial_settings(recipe, trial.steps)})
    learned = adapted(workshop, same, tmp_path / "de")
    primary, pieces = load_primary(workshop.primary), Tokenizer.load(workshop.tokenizers["de"])
    text = Artifact.load(workshop.texts["de"], Kind.TEXT)
    dev = open_split(Artifact.load(workshop.blocks["de"], Kind.BLOCKS), "dev")
    probe = probe_of(Reference.load(tmp_path / "en", primary), "dev", primary.tokenizer, pieces, text, dev)
    assert probe
    swap(primary.encoder, learned.vocabulary)
    assert trial.score == probe.measure(primary.encoder)[3].scores.accuracy
    assert trial.flops == pytest.approx(learned.manifest.cost.flops)


def test_an_update_of_pairs_costs_three_passes_of_its_tokens(workshop: Workshop, lines: Path) -> None:
    def flops(**pairs: Any) -> float:
        recipe = recipe_of(workshop, lines, pairs)
        return step_flops(recipe, recipe.steps_over(1)[Stage.ADAPT], recipe.adaptation, 120)

    tokens, width = workshop.recipe.encoder.block_tokens, workshop.recipe.encoder.width
    assert flops(batch_tokens=tokens) == 3 * tokens * (24 * width**2 + 4 * width * tokens)
    assert flops(layers="all") == 3 * flops()
    assert flops(batch_tokens=384) == 2 * flops()


def test_a_language_without_pairs_is_refused(workshop: Workshop, lines: Path, tmp_path: Path) -> None:
    recipe = recipe_of(workshop, lines, {})
    raw = recipe.model_dump(mode="json")
    with pytest.raises(RecipeError, match=r"adaptation\.pairs needs .* of which \['tr'\] have none\. Add them"):
        Recipe.parse(raw | {"targets": ["de", "tr"]})
    with pytest.raises(RecipeError, match=r"translations in 'tr', and .* parallel has some in \['de'\] only"):
        adapt(recipe, workshop.primary, workshop.blocks["tr"], workshop.tokenizers["tr"], 1, tmp_path, ignore_metrics)


def test_the_content_of_the_pairs_decides_whether_an_adaptation_is_made_again(
    workshop: Workshop, lines: Path, tmp_path: Path
) -> None:
    other = tmp_path / "en-de.tsv"
    other.write_text(lines.read_text(encoding="utf-8") + "one\teins\n", encoding="utf-8")

    def outside(recipe: Recipe) -> Any:
        inputs = {"primary": workshop.primary, "blocks": workshop.blocks["de"], "tokenizer": workshop.tokenizers["de"]}
        return AdaptationJob(recipe=recipe, out=tmp_path, depth=1, **inputs).outside()

    assert outside(recipe_of(workshop, lines, {})) != outside(recipe_of(workshop, other, {}))
    assert outside(workshop.recipe) == {}
