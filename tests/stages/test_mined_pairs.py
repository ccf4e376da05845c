"""From text of two languages alone: pairs are mined, kept with the initial rows of a headless model, and learned by."""

import json
import random
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from transformers import BertTokenizer

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.config.recipe import Recipe
from lingraft.data import blocks, text
from lingraft.data.parallel_text import Pair, is_held_out, read_pairs
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.data.tokenizer.training import train_tokenizer
from lingraft.errors import RecipeError
from lingraft.huggingface.importing import import_hf
from lingraft.jobs.training import InitialisationJob
from lingraft.model.initialisation.alignment_quality import AlignmentResource
from lingraft.model.loading import load_embeddings, load_primary
from lingraft.stages.adapt import adapt
from lingraft.stages.build_mini import build_mini
from lingraft.stages.embeddings import mined_pairs_of, quality_of
from lingraft.stages.initialise import initialise
from lingraft.stages.sentence_pairs import PairData
from lingraft.training.schedule import ignore_metrics
from tests.huggingface.checkpoints import make_model

WORDS, PAGES, LINES = 300, 260, 10
SYLLABLES = {
    "en": ("ba", "de", "ki", "lo", "mu", "na", "pe", "ri"),
    "de": ("fo", "gy", "hu", "wi", "xa", "zo", "ce", "ju"),
}
SHARED = 80
"""Words that both languages write alike: numbers."""


def lexicon(language: str) -> list[str]:
    draw = random.Random(language)
    words = {"".join(draw.choices(SYLLABLES[language], k=3)): None for _ in range(20 * WORDS)}
    return [*(str(number) for number in range(100, 100 + SHARED)), *[*words][: WORDS - SHARED]]


LEXICA = {language: lexicon(language) for language in ("en", "de")}
MEANINGS = dict(zip(LEXICA["de"], LEXICA["en"], strict=True))


def write_pages(folder: Path, language: str, seed: int = 1, first: int = 0) -> None:
    """Write documents, which say the same in every language for the same seed, in words from the first on."""
    draw = random.Random(seed)
    lines = [[draw.randrange(first, WORDS) for _ in range(8)] for _ in range(PAGES * LINES)]
    told = [" ".join(LEXICA[language][number] for number in line) for line in lines]
    found = (
        {"name": str(start), "text": "\n".join(told[start : start + LINES])} for start in range(0, len(told), LINES)
    )
    (folder / f"{language}.jsonl").write_text("".join(f"{json.dumps(page)}\n" for page in found), encoding="utf-8")


class Project(NamedTuple):
    """A recipe that mines, and the folder of a primary without a head and of the language's tokenizer and blocks."""

    recipe: Recipe
    folder: Path

    def recipe_with(self, **alignment: Any) -> Recipe:
        """The recipe with other resources."""
        raw = self.recipe.model_dump(mode="json")
        return Recipe.parse(raw | {"alignment": alignment, "adaptation": raw["adaptation"] | {"pairs": None}})

    def initialised(self, out: Path, recipe: Recipe | None = None) -> Path:
        """Rows made without blocks and vectors."""
        initialise(recipe or self.recipe, self.folder / "primary", self.folder / "tokenizer", out)
        return out


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    folder = tmp_path_factory.mktemp("project")
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LEXICA["en"]]
    model = make_model("bert", vocab_size=len(pieces), pad_token_id=0, hidden_size=96)
    model.base_model.save_pretrained(folder / "checkpoint")
    BertTokenizer(vocab={piece: index for index, piece in enumerate(pieces)}).save_pretrained(folder / "checkpoint")
    import_hf(str(folder / "checkpoint"), folder / "primary", "en")
    (folder / "text").mkdir()
    for language in SYLLABLES:
        write_pages(folder / "text", language)
    tiny = Recipe.load(Path(__file__).parents[1] / "tiny.toml").model_dump(mode="json")
    shape = load_primary(folder / "primary").encoder.shape
    tiny |= {"system": "MINIPOST", "encoder": shape.model_dump(mode="json"), "search": None, "tasks": []}
    tiny |= {"targets": ["de"], "alignment": {"mined": True}, "gate": {"metric": "alignment"}}
    tiny["mini"] = {"fresh_layers": 1, "steps": 2, "batch_blocks": 4, "learning_rate": 1e-3}
    tiny["tokenizer"] |= {"vocabulary": WORDS + 25, "borrow": True}
    tiny["adaptation"] |= {"depth": 1, "steps": 5, "initialisation": "aligned", "pairs": {"batch_tokens": 256}}
    recipe = Recipe.parse(tiny).with_folder(folder / "text")
    text.prepare(recipe, "de", folder / "text-de")
    train_tokenizer(recipe, folder / "text-de", folder / "tokenizer", folder / "primary")
    return Project(recipe, folder)


@pytest.fixture(scope="module")
def initial(project: Project) -> Path:
    return project.initialised(project.folder / "initial")


def training_lines(project: Project, language: str) -> list[str]:
    return [line for line in text.read_training_lines(project.recipe, language) if line]


def test_training_lines_are_those_of_the_training_split(project: Project) -> None:
    lines = training_lines(project, "de")
    kept = text.load_split(Artifact.load(project.folder / "text-de", Kind.TEXT), "train")
    assert lines == [line for document in kept for line in document.text.split("\n")]
    assert 0 < len(lines) < PAGES * LINES


