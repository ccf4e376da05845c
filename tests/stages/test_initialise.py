"""Embeddings at update 0 as an artifact: what is in it, and that training, evaluation and search start from it."""

import re
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Cost, Kind
from lingraft.config.initialisation import Initialisation
from lingraft.config.recipe import Recipe
from lingraft.data.bilingual_dictionary import translation_hashes
from lingraft.data.blocks import input_hashes, open_split
from lingraft.data.parallel_text import Pair, is_held_out
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.errors import AlignmentError, ArtifactError, RecipeError, TextError, TokenizerError
from lingraft.model.encoder import Vocabulary
from lingraft.model.initialisation import aligned_rows, vector_alignment
from lingraft.model.initialisation import initial_rows as initial_rows_module
from lingraft.model.initialisation.mixed_rows import RowMixer
from lingraft.model.loading import load_embeddings, load_primary
from lingraft.model.swap import make_vocabulary, swap
from lingraft.search import Inputs, search
from lingraft.signals import Interruption, interruptible
from lingraft.stages.adapt import adapt
from lingraft.stages.embeddings import initial_rows, quality_of
from lingraft.stages.evaluate import evaluate_language
from lingraft.stages.initialise import initialise
from lingraft.stages.results import LanguageResult, load_language, load_search
from lingraft.stages.vectors import build_vectors
from lingraft.training.masked_lm import mean_loss
from lingraft.training.schedule import ignore_metrics
from tests import made_up
from tests.preflight.test_pairs import ENGLISH, ENGLISH_WORDS, FRENCH, FRENCH_WORDS, lines
from tests.workshop import Workshop, changed, same_tensors, stopping_after

IN_FRENCH = r"the target side should be in 'de', but seems to be in 'fr' \("


@pytest.fixture(scope="module")
def short(workshop: Workshop) -> Recipe:
    """Two updates, so that training moves rows and costs nothing."""
    return changed(workshop.recipe, "adaptation", steps=2, warmup_steps=0, log_every_steps=1, early_checkpoints=(1,))


