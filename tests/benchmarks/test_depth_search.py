import math

import pytest

from benchmarks.depth_search_page import Case, Found, Ran, verdict_on
from lingraft.stages.results import SearchResult, Trial


def _trial(depth: int, score: float) -> Trial:
    cost = {"steps": 1, "flops": 2.0, "elapsed_s": 3.0}
    return Trial(depth=depth, score=score, pruned=False, scores_by_flops=[(2.0, score)], **cost)


def _case(seed: int, chosen: int, scores: dict[int, float]) -> Case:
    grid = [_trial(depth, score) for depth, score in scores.items()]
    result = SearchResult(language="de", primary="ab", chosen=chosen, trials=grid[:1])
    return Case(language="de", seed=seed, grid=grid, found=Found(result=result, elapsed_s=1.0), standard=_RAN)


_RAN = Ran(flops=5.0, training_s=7.0)


def test_the_best_depth_is_that_of_the_best_mean_and_another_is_as_good_within_its_deviation() -> None:
    scores = [{1: 0.10, 2: 0.20, 4: 0.19}, {1: 0.12, 2: 0.24, 4: 0.21}, {1: 0.11, 2: 0.22, 4: 0.215}]
    cases = [_case(seed, chosen, each) for seed, (chosen, each) in enumerate(zip((2, 4, 1), scores, strict=True))]
    verdict = verdict_on(cases)
    assert verdict.best == 2
    assert verdict.deviation == pytest.approx(0.02)
    assert verdict.within == {0: True, 1: True, 2: False}


def test_one_seed_says_nothing_of_spread() -> None:
    verdict = verdict_on([_case(1, 4, {2: 0.20, 4: 0.19})])
    assert math.isnan(verdict.deviation)
    assert verdict.within == {1: False}


def test_a_case_adds_up_what_the_grid_and_the_search_took() -> None:
    case = _case(1, 2, {2: 0.2, 4: 0.1})
    assert (case.grid_flops, case.grid_s, case.search_s) == (4.0, 6.0, 3.0)
