"""A progressive adaptation in a pipeline: one entry among the depths, judged and registered like any other."""

from pathlib import Path

from lingraft import tracking
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.artifacts.names import embeddings_name
from lingraft.config.recipe import Recipe
from lingraft.stages import results
from lingraft.steps import language
from tests.steps.conftest import Registered
from tests.tracking_stores import quiet
from tests.training.progressive.project import FIXED, progressive

pytestmark = quiet
ENDS_BEFORE_THE_TOP = FIXED | {"depths": [1, 2], "shares": [0.5, 0.5]}


def depths(recipe: str, compare: bool, out: Path) -> list[int]:
    return language.choose_depths(language.DepthChoice(recipe=recipe, language="de", compare=compare, out=out))


def test_it_is_registered_with_its_depths_and_plain_ones_beside_it_are_handed_on(
    registered: Registered, tmp_path: Path
) -> None:
    recipe = progressive(registered.shop.recipe, ENDS_BEFORE_THE_TOP, depth=2).to_json()
    run = registered.begin(tmp_path / "run")
    assert depths(recipe, compare=False, out=tmp_path) == [2]
    judged = [registered.judge(run, depth, tmp_path, recipe) for depth in depths(recipe, compare=True, out=tmp_path)]
    chosen, handed = tmp_path / "chosen", tmp_path / "results"
    registered.register(run, judged, chosen, handed, recipe)
    tags = tracking.tags_of(embeddings_name(registered.shop.recipe, "de"))
    phases = Artifact.load(chosen, Kind.EMBEDDINGS).manifest.details["phases"]
    assert (tags["depth"], tags["progressive"]) == ("2", f"{phases[0]['steps']} over 1, {phases[1]['steps']} over 2")
    found = {result.depth: result for result in map(results.load_language, handed.iterdir())}
    assert {depth: (result.shallower, result.standard) for depth, result in found.items()} == {
        2: ((1,), False),
        3: ((), True),
    }
    assert found[3].whole_flops == found[3].cost.flops
    # As many updates over all layers as `steps` says, to within one, although more were made of the shallow kind.
    steps = Recipe.parse(recipe).adaptation.steps
    assert found[2].cost.steps > steps
    assert (1 - 1 / steps) * found[3].whole_flops < found[2].whole_flops <= (1 + 1e-9) * found[3].whole_flops
