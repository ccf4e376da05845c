"""Settings by which a language is added: asked for by name, a recipe's, or derived."""

from pathlib import Path
from typing import Any

import pytest

from lingraft.config.recipe import Recipe
from lingraft.config.systems import System
from lingraft.config.text import Cleaning, Files
from lingraft.errors import DepthError, LingraftError, RecipeError
from lingraft.new_language.recipe import Basis, LanguageRecipe, Resources, Wanted

RECIPE = Recipe.load(Path(__file__).parents[1] / "tiny.toml")
RAW = RECIPE.model_dump(mode="json")
MINIPOST = Recipe.parse(RAW | {"system": "MINIPOST", "search": None, "mini": RAW["pretraining"]})
TINY = Basis(name="primary", language="en", shape=RECIPE.encoder, vocabulary=120, depth=None, fresh_layers=0)


def basis(**changes: Any) -> Basis:
    return Basis(**vars(TINY) | changes)


def settled(
    of: Basis = TINY, recipe: Recipe | None = None, language: str = "sw", text: str = "sw.txt", **wanted: Any
) -> LanguageRecipe:
    return LanguageRecipe.of(language, [Path(text)], of, Wanted(**wanted), recipe)


def heads(*depths: int) -> dict[str, Any]:
    return {"shape": RECIPE.encoder.cut(3, depths)}


@pytest.mark.parametrize(("blocks", "steps"), [(1_600, 500), (1_601, 501), (400_000, 125_000), (10**8, 125_000)])
def test_updates_follow_from_the_text_within_bounds(blocks: int, steps: int) -> None:
    adaptation = settled().for_text(blocks).adaptation
    assert (adaptation.steps, adaptation.warmup_steps) == (steps, round(0.08 * steps))


def test_updates_that_are_asked_for_do_not_depend_on_the_text() -> None:
    for lane in (settled(steps=77), settled(recipe=RECIPE, steps=77)):
        assert {lane.for_text(blocks).adaptation.steps for blocks in (1, 10**6)} == {77}
    assert settled(recipe=RECIPE).for_text(10**6).adaptation.steps == RECIPE.adaptation.steps


@pytest.mark.parametrize(
    ("of", "system", "depth"),
    [
        (TINY, System.MINIJOINT, 1),
        (basis(**heads(2, 3)), System.MINIJOINT, 2),
        (basis(**heads(3)), System.BL_BASE, 3),
        (basis(**heads(3), depth=2, fresh_layers=1), System.MINIPOST, 2),
    ],
)
def test_the_system_follows_from_the_heads_and_the_mini_model(of: Basis, system: System, depth: int) -> None:
    recipe = settled(of).recipe
    assert (recipe.system, recipe.adaptation.depth, recipe.primary_shape) == (system, depth, of.shape)


