"""Pairs that alignment is measured over, and the source's side of them."""

from pathlib import Path

import pytest

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.data.bilingual_dictionary import hash_parallel, judged_hashes, parallel_hashes
from lingraft.data.blocks import open_split
from lingraft.data.parallel_text import Pair
from lingraft.data.parallel_text import is_held_out as is_held_out
from lingraft.data.shards import Blocks
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.errors import AlignmentError, ArtifactError
from lingraft.model.loading import LoadedPrimary, load_embeddings, load_primary
from lingraft.model.swap import swap
from lingraft.stages import alignment_probe
from lingraft.stages.alignment_probe import (
    FEWEST_PIECES,
    JUDGED,
    PART,
    Reference,
    language_probe,
    paragraphs,
    probe_of,
    probe_of_lines,
)
from lingraft.stages.evaluate import evaluate_language, evaluate_source
from lingraft.stages.results import ALIGNMENT, ALIGNMENT_INITIAL, MASKED, AlignmentBasis, load_items, load_language
from tests.fixtures import once
from tests.workshop import Workshop, changed


@pytest.fixture(scope="module")
def english(workshop: Workshop) -> Path:
    """The evaluation of the source."""

    def make(folder: Path) -> None:
        evaluate_source(
            workshop.recipe, workshop.primary, [], workshop.texts["en"], workshop.blocks["en"], folder / "en"
        )

    return once.folder("source-evaluation", make, workshop.recipe.to_json()) / "en"


@pytest.fixture
def primary(workshop: Workshop) -> LoadedPrimary:
    return load_primary(workshop.primary)


@pytest.fixture
def reference(english: Path, primary: LoadedPrimary) -> Reference:
    return Reference.load(english, primary)


def text_of(shop: Workshop, language: str) -> Artifact:
    return Artifact.load(shop.texts[language], Kind.TEXT)


def held_out(shop: Workshop, language: str) -> Blocks:
    return open_split(Artifact.load(shop.blocks[language], Kind.BLOCKS), "test")


def test_paragraphs_of_parallel_documents_are_paired(
    workshop: Workshop, primary: LoadedPrimary, reference: Reference
) -> None:
    pieces = Tokenizer.load(workshop.tokenizers["de"])
    found = probe_of(reference, "test", primary.tokenizer, pieces, text_of(workshop, "de"), held_out(workshop, "de"))
    assert found
    assert found.basis is AlignmentBasis.PARALLEL
    ours, theirs = (
        {each.key: each.text for document in paragraphs(text_of(workshop, language), "test") for each in document}
        for language in ("en", "de")
    )
    long = [
        key
        for key in ours
        if len(primary.tokenizer.encode(ours[key])) >= FEWEST_PIECES
        and len(pieces.encode(theirs[key])) >= FEWEST_PIECES
    ]
    assert found.pairs == len(long)
    assert found.depths == (workshop.recipe.adaptation.depth, workshop.recipe.encoder.layers)


def test_the_source_finds_all_of_itself_by_its_pieces_contexts(
    workshop: Workshop, primary: LoadedPrimary, reference: Reference
) -> None:
    """Paragraphs that stand in both languages word for word are no translations, so none is paired."""
    found = probe_of(
        reference,
        "test",
        primary.tokenizer,
        primary.tokenizer,
        text_of(workshop, "en"),
        held_out(workshop, "en"),
    )
    assert found
    assert found.basis is AlignmentBasis.PIECES
    measured = found.measure(primary.encoder)
    assert {depth: each.scores.accuracy for depth, each in measured.items()} == dict.fromkeys(found.depths, 1.0)


def test_too_few_pairs_are_not_measured(
    workshop: Workshop, primary: LoadedPrimary, reference: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alignment_probe, "FEWEST_PAIRS", 100_000)
    pieces = Tokenizer.load(workshop.tokenizers["de"])
    given = primary.tokenizer, pieces, text_of(workshop, "de"), held_out(workshop, "de")
    assert probe_of(reference, "test", *given) is None


def test_lines_given_are_pairs_as_they_stand(workshop: Workshop, primary: LoadedPrimary) -> None:
    pieces, learned = Tokenizer.load(workshop.tokenizers["de"]), load_embeddings(workshop.embeddings["de"])
    lines = [("ba de ki lo", "mu na pe ri"), ("ba ba ki", "pe pe"), ("lo mu", "so tu va")]
    found = probe_of_lines(primary, lines, pieces, (1, 3))
    assert (found.pairs, found.basis, found.depths) == (3, AlignmentBasis.LINES, (1, 3))
    same = probe_of_lines(primary, [(ours, ours) for ours, _ in lines], primary.tokenizer, (1, 3))
    assert same.measure(primary.encoder)[3].scores.accuracy == 1.0
    swap(primary.encoder, learned.vocabulary)
    again = found.measure(primary.encoder), found.measure(primary.encoder)
    assert again[0][3].scores == again[1][3].scores


