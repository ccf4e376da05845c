"""What decides a job's result beside its inputs."""

from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from lingraft.artifacts.cache import RESULTS_VARIABLE
from lingraft.config.initialisation import Initialisation
from lingraft.config.recipe import Recipe
from lingraft.config.translations import Alignment
from lingraft.data.bilingual_dictionary import translation_hashes
from lingraft.jobs.data import TextJob
from lingraft.jobs.evaluation import LanguageEvaluationJob, SourceEvaluationJob
from lingraft.jobs.job import Job
from lingraft.jobs.training import InitialisationJob, VectorsJob
from lingraft.model.loading import load_embeddings
from tests import dictionaries
from tests.workshop import TINY, Workshop, changed, same_tensors


def test_translations_count_by_their_content_where_rows_are_aligned_by_them(tmp_path: Path) -> None:
    first, second, words = (tmp_path / name for name in ("a.tsv", "b.tsv", "words.txt"))
    for file in (first, second):
        file.write_text("a house\tein Haus\na tree\tein Baum\n")
    words.write_text("house Haus\n")
    drawn = Recipe.load(TINY).model_copy(update={"alignment": Alignment(parallel={"de": str(first)})})
    aligned = changed(drawn, "adaptation", initialisation=Initialisation.ALIGNED)
    mark = translation_hashes(aligned, "de")
    assert mark.keys() == {"translations"}
    assert mark == translation_hashes(changed(aligned, "alignment", parallel={"de": str(second)}), "de")
    assert mark != translation_hashes(changed(aligned, "alignment", parallel={}, dictionary={"de": str(words)}), "de")
    first.write_text("a house\tein Haus\na tree\tein Strauch\n")
    assert mark != translation_hashes(aligned, "de")
    freedict = dictionaries.freedict(tmp_path / "freedict", {"sol": "zun"})
    named = [{"de": str(freedict)}, {"de": f"{freedict}/freedict-xxa-xxb.index"}]
    [mark] = {
        translation_hashes(changed(aligned, "alignment", parallel={}, dictionary=each), "de")["translations"]
        for each in named
    }
    dictionaries.freedict(freedict, {"sol": "mun"})
    learned = changed(aligned, "alignment", parallel={}, dictionary=named[0])
    assert mark != translation_hashes(learned, "de")["translations"]
    assert translation_hashes(aligned, "tr") == translation_hashes(drawn, "de") == {}


def judging(workshop: Workshop, recipe: Recipe) -> tuple[Job, Job]:
    """Evaluation of the source, and of German."""
    common: dict[str, Any] = {
        "recipe": recipe,
        "primary": workshop.primary,
        "tasks": tuple(workshop.tasks.values()),
        "out": Path("out"),
    }
    source = SourceEvaluationJob(text=workshop.texts["en"], blocks=workshop.blocks["en"], **common)
    german = LanguageEvaluationJob(
        embeddings=workshop.embeddings["de"], text=workshop.texts["de"], blocks=workshop.blocks["de"], **common
    )
    return source, german


def test_what_the_endpoint_is_asked_about_does_not_decide_scores(workshop: Workshop) -> None:
    def keys(recipe: Recipe) -> list[object]:
        return [job.provenance for job in judging(workshop, recipe)]

    def with_task(**changes: object) -> Recipe:
        return workshop.recipe.model_copy(update={"tasks": (workshop.recipe.task().model_copy(update=changes),)})

    asked = with_task(examples={"en": "mu na pe", "tr": "so tu"}, label_names={"garden": "Gardens"})
    assert keys(asked) == keys(workshop.recipe)
    for other in (with_task(languages=("de",)), changed(workshop.recipe, "adaptation", seed=9)):
        assert all(one != same for one, same in zip(keys(other), keys(workshop.recipe), strict=True))


def test_bounding_the_judged_test_blocks_asks_for_new_scores_and_for_no_new_text(workshop: Workshop) -> None:
    bounded = workshop.recipe.model_copy(update={"test_blocks": 3})
    for before, after in zip(judging(workshop, workshop.recipe), judging(workshop, bounded), strict=True):
        assert before.provenance != after.provenance
    text, same = (
        TextJob(recipe=recipe, language="de", out=workshop.texts["de"]).settings
        for recipe in (workshop.recipe, bounded)
    )
    assert text == same


def test_the_sentences_that_alignment_is_measured_over_decide_a_languages_scores(
    workshop: Workshop, tmp_path: Path
) -> None:
    file = tmp_path / "a.tsv"
    recipe = workshop.recipe.model_copy(update={"alignment": Alignment(parallel={"de": str(file)})})
    file.write_text("a house\tein Haus\n")
    before = [job.provenance for job in judging(workshop, recipe)]
    file.write_text("a tree\tein Baum\n")
    after = [job.provenance for job in judging(workshop, recipe)]
    assert before[0] == after[0]
    assert before[1] != after[1]


def test_a_languages_static_vectors_are_computed_once_for_all_its_initial_embeddings(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = changed(workshop.recipe, "adaptation", initialisation=Initialisation.ALIGNED)
    pieces: dict[str, Any] = {"blocks": workshop.blocks["de"], "tokenizer": workshop.tokenizers["de"]}
    source: dict[str, Any] = {"blocks": workshop.blocks["en"], "tokenizer": workshop.tokenizers["en"]}
    VectorsJob(recipe=recipe, out=tmp_path / "vectors", **source).make()

    def rows(name: str, seed: int) -> dict[str, Tensor]:
        job = InitialisationJob(
            recipe=changed(recipe, "adaptation", seed=seed),
            primary=workshop.primary,
            source_vectors=tmp_path / "vectors",
            out=tmp_path / name,
            **pieces,
        )
        return load_embeddings(job.make().folder).vocabulary.state_dict()

    alone = rows("alone", seed=2)
    monkeypatch.setenv(RESULTS_VARIABLE, str(tmp_path / "results"))
    rows("first", seed=1)
    assert "static vectors of 'de': made before" not in capsys.readouterr().err
    assert same_tensors(rows("second", seed=2), alone)
    assert "static vectors of 'de': made before from the same" in capsys.readouterr().err
    assert len([*(tmp_path / "results").glob("vectors-*/result/vectors.safetensors")]) == 1