def test_a_recipe_brings_all_but_language_text_and_tasks_and_what_is_asked_for_goes_before_it() -> None:
    cleaning = Cleaning()
    training = RECIPE.adaptation.model_copy(update={"steps": 100, "warmup_steps": 10})
    given = RECIPE.model_copy(
        update={"text": RECIPE.text.model_copy(update={"cleaning": cleaning}), "adaptation": training}
    )
    recipe = settled(recipe=given, text="here/sw.txt").recipe
    assert (recipe.targets, recipe.tasks, recipe.search) == (("sw",), (), None)
    paths = {"sw": (str(Path("here/sw.txt").resolve()),)}
    assert recipe.text == Files(kind="files", paths=paths, cleaning=cleaning)
    same = ("source", "tokenizer", "encoder", "adaptation", "split", "precision", "system")
    assert {name: getattr(recipe, name) for name in same} == {name: getattr(given, name) for name in same}
    wanted = {"depth": 2, "batch_blocks": 4, "learning_rate": 0.5, "seed": 9, "steps": 50}
    adaptation = settled(recipe=given, **wanted).recipe.adaptation
    assert adaptation.model_dump().items() >= wanted.items()
    assert adaptation.warmup_steps == 5
    text = settled(recipe=given, text_column="body").recipe.text
    assert isinstance(text, Files)
    assert text.column == "body"


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"of": basis(language="fr"), "recipe": RECIPE}, RecipeError, "source is 'en', the primary's language is 'fr'"),
        ({"of": basis(**heads(1, 3)), "recipe": RECIPE}, RecipeError, r"the recipe's \[encoder\] is .* Correct"),
        ({"of": basis(depth=1), "recipe": RECIPE}, RecipeError, "system is MINIJOINT, but a mini-model was given"),
        ({"language": "en"}, RecipeError, r"'en' is the primary's own language\. Give"),
        ({"language": "en-US"}, RecipeError, r"'en-US' is the primary's own language, 'en'\. Give"),
        ({"of": basis(language="pt-PT"), "language": "pt-BR"}, RecipeError, "'pt-BR' is the primary's own language"),
        ({"of": basis(**heads(1, 3)), "depth": 2}, DepthError, r"depth 2 .* MLM heads at \[1, 3\]. Choose"),
        ({"of": basis(**heads(3), depth=1, fresh_layers=2), "depth": 2}, DepthError, "mini-model is of depth 1"),
        ({"of": basis(**heads(3), depth=3, fresh_layers=2)}, RecipeError, "leaves none of the primary's 3 layers out"),
        ({"recipe": RECIPE, "depth": 0}, DepthError, "depth 0"),
        ({"of": basis(**heads()), "depth": 9}, DepthError, r"depth 9 .* 3 layers. Give 1 to 3 \(--depth\)"),
        ({"language": "deutsch"}, RecipeError, "'deutsch' is no BCP 47 tag.* Is 'de' meant"),
        ({"of": basis(**heads(3)), "recipe": MINIPOST}, RecipeError, "is MINIPOST, but no mini-model was given"),
    ],
)
def test_what_does_not_fit_is_refused(given: dict[str, Any], error: type[LingraftError], words: str) -> None:
    with pytest.raises(error, match=words):
        settled(**given)


@pytest.mark.parametrize(
    ("wanted", "resources", "words"),
    [
        ({}, {"pairs": "p.tsv", "dictionary": "d.txt"}, "Leave them out: --dictionary: the sentence pairs"),
        ({}, {"pairs": "p.tsv", "source_text": "en.txt"}, "--source-text: pairs are mined only without --pairs"),
        ({"batch_blocks": 4}, {"pairs": "p.tsv"}, "--batch: batches of sentence pairs hold tokens"),
        ({"vocabulary": 99, "steps": 5}, {}, "--vocabulary: the language keeps .*; --steps: nothing is learned"),
    ],
)
def test_an_option_that_nothing_reads_is_refused_by_name(
    wanted: dict[str, Any], resources: dict[str, Any], words: str
) -> None:
    with pytest.raises(RecipeError, match=words):
        LanguageRecipe.of("sw", [Path("sw.txt")], basis(**heads()), Wanted(**wanted), None, Resources.of(**resources))


def test_the_vocabulary_is_the_primarys_up_to_the_papers_unless_asked_for() -> None:
    assert settled().recipe.tokenizer.vocabulary == 120
    imported = settled(basis(vocabulary=250_002))
    assert (imported.recipe.tokenizer.vocabulary, imported.may_shrink_vocabulary) == (50_000, True)
    for lane in (settled(vocabulary=99), settled(recipe=RECIPE, vocabulary=99)):
        assert (lane.recipe.tokenizer.vocabulary, lane.may_shrink_vocabulary) == (99, False)
    assert not settled(recipe=RECIPE).may_shrink_vocabulary


def test_resources_are_absolute_and_uris_stay_though_a_path_loses_a_slash(tmp_path: Path) -> None:
    found = Resources.of([Path("s3://bucket/en-de.tsv")], tmp_path / "en-de.txt")
    assert found.pairs == "s3://bucket/en-de.tsv"
    assert found.dictionary == str(tmp_path / "en-de.txt")