def test_lines_held_out_of_parallel_text_are_measured_on_half_of_them_in_each_split(
    workshop: Workshop, primary: LoadedPrimary, tmp_path: Path
) -> None:
    pieces, blocks = Tokenizer.load(workshop.tokenizers["de"]), held_out(workshop, "de")
    pairs = [Pair(f"ba de ki {number}", f"mu na pe {number}", f"line {number}") for number in range(1000)]
    file = tmp_path / "en-de.tsv"
    file.write_text("".join(f"{pair.source}\t{pair.target}\n" for pair in pairs))
    recipe = changed(workshop.recipe, "alignment", parallel={"de": str(file)})
    count = sum(map(is_held_out, pairs))
    dev, test = (language_probe(recipe, primary, pieces, split, None, blocks, None) for split in JUDGED)
    assert dev
    assert test
    assert (dev.pairs, test.pairs) == (-(-count // 2), count // 2)
    assert dev.basis is test.basis is AlignmentBasis.LINES
    assert dev.mark != test.mark
    file.write_text("".join(f"{pair.source}\t{pair.target}\n" for pair in pairs if not is_held_out(pair)))
    assert language_probe(recipe, primary, pieces, "test", None, blocks, None) is None


def test_lines_that_only_the_measure_has_come_before_parallel_text(
    workshop: Workshop, primary: LoadedPrimary, tmp_path: Path
) -> None:
    pieces, blocks = Tokenizer.load(workshop.tokenizers["de"]), held_out(workshop, "de")
    for name, count in (("learned", 1000), ("judged", 101)):
        (tmp_path / name).write_text("".join(f"ba de ki {n} {name}\tmu na pe {n}\n" for n in range(count)))
    files = {name: {"de": str(tmp_path / name)} for name in ("learned", "judged")}
    recipe = changed(workshop.recipe, "alignment", parallel=files["learned"], judged=files["judged"])
    dev, test = (language_probe(recipe, primary, pieces, split, None, blocks, None) for split in JUDGED)
    assert dev
    assert test
    assert (dev.pairs, test.pairs) == (51, 50)
    assert judged_hashes(recipe, "de") == hash_parallel(str(tmp_path / "judged")) != parallel_hashes(recipe, "de")


def test_too_few_held_out_lines_are_told_and_the_result_names_what_was_measured_instead(
    workshop: Workshop, english: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = [Pair(f"ba de ki {number}", f"mu na pe {number}", "") for number in range(200)]
    file = tmp_path / "en-de.tsv"
    file.write_text("".join(f"{pair.source}\t{pair.target}\n" for pair in pairs))
    recipe = changed(workshop.recipe, "alignment", parallel={"de": str(file)})
    folders = workshop.texts["de"], workshop.blocks["de"], tmp_path / "de"
    evaluate_language(recipe, workshop.primary, workshop.embeddings["de"], [], *folders, source_evaluation=english)
    found = load_language(tmp_path / "de").alignment
    assert found
    assert found.basis is AlignmentBasis.PARALLEL
    held = sum(map(is_held_out, pairs)) // 2
    told = capsys.readouterr().err
    assert f"{file}: of these pairs, {held} are held out to measure alignment of 'de' on the test split" in told
    assert "give about 800 pairs or more" in told
    assert f"is measured over {found.pairs} parallel paragraphs of the test split" in told


def test_the_reference_of_another_primary_is_refused(workshop: Workshop, english: Path, tmp_path: Path) -> None:
    stranger = load_primary(workshop.other_primary(tmp_path / "primary"))
    with pytest.raises(AlignmentError, match="Evaluate the source again"):
        Reference.load(english, stranger)


def test_an_evaluation_of_a_language_is_no_reference(
    workshop: Workshop, primary: LoadedPrimary, tmp_path: Path
) -> None:
    folders = workshop.texts["de"], workshop.blocks["de"]
    evaluate_language(workshop.recipe, workshop.primary, workshop.embeddings["de"], [], *folders, tmp_path / "de")
    assert load_language(tmp_path / "de").alignment is None
    with pytest.raises(ArtifactError, match="that of a source is needed"):
        Reference.load(tmp_path / "de", primary)


def test_an_evaluation_measures_alignment_before_and_after(workshop: Workshop, english: Path, tmp_path: Path) -> None:
    folders = workshop.texts["de"], workshop.blocks["de"], tmp_path / "de"
    made = evaluate_language(
        workshop.recipe, workshop.primary, workshop.embeddings["de"], [], *folders, source_evaluation=english
    )
    result, items = load_language(tmp_path / "de"), load_items(tmp_path / "de")
    found = result.alignment
    assert found
    assert (found.basis, found.bottom_layer, found.top_layer) == (AlignmentBasis.PARALLEL, 1, 3)
    assert found.top != found.top_initial
    assert items[ALIGNMENT].score == pytest.approx(found.top.accuracy)
    assert items[ALIGNMENT_INITIAL].score == pytest.approx(found.top_initial.accuracy)
    assert len(items[ALIGNMENT]) == found.pairs != len(items[MASKED])
    assert made.manifest.data_hashes[ALIGNMENT] == Artifact.load(english, Kind.EVALUATION).manifest.fingerprints[PART]
    assert found.metrics["alignment_top"] == found.top.accuracy
    primary = load_primary(workshop.primary)
    reference = Reference.load(english, primary)
    learned = load_embeddings(workshop.embeddings["de"])
    probe = probe_of(
        reference,
        "test",
        primary.tokenizer,
        learned.tokenizer,
        text_of(workshop, "de"),
        held_out(workshop, "de"),
    )
    assert probe
    swap(primary.encoder, learned.vocabulary)
    assert probe.measure(primary.encoder)[3].scores == found.top
