"""What a local run will do is counted before it begins."""

from collections import Counter

from lingraft.config.recipe import Recipe
from pipelines import build
from pipelines.plan import planned_steps
from tests.pipelines.compiled import ROOT

DEMO = Recipe.load(ROOT / "recipes" / "demo-scratch.toml")
_LANE = ("prepare-text", "train-tokenizer", "build-blocks")


def test_every_step_of_the_demo_is_planned_in_an_order_in_which_it_may_run() -> None:
    plan = planned_steps(build.source_pipeline(DEMO), {})
    kinds = [each.kind for each in plan]
    assert kinds.index("build-blocks") < kinds.index("build-vectors") < kinds.index("register-source")
    kinds.remove("build-vectors")  # which may come anywhere between
    wanted = ["open-run", *_LANE, "pretrain", *2 * ["finetune"], "evaluate-source", "register-source", "close-run"]
    assert kinds[kinds.index("open-run") :] == wanted
    assert {each.kind for each in plan if each.at_once == 2} == {"finetune"}  # the recipe's parallel_languages


def test_a_language_is_planned_with_each_depth() -> None:
    for compare, depths in ((False, 1), (True, 2)):
        plan = planned_steps(build.language_pipeline(DEMO), {"compare": compare, "languages": ["de", "tr"]})
        counts = Counter(each.kind for each in plan)
        assert [counts[kind] for kind in (*_LANE, "initialise", "depths-of", "register-language")] == 6 * [2]
        assert counts["adapt"] == counts["evaluate-language"] == 2 * depths
