"""Step 1b and what is learned over its mini-model: what trains, what stays, and what is never recorded."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_pre_hook

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.config.recipe import Recipe
from lingraft.config.systems import Stage, System
from lingraft.data.blocks import open_split
from lingraft.data.shards import Blocks
from lingraft.errors import AlignmentError, DepthError, RecipeError
from lingraft.model.encoder import Encoder, freeze_except, fresh_layers, mini_model
from lingraft.model.loading import load_embeddings, load_mini, load_primary
from lingraft.stages import build_mini, pretrain
from lingraft.stages.adapt import adapt
from lingraft.stages.embeddings import initial_rows
from lingraft.training.batches import masked_lm_stream
from lingraft.training.run import masked_lm_plan, training_run
from lingraft.training.schedule import ignore_metrics
from tests.fixtures import once
from tests.workshop import Workshop, same_tensors

STEPS = {"steps": 6, "batch_blocks": 16, "learning_rate": 3e-3}


def minipost(recipe: Recipe, depth: int = 1, fresh: int = 2, **adaptation: Any) -> Recipe:
    raw = recipe.model_dump(mode="json") | {"search": None, "mini": STEPS | {"fresh_layers": fresh}}
    raw["adaptation"] |= {"depth": depth, "steps": 6} | adaptation
    raw["encoder"]["mlm_heads"] = sorted({1, 2, 3, depth})
    return Recipe.parse(raw).for_system(System.MINIPOST)


@pytest.fixture(scope="module")
def primary(workshop: Workshop) -> Path:
    """An ordinary primary, with one head."""
    recipe = minipost(workshop.recipe)
    short = recipe.model_copy(update={"pretraining": recipe.pretraining.model_copy(update=STEPS)})

    def make(folder: Path) -> None:
        pretrain.pretrain(short, workshop.blocks["en"], workshop.tokenizers["en"], folder / "primary", ignore_metrics)

    return once.folder("ordinary", make, short.to_json()) / "primary"


@pytest.fixture(scope="module")
def mini(workshop: Workshop, primary: Path) -> Path:
    recipe = minipost(workshop.recipe)

    def make(folder: Path) -> None:
        build_mini.build_mini(recipe, primary, workshop.blocks["en"], folder / "mini", ignore_metrics)

    return once.folder("mini", make, recipe.to_json()) / "mini"


def state(encoder: Encoder) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in encoder.state_dict().items()}


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def adapted(workshop: Workshop, recipe: Recipe, primary: Path, out: Path, **given: Any) -> Artifact:
    data = workshop.blocks["de"], workshop.tokenizers["de"]
    return adapt(recipe, primary, *data, recipe.adaptation.depth, out, ignore_metrics, **given)


def blocks_of(workshop: Workshop) -> Blocks:
    return open_split(Artifact.load(workshop.blocks["en"], Kind.BLOCKS), "train")


def begun(workshop: Workshop, primary: Path, depth: int = 1) -> tuple[Encoder, Encoder, Any]:
    """Primary, mini-model, and the run of step 1b."""
    recipe = minipost(workshop.recipe, depth)
    whole = load_primary(primary).encoder
    fresh = fresh_layers(whole.shape, 2)
    small = mini_model(whole, depth, fresh)
    step = recipe.steps_over(depth)[Stage.BUILD_MINI]
    settings, trained = recipe.require_mini(), freeze_except(small, fresh.parameters())
    plan, stream = masked_lm_plan(recipe, step, small, settings), masked_lm_stream(blocks_of(workshop), settings)
    run = training_run(recipe, plan, trained, stream)
    return whole, small, run


def test_step_1b_leaves_the_primary_bit_for_bit(workshop: Workshop, primary: Path, mini: Path) -> None:
    whole, small, run = begun(workshop, primary)
    before = state(whole)
    fresh_before = [parameter.clone() for parameter in small.layers[1:].parameters()]
    list(run.points)
    assert same_tensors(whole.state_dict(), before)
    assert all(
        not torch.equal(now, then) for now, then in zip(small.layers[1:].parameters(), fresh_before, strict=True)
    )
    assert load_mini(mini).aligned_with == Artifact.load(primary, Kind.PRIMARY).fingerprint


def test_only_fresh_layers_get_gradients_and_optimizer_state(
    workshop: Workshop, primary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    optimized: set[int] = set()

    def note(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        optimized.update(id(parameter) for group in optimizer.param_groups for parameter in group["params"])

    monkeypatch.setattr(torch.optim.AdamW, "zero_grad", lambda *_, **__: None)
    hook = register_optimizer_step_pre_hook(note)
    whole, small, run = begun(workshop, primary)
    next(run.points)
    hook.remove()
    assert optimized == {id(parameter) for parameter in small.layers[1:].parameters()}
    assert {name for name, parameter in whole.named_parameters() if parameter.grad is not None} == set()


@contextmanager
def saved_for_backward() -> Iterator[list[Tensor]]:
    """Tensors that autograd keeps, parameters left out."""
    kept: list[Tensor] = []

    def note(tensor: Tensor) -> Tensor:
        if not isinstance(tensor, torch.nn.Parameter):
            kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        yield kept


def recorded(encoder: Encoder, trained: list[torch.nn.Parameter]) -> int:
    """How many tensors autograd keeps in one forward pass, if only these parameters train."""
    encoder.requires_grad_(False)
    for parameter in trained:
        parameter.requires_grad_(True)
    tokens_BT = torch.arange(5, 21).view(2, 8)
    top = encoder.shape.layers
    with saved_for_backward() as kept:
        encoder.masked_logits(tokens_BT, torch.tensor([1, 9]), (top,))
    return len(kept)


def test_frozen_layers_below_all_that_trains_are_computed_without_autograd(primary: Path) -> None:
    """Under the fresh layers nothing is kept, however many there are; over a table that trains, every layer is."""
    whole = load_primary(primary).encoder
    fresh = fresh_layers(whole.shape, 2)
    shallow, deep = (mini_model(whole, depth, fresh) for depth in (1, 2))
    assert recorded(deep, [*fresh.parameters()]) == recorded(shallow, [*fresh.parameters()])
    table = [*whole.vocabulary.parameters()]
    assert recorded(deep, table) > recorded(shallow, table)


def test_embeddings_learned_over_the_mini_model_say_so_and_leave_everything_else(
    workshop: Workshop, primary: Path, mini: Path, tmp_path: Path
) -> None:
    before = files(primary), files(mini)
    made = adapted(workshop, minipost(workshop.recipe), primary, tmp_path / "de", mini=mini)
    assert (files(primary), files(mini)) == before
    details = made.manifest.details
    assert (details["system"], details["depth"], details["fresh_layers"]) == ("MINIPOST", 1, 2)
    learned, source = load_embeddings(tmp_path / "de"), load_primary(primary)
    source.swap_in(learned)
    rows = initial_rows(minipost(workshop.recipe), load_primary(primary), learned.tokenizer)
    assert not torch.equal(learned.vocabulary.table_VD, rows.table_VD)


def test_checkpoints_run_from_the_initialisation_to_the_result(
    workshop: Workshop, primary: Path, mini: Path, tmp_path: Path
) -> None:
    recipe = minipost(workshop.recipe, checkpoint_every_steps=4, early_checkpoints=[1])
    made = adapted(workshop, recipe, primary, tmp_path / "de", mini=mini, checkpoints=tmp_path / "curve")
    folders = sorted((tmp_path / "curve").iterdir())
    assert [folder.name for folder in folders] == [f"step-{step:08d}" for step in (0, 1, 4, 6)]
    found = [load_embeddings(folder) for folder in folders]
    rows = initial_rows(recipe, load_primary(primary), found[0].tokenizer)
    assert torch.equal(found[0].vocabulary.table_VD, rows.table_VD)
    assert found[-1].fingerprint == made.fingerprint
    plain = adapted(workshop, minipost(workshop.recipe), primary, tmp_path / "plain", mini=mini)
    assert plain.fingerprint == made.fingerprint
    costs = [one.manifest.cost for one in found]
    assert [cost.steps for cost in costs] == [0, 1, 4, 6]
    assert costs[0].flops == 0 < costs[1].flops < costs[-1].flops


def test_a_mini_model_that_does_not_fit_the_recipe_is_refused(
    workshop: Workshop, primary: Path, mini: Path, tmp_path: Path
) -> None:
    out, joint = tmp_path / "out", workshop.recipe
    with pytest.raises(RecipeError, match="adaptation over 3 layers needs the mini-model of step 1b, but got None"):
        adapted(workshop, minipost(joint), primary, out)
    with pytest.raises(DepthError, match=r"a mini-model of 1 \+ 2 layers, but 4 of which 2 are fresh are wanted"):
        adapted(workshop, minipost(joint, depth=2), primary, out, mini=mini)
    with pytest.raises(RecipeError, match="adaptation over 1 layers has no use for a mini-model of step 1b"):
        adapted(workshop, joint, workshop.primary, out, mini=mini)
    with pytest.raises(RecipeError, match="step 1b is MINIPOST's; the recipe's system is MINIJOINT"):
        build_mini.build_mini(joint, workshop.primary, workshop.blocks["en"], out, ignore_metrics)


def test_a_mini_model_of_another_primary_is_refused_with_both_fingerprints(workshop: Workshop, mini: Path) -> None:
    other = load_primary(workshop.primary)
    with pytest.raises(AlignmentError, match=rf"{other.fingerprint}\. Build the mini-model again .* on this primary"):
        load_mini(mini).build_model(other)