def test_rows_of_a_model_without_a_head_need_nothing_but_text_of_both_languages(
    project: Project, initial: Path
) -> None:
    quality = quality_of(initial)
    assert quality
    assert quality.resource is AlignmentResource.MINED
    assert (quality.succeeded, quality.agreement, quality.mapped) == (True, None, 0)
    source, german = load_primary(project.folder / "primary"), load_embeddings(initial)
    surfaces = {each.text: index for index, each in enumerate(german.tokenizer.surfaces()) if each and each.initial}
    english = {piece: index for index, piece in enumerate(source.tokenizer.pieces())}
    words = [
        word for word in LEXICA["de"][SHARED:] if surfaces.get(word, len(german.vocabulary)) < len(german.vocabulary)
    ]
    rows_VD = german.vocabulary.table_VD.detach()[[surfaces[word] for word in words]]
    wanted = torch.tensor([english[MEANINGS[word]] for word in words])
    unit_VD = torch.nn.functional.normalize(source.source.table_VD.detach())
    assert len(words) > 20
    assert ((rows_VD @ unit_VD.T).argmax(1) == wanted).float().mean() > 0.9
    assert {"mined_text"} <= Artifact.load(initial, Kind.EMBEDDINGS).manifest.data_hashes.keys()


def test_mined_pairs_are_kept_and_are_translations_of_training_lines(project: Project, initial: Path) -> None:
    file = mined_pairs_of(initial)
    assert file
    pairs = [*read_pairs(file, ("en", "de"))]
    assert {pair.source for pair in pairs} <= {*training_lines(project, "en")}
    assert {pair.target for pair in pairs} <= {*training_lines(project, "de")}
    right = [" ".join(MEANINGS[word] for word in pair.target.split()) == pair.source for pair in pairs]
    assert sum(right) / len(right) > 0.9


def test_adaptation_learns_by_mined_pairs_where_there_are_no_others(project: Project, initial: Path) -> None:
    recipe, folder = project
    source, pieces = load_primary(folder / "primary"), Tokenizer.load(folder / "tokenizer")
    pairs = PairData.load(recipe, source, pieces, [1], initial)
    assert pairs
    assert len(pairs) == sum(not is_held_out(pair) for pair in read_pairs(mined_pairs_of(initial) or "", ("en", "de")))
    with pytest.raises(RecipeError, match=r"parallel has some in .* only, and none were mined"):
        PairData.load(recipe, source, pieces, [1])
    given = folder / "given.tsv"
    given.write_text("100 101\t100 101\n102 103\t102 103\n", encoding="utf-8")
    raw = recipe.model_dump(mode="json") | {"alignment": {"mined": True, "parallel": {"de": str(given)}}}
    own = PairData.load(Recipe.parse(raw), source, pieces, [1], initial)
    assert own
    assert len(own) == sum(not is_held_out(Pair(*line.split("\t"), "")) for line in given.read_text().splitlines())
    for language, tokenizer in (("en", folder / "primary"), ("de", folder / "tokenizer")):
        text_of = folder / f"text-{language}"
        if not text_of.exists():
            text.prepare(recipe, language, text_of)
        blocks.build(recipe, text_of, tokenizer, folder / f"blocks-{language}")
    build_mini(recipe, folder / "primary", folder / "blocks-en", folder / "mini", ignore_metrics)
    adapt(
        recipe,
        folder / "primary",
        folder / "blocks-de",
        folder / "tokenizer",
        1,
        folder / "de",
        ignore_metrics,
        mini=folder / "mini",
        initial=initial,
    )
    learned = load_embeddings(folder / "de")
    assert learned.manifest.details["pairs"]["layers"] == "bottom"
    assert not torch.equal(learned.vocabulary.table_VD, load_embeddings(initial).vocabulary.table_VD)


def test_unrelated_text_leaves_rows_as_the_source_reads_them(
    project: Project, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for language, seed in (("en", 1), ("de", 2)):
        write_pages(tmp_path, language, seed, first=SHARED)
    recipe = project.recipe_with(mined=True).with_folder(tmp_path)
    made = project.initialised(tmp_path / "made", recipe)
    assert "no pairs are mined: " in capsys.readouterr().err
    assert mined_pairs_of(made) is None
    quality = quality_of(made)
    assert quality
    assert (quality.resource, quality.succeeded, quality.translated) == (AlignmentResource.TEXT, False, 0)


def test_without_a_head_or_translations_rows_are_the_sources_reading(project: Project, tmp_path: Path) -> None:
    lines = [f"{here}\t{there}\n" for there, here in MEANINGS.items()]
    for name in ("parallel", "dictionary"):
        (tmp_path / name).write_text("".join(lines), encoding="utf-8")
        made = project.initialised(tmp_path / f"by {name}", project.recipe_with(**{name: {"de": str(tmp_path / name)}}))
        quality = quality_of(made)
        assert quality
        assert quality.translated > SHARED
    quality = quality_of(project.initialised(tmp_path / "nothing", project.recipe_with()))
    assert quality
    assert (quality.resource, quality.translated) == (AlignmentResource.TEXT, 0)


def test_the_texts_content_is_part_of_what_mined_rows_are_made_from(project: Project, tmp_path: Path) -> None:
    def provenance(recipe: Recipe) -> dict[str, Any]:
        folders = {"primary": project.folder / "primary", "tokenizer": project.folder / "tokenizer"}
        job = InitialisationJob(recipe=recipe, out=tmp_path / "out", **folders)
        return {**job.settings, **job.outside()}

    copy = project.recipe.with_folder(shutil.copytree(project.folder / "text", tmp_path / "text"))
    assert provenance(copy) == provenance(project.recipe)
    write_pages(tmp_path / "text", "en", seed=2)
    changed, before = provenance(copy), provenance(project.recipe)
    assert [name for name, value in changed.items() if value != before[name]] == ["text en"]
    assert {"mined", "text en", "text de"} == before.keys() - provenance(project.recipe_with()).keys()