@pytest.fixture(scope="module")
def initial(workshop: Workshop, short: Recipe, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return started(workshop, short, tmp_path_factory.mktemp("initial") / "de")


def started(shop: Workshop, recipe: Recipe, out: Path, language: str = "de") -> Path:
    initialise(recipe, shop.primary, shop.tokenizers[language], out)
    return out


def learned(shop: Workshop, recipe: Recipe, out: Path, initial: Path | None, checkpoints: Path | None = None) -> Path:
    folders = shop.primary, shop.blocks["de"], shop.tokenizers["de"]
    adapt(recipe, *folders, 1, out, ignore_metrics, checkpoints=checkpoints, initial=initial)
    return out


def judged(shop: Workshop, embeddings: Path, out: Path, initial: Path | None, recipe: Recipe) -> LanguageResult:
    folders = shop.primary, embeddings, [], shop.texts["de"], shop.blocks["de"]
    evaluate_language(recipe.model_copy(update={"tasks": ()}), *folders, out, initial=initial)
    return load_language(out)


def vocabulary(folder: Path) -> dict[str, torch.Tensor]:
    return load_embeddings(folder).vocabulary.state_dict()


def test_the_artifact_has_the_rows_that_adaptation_would_draw(
    workshop: Workshop, short: Recipe, tmp_path: Path
) -> None:
    recipe = changed(short, "adaptation", seed=7)
    made = started(workshop, recipe, tmp_path / "de")
    primary, pieces = load_primary(workshop.primary), Tokenizer.load(workshop.tokenizers["de"])
    drawn = initial_rows(recipe, primary, pieces)
    read = initial_rows(recipe, primary, pieces, made)
    assert torch.equal(read.table_VD, drawn.table_VD)
    assert torch.equal(read.bias_V, drawn.bias_V)
    assert (read.copied, read.counts(), read.special) == (drawn.copied, drawn.counts(), drawn.special)


def test_its_manifest_says_how_rows_were_made_and_training_from_it_learns_the_same_and_names_it(
    workshop: Workshop, short: Recipe, initial: Path, tmp_path: Path
) -> None:
    manifest = Artifact.load(initial, Kind.EMBEDDINGS).manifest
    assert manifest.aligned_with == Artifact.load(workshop.primary, Kind.PRIMARY).fingerprint
    assert manifest.tokenizer_hash == Tokenizer.load(workshop.tokenizers["de"]).hash
    assert manifest.cost == Cost()
    details = manifest.details
    assert (details["initialisation"], details["seed"]) == ("overlap", short.adaptation.seed)
    assert (details["system"], details["depth"], details["fresh_layers"]) == ("MINIJOINT", 1, 0)
    assert details["overlap"] == sum(each["copied"] for each in details["overlap_by_class"].values()) > 5
    drawn = learned(workshop, short, tmp_path / "drawn", None)
    given = learned(workshop, short, tmp_path / "given", initial)
    assert same_tensors(vocabulary(drawn), vocabulary(given))
    assert not same_tensors(vocabulary(initial), vocabulary(given))
    before, after = (load_embeddings(folder).manifest for folder in (drawn, given))
    assert after.data_hashes == before.data_hashes | {"initial": load_embeddings(initial).fingerprint}
    assert (after.details, after.cost.flops) == (before.details, before.cost.flops)


def test_an_interrupted_adaptation_from_other_rows_is_not_gone_on_from(
    workshop: Workshop, short: Recipe, initial: Path, tmp_path: Path
) -> None:
    other = started(workshop, changed(short, "adaptation", seed=9), tmp_path / "other")
    folders = workshop.primary, workshop.blocks["de"], workshop.tokenizers["de"]
    with pytest.raises(Interruption), interruptible():
        adapt(short, *folders, 1, tmp_path / "out", stopping_after(1), initial=other)
    assert list((tmp_path / "out.training").glob("step-*"))
    interrupted = learned(workshop, short, tmp_path / "out", initial)
    assert same_tensors(vocabulary(interrupted), vocabulary(learned(workshop, short, tmp_path / "whole", initial)))


def test_initial_embeddings_of_another_primary_tokenizer_or_kind_are_refused(
    workshop: Workshop, short: Recipe, initial: Path, tmp_path: Path
) -> None:
    primary, pieces = load_primary(workshop.primary), Tokenizer.load(workshop.tokenizers["de"])
    stranger = load_primary(workshop.other_primary(tmp_path / "stranger"))
    with pytest.raises(AlignmentError, match=rf"of 'de' is aligned with primary {primary.fingerprint}.*initialise"):
        initial_rows(short, stranger, pieces, initial)
    turkish = Tokenizer.load(workshop.tokenizers["tr"])
    with pytest.raises(TokenizerError, match=rf"with tokenizer {pieces.hash} of 'de', not with {turkish.hash} of 'tr'"):
        initial_rows(short, primary, turkish, initial)
    aligned = changed(short, "adaptation", initialisation=Initialisation.ALIGNED)
    with pytest.raises(RecipeError, match=r"was initialised by 'overlap', but the recipe's .* is 'aligned'"):
        initial_rows(aligned, primary, pieces, initial)
    with pytest.raises(ArtifactError, match="holds embeddings after 30 updates"):
        initial_rows(short, primary, pieces, workshop.embeddings["de"])


def test_rows_that_need_text_name_the_inputs_that_are_missing(
    workshop: Workshop, short: Recipe, tmp_path: Path
) -> None:
    aligned = changed(short, "adaptation", initialisation=Initialisation.ALIGNED)
    with pytest.raises(RecipeError, match=r"'aligned' compares blocks .*\(--blocks\) with the source's static vectors"):
        initialise(aligned, workshop.primary, workshop.tokenizers["de"], tmp_path / "out")
    with pytest.raises(RecipeError, match=r"Run `lingraft initialise` for 'de' first, .*\(--initial\)"):
        learned(workshop, aligned, tmp_path / "out", None)
    assert not (tmp_path / "out").exists()


@pytest.fixture
def at_random(monkeypatch: pytest.MonkeyPatch) -> None:
    """No piece is shared, so that the seed decides the score."""
    monkeypatch.setattr(initial_rows_module, "shared_pieces", lambda *_: {})


@pytest.mark.usefixtures("at_random")
def test_scores_as_initialised_are_those_of_the_artifact(workshop: Workshop, short: Recipe, tmp_path: Path) -> None:
    other = started(workshop, changed(short, "adaptation", seed=9), tmp_path / "other")
    embeddings = learned(workshop, short, tmp_path / "de", other)
    found = judged(workshop, embeddings, tmp_path / "judged", other, short)
    untrained = judged(workshop, other, tmp_path / "untrained", other, short)
    assert found.masked.mini_initial == untrained.masked.mini == untrained.masked.mini_initial
    assert found.masked.primary_initial == untrained.masked.primary
    assert found.masked != judged(workshop, embeddings, tmp_path / "redrawn", None, short).masked
    hashes = Artifact.load(tmp_path / "judged", Kind.EVALUATION).manifest.data_hashes
    assert hashes["initial"] == load_embeddings(other).fingerprint
    assert (untrained.cost, untrained.depth) == (Cost(), 1)


def test_an_evaluation_refuses_initial_embeddings_that_were_not_the_start(
    workshop: Workshop, short: Recipe, initial: Path, tmp_path: Path
) -> None:
    other = started(workshop, changed(short, "adaptation", seed=9), tmp_path / "other")
    embeddings = learned(workshop, short, tmp_path / "de", other)
    with pytest.raises(AlignmentError, match=rf"learned from initial embeddings {load_embeddings(other).fingerprint}"):
        judged(workshop, embeddings, tmp_path / "judged", initial, short)


@pytest.mark.usefixtures("at_random")
def test_a_search_begins_its_trials_at_the_artifact(workshop: Workshop, short: Recipe, tmp_path: Path) -> None:
    recipe = changed(short, "search", depths=(1,), steps_at_depth=2, looks=1)
    other = started(workshop, changed(recipe, "adaptation", seed=9), tmp_path / "other")
    first = {}
    for name, start in (("given", other), ("drawn", None)):
        inputs = Inputs(workshop.primary, workshop.blocks["de"], workshop.tokenizers["de"], initial=start)
        made = search(recipe, inputs, None, tmp_path / name)
        [trial] = load_search(tmp_path / name).trials
        first[name] = trial.scores_by_flops[0][1]
        assert made.manifest.data_hashes.get("initial") == (start and load_embeddings(start).fingerprint)
    assert first["given"] != first["drawn"]


@pytest.fixture(scope="module")
def vectors(workshop: Workshop, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("vectors") / "en"
    build_vectors(workshop.recipe, workshop.blocks["en"], workshop.tokenizers["en"], out)
    return out


def from_text(shop: Workshop, recipe: Recipe, vectors: Path, out: Path) -> Artifact:
    recipe = changed(recipe, "adaptation", initialisation=Initialisation.ALIGNED)
    return initialise(recipe, shop.primary, shop.tokenizers["de"], out, shop.blocks["de"], vectors)


def sentences(file: Path, of_held_out: Callable[[str], str] = str) -> str:
    """Lines of pages in both languages; the target side of those that alignment is measured on may be another."""
    both = zip(made_up.documents("en", 200), made_up.documents("de", 200), strict=True)
    lines = (pair for pages in both for pair in zip(*(page["text"].splitlines() for page in pages), strict=True))
    pairs = (Pair(source, target, "") for source, target in lines)
    told = (f"{each.source}\t{of_held_out(each.target) if is_held_out(each) else each.target}\n" for each in pairs)
    file.write_text("".join(told), encoding="utf-8")
    return str(file)


def test_rows_from_text_alone_are_an_artifact_whose_quality_and_nearest_words_an_evaluation_has(
    workshop: Workshop,
    short: Recipe,
    initial: Path,
    vectors: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    made = from_text(workshop, short, vectors, tmp_path / "de").manifest
    blocks = Artifact.load(workshop.blocks["de"], Kind.BLOCKS)
    assert made.data_hashes == input_hashes(blocks) | {
        "source_vectors": Artifact.load(vectors, Kind.VECTORS).fingerprint
    }
    quality = made.details["alignment"]
    assert (made.details["initialisation"], quality["resource"]) == ("aligned", "text alone")
    assert quality["copied_of_shared"] + 5 == made.details["overlap"]
    assert capsys.readouterr().err.count("alignment of 'de': ") == 1
    if not quality["succeeded"]:
        source, own = load_primary(workshop.primary), Tokenizer.load(workshop.tokenizers["de"]).own
        mixer = RowMixer.of(source.source, source.tokenizer, own, short.adaptation.seed, rescales=False)
        expected = mixer.mix(mixer.nothing)
        assert torch.equal(vocabulary(tmp_path / "de")["table_VD"], expected.table_VD)
        assert not torch.equal(expected.table_VD, mixer.fitted.table_VD)
    aligned = changed(short, "adaptation", initialisation=Initialisation.ALIGNED)
    found = judged(workshop, tmp_path / "de", tmp_path / "judged", tmp_path / "de", aligned)
    assert found.initial_alignment
    assert asdict(found.initial_alignment) == quality
    assert found.alignment_metrics["alignment_agreement"] == found.initial_alignment.agreement
    assert len([each for each in found.nearest_words if not each.shared]) == 12
    assert all(each.before == each.after for each in found.nearest_words)  # not trained
    embeddings = learned(workshop, short, tmp_path / "learned", initial)
    trained = judged(workshop, embeddings, tmp_path / "drawn", initial, short)
    assert "alignment_agreement" not in trained.alignment_metrics
    assert any(each.before != each.after for each in trained.nearest_words)


def test_rows_from_an_alignment_are_compared_with_fitted_ones_by_masked_loss(
    workshop: Workshop, short: Recipe, vectors: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector_alignment, "AGREEMENT", -2.0)
    monkeypatch.setattr(aligned_rows, "MOST_ADDED_LOSS", 100.0)
    made = from_text(workshop, short, vectors, tmp_path / "de")
    source, own = load_primary(workshop.primary), Tokenizer.load(workshop.tokenizers["de"]).own
    rows = RowMixer.of(source.source, source.tokenizer, own, short.adaptation.seed, rescales=False).fitted
    found = quality_of(made.folder)
    assert found is not None
    assert found.succeeded
    fitted = make_vocabulary(rows.table_VD, rows.bias_V, rows.special, None)
    losses = [loss_of(workshop, each) for each in (load_embeddings(made.folder).vocabulary, fitted)]
    assert losses[0] - losses[1] == pytest.approx(found.added_loss, abs=1e-3)


def loss_of(shop: Workshop, own: Vocabulary) -> float:
    encoder = load_primary(shop.primary).encoder
    swap(encoder, own)
    blocks = open_split(Artifact.load(shop.blocks["de"], Kind.BLOCKS), "dev")
    most = min(len(blocks), 8192 // blocks.block_tokens)
    top = encoder.shape.layers
    return mean_loss(encoder, blocks.take(torch.arange(most) * len(blocks) // most), (top,))[top]


def test_rows_are_learned_from_parallel_text_without_the_pairs_that_alignment_is_measured_on(
    workshop: Workshop, short: Recipe, vectors: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    aligned = changed(short, "adaptation", initialisation=Initialisation.ALIGNED)
    aligned = changed(aligned, "alignment", parallel={"de": sentences(tmp_path / "en-de.tsv")})
    made = from_text(workshop, aligned, vectors, tmp_path / "de").manifest
    [told] = re.findall(r": learned from ([\d,]+) pairs; left out are (.*)\.", capsys.readouterr().err)
    counts = [int(each.replace(",", "")) for each in re.findall(r"[\d,]*\d", " ".join(told))]
    assert "pairs that alignment is measured on" in told[1]
    assert sum(counts) == len((tmp_path / "en-de.tsv").read_text(encoding="utf-8").splitlines())
    assert made.data_hashes.items() >= translation_hashes(aligned, "de").items()
    assert len(translation_hashes(aligned, "de")) == 1
    quality = made.details["alignment"]
    assert quality["resource"] == "parallel text"
    assert quality["translated"] > 50
    learned(workshop, aligned, tmp_path / "learned", tmp_path / "de", tmp_path / "curve")
    assert same_tensors(vocabulary(tmp_path / "de"), vocabulary(tmp_path / "curve" / "step-00000000"))
    other = sentences(tmp_path / "other.tsv", lambda text: " ".join(reversed(text.split()[:2])))
    from_text(workshop, changed(aligned, "alignment", parallel={"de": other}), vectors, tmp_path / "others")
    assert (tmp_path / "en-de.tsv").read_text() != (tmp_path / "other.tsv").read_text()
    assert same_tensors(vocabulary(tmp_path / "de"), vocabulary(tmp_path / "others"))


@pytest.mark.parametrize(
    ("name", "pairs", "reason"),
    [
        ("parallel", zip(lines(ENGLISH, 60), lines(FRENCH, 60), strict=True), IN_FRENCH),
        ("dictionary", zip(ENGLISH_WORDS.split(), FRENCH_WORDS.split(), strict=True), IN_FRENCH),
        ("dictionary", [("babababa", "zezezeze"), ("kikikiki", "tutututu")], "none of 2 pairs of a sample has a word"),
    ],
    ids=["parallel", "dictionary", "unknown words"],
)
def test_resources_in_another_language_are_refused_as_before_a_run(
    workshop: Workshop,
    short: Recipe,
    vectors: Path,
    tmp_path: Path,
    name: str,
    pairs: Iterable[tuple[str, str]],
    reason: str,
) -> None:
    file = tmp_path / "pairs.tsv"
    file.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")
    recipe = changed(short, "alignment", **{name: {"de": str(file)}})
    with pytest.raises(TextError, match=reason):
        from_text(workshop, recipe, vectors, tmp_path / "out")
    assert not (tmp_path / "out").exists()
