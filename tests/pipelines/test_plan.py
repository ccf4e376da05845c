"""What a local run will do is counted before it begins."""

from collections import Counter

from kfp import dsl

from components.step import step
from lingraft.comparison.plan import plan_comparison
from lingraft.config.initialisation import Initialisation
from lingraft.config.recipe import Recipe
from pipelines import build
from pipelines.paper import paper_pipeline
from pipelines.plan import planned_steps
from tests.pipelines.compiled import ROOT
from tests.workshop import changed

DEMO = Recipe.load(ROOT / "recipes" / "demo-scratch.toml")
_LANE = ("prepare-text", "train-tokenizer", "build-blocks")


def test_every_step_of_the_demo_is_planned_in_an_order_in_which_it_may_run() -> None:
    plan = planned_steps(build.source_pipeline(DEMO), {})
    kinds = [each.kind for each in plan]
    assert kinds.index("build-blocks") < kinds.index("build-vectors") < kinds.index("register-source")
    kinds.remove("build-vectors")  # which may come anywhere between
    wanted = ["open-run", *_LANE, "pretrain", *2 * ["finetune"], "evaluate-source", "register-source", "close-run"]
    assert kinds[kinds.index("open-run") :] == wanted
    assert [each.flops for each in plan if each.kind == "finetune"] == 2 * [None]
    assert {each.kind for each in plan if each.flops} == {"pretrain"}
    assert {each.kind for each in plan if each.at_once == 2} == {"finetune"}  # the recipe's parallel_languages


def test_static_vectors_are_planned_only_where_languages_are_aligned_with_them() -> None:
    overlap = changed(DEMO, "adaptation", initialisation=Initialisation.OVERLAP)
    drawn, aligned = (
        Counter(each.kind for each in planned_steps(build.source_pipeline(of), {})) for of in (overlap, DEMO)
    )
    assert aligned == drawn + Counter({"build-vectors": 1})


def test_each_primary_of_a_comparison_has_one_start_a_language_where_rows_need_text() -> None:
    base = Recipe.load(ROOT / "recipes" / "base.toml")
    aligned = changed(base, "adaptation", initialisation=Initialisation.ALIGNED)
    counts = Counter(each.kind for each in planned_steps(paper_pipeline(aligned), {"languages": ["de", "tr"]}))
    assert counts["build-vectors"] == 1
    assert counts["initialise"] == 2 * len(plan_comparison(aligned).primaries)
    assert not {"build-vectors", "initialise"} & {each.kind for each in planned_steps(paper_pipeline(base), {})}


def test_a_language_is_planned_with_each_depth_and_trainings_are_weighed_by_the_recipes_flops() -> None:
    source = planned_steps(build.source_pipeline(DEMO), {})
    for compare, depths in ((False, 1), (True, 2)):
        plan = planned_steps(build.language_pipeline(DEMO), {"compare": compare, "languages": ["de", "tr"]})
        counts = Counter(each.kind for each in plan)
        assert [counts[kind] for kind in (*_LANE, "initialise", "depths-of", "register-language")] == 6 * [2]
        assert counts["adapt"] == counts["evaluate-language"] == 2 * depths
    [judged] = {each for each in plan if each.kind == "evaluate-language"}
    assert (judged.flops, judged.like) == (None, ("evaluate-source", 2.0))  # of its length, and no light step
    assert [each.flops for each in source if each.kind == "evaluate-source"] == [None]
    plan = planned_steps(build.language_pipeline(DEMO), {})
    flops = {each.kind: each.flops or 0.0 for each in (*source, *plan)}
    # About three times the layers and passes.
    updates = DEMO.pretraining.steps / DEMO.adaptation.steps
    assert 2 * updates < flops["pretrain"] / flops["adapt"] < 8 * updates


def test_loops_side_by_side_are_counted_as_kfp_runs_them() -> None:
    @step
    def work(number: int):
        """Do nothing."""

    @dsl.pipeline(name="loops")
    def pipeline() -> None:
        with dsl.ParallelFor([1, 2, 3]) as outer, dsl.ParallelFor([1], parallelism=1):
            work(number=outer)
        with dsl.ParallelFor([1, 2, 3], parallelism=1) as number:
            work(number=number)

    assert Counter(each.at_once for each in planned_steps(pipeline, {})) == {2: 3, 1: 3}
