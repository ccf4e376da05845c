"""Arms of the comparison: every fixed depth, and two ways from the shallowest to the deepest, all at equal FLOPs."""

from dataclasses import dataclass
from typing import Any

from lingraft.config.progressive import DevLossSwitch, steps_until
from lingraft.config.recipe import Recipe
from lingraft.config.systems import Stage
from lingraft.errors import RecipeError
from lingraft.model.flops import step_flops

FIXED, DEV_LOSS = "progressive, equal shares", "progressive, by dev loss"
_CURVE_POINTS = 8


@dataclass(frozen=True)
class Arm:
    """One way to learn a language's embeddings, with one seed."""

    title: str
    recipe: Recipe

    @property
    def depth(self) -> int:
        """Return the depth at which the adaptation ends."""
        return self.recipe.adaptation.depth

    @property
    def name(self) -> str:
        """One word, different for every arm and seed."""
        return f"{self.title.replace(', ', '-').replace(' ', '-')}-seed-{self.recipe.adaptation.seed}"


def arms(recipe: Recipe, vocabulary: int, seed: int) -> list[Arm]:
    """Every arm of one language with one seed.

    Args:
        recipe: recipe whose adaptation goes progressively over all heads of the primary, by the dev loss.
        vocabulary: pieces of the language.
        seed: seed of the rows, the order of the text and the masks.

    Raises:
        RecipeError: the recipe's adaptation is another one.
    """
    depths, progressive = recipe.encoder.mlm_heads, recipe.adaptation.progressive
    if not isinstance(progressive, DevLossSwitch) or progressive.depths != depths:
        raise RecipeError(
            f"the benchmark needs [adaptation.progressive] with kind = 'dev_loss' and depths = {list(depths)}, all "
            f"heads of the primary, but has {progressive}. Correct the recipe."
        )
    flops = [step_flops(recipe, recipe.steps_over(d)[Stage.ADAPT], recipe.adaptation, vocabulary) for d in depths]
    lengths = [steps_until(recipe.adaptation.steps, 0, each / flops[-1]) for each in flops]
    shares = {"kind": "fixed", "depths": depths}
    return [
        *(
            _arm(recipe, f"depth {d}", n, seed, n, depth=d, progressive=None)
            for d, n in zip(depths, lengths, strict=True)
        ),
        _arm(recipe, FIXED, recipe.adaptation.steps, seed, lengths[0], progressive=shares),
        _arm(recipe, DEV_LOSS, recipe.adaptation.steps, seed, lengths[0]),
    ]


def _arm(recipe: Recipe, title: str, steps: int, seed: int, most: int, **changes: Any) -> Arm:
    """One of `steps` updates of its last depth, which makes at most `most`; it warms up over the same share."""
    raw = recipe.model_dump(mode="json")
    settings = raw["adaptation"]
    warmup_steps = round(settings["warmup_steps"] * steps / settings["steps"])
    settings |= {"steps": steps, "warmup_steps": warmup_steps, "seed": seed, **changes}
    settings |= {"checkpoint_every_steps": -(-most // _CURVE_POINTS)}
    return Arm(title, Recipe.parse(raw))
