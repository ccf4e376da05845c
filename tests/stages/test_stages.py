import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.config.recipe import Recipe
from lingraft.config.systems import Stage
from lingraft.data.blocks import open_split
from lingraft.model.encoder import Encoder
from lingraft.model.loading import LoadedPrimary, load_embeddings, load_primary
from lingraft.stages import adapt, finetune, pretrain
from lingraft.stages.adapt import adaptation_run, mini_of
from lingraft.stages.embeddings import initial_rows
from lingraft.tasks import classification
from lingraft.tasks.classification import Classifier
from lingraft.training import precision
from lingraft.training import run as runs
from lingraft.training.run import TrainingRun
from lingraft.training.schedule import ignore_metrics
from tests.workshop import Workshop, changed, same_tensors


def briefly(recipe: Recipe, **values: Any) -> Recipe:
    """The recipe with a pretraining of a few updates."""
    return changed(recipe, "pretraining", steps=4, warmup_steps=1, **values)


def pretrained(workshop: Workshop, recipe: Recipe, out: Path) -> Artifact:
    return pretrain.pretrain(recipe, workshop.blocks["en"], workshop.tokenizers["en"], out, ignore_metrics)


def parts(folder: Path, kind: Kind, part: str) -> dict[str, torch.Tensor]:
    return Artifact.load(folder, kind).tensors(part)


def begun(workshop: Workshop, primary: LoadedPrimary, depth: int) -> tuple[Encoder, TrainingRun]:
    """A mini-model of the primary with the initial rows of German, and the run that adapts it."""
    step = workshop.recipe.steps_over(depth)[Stage.ADAPT]
    mini = mini_of(primary, step, None)
    rows = initial_rows(workshop.recipe, primary, load_embeddings(workshop.embeddings["de"]).tokenizer)
    blocks = open_split(Artifact.load(workshop.blocks["de"], Kind.BLOCKS), "train")
    return mini, adaptation_run(workshop.recipe, step, mini, rows, blocks, workshop.recipe.adaptation)


@pytest.fixture
def optimized() -> Iterator[set[int]]:
    """Addresses of the parameters that an optimizer was given."""
    found: set[int] = set()

    def note(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        found.update(id(parameter) for group in optimizer.param_groups for parameter in group["params"])

    hook = register_optimizer_step_pre_hook(note)
    yield found
    hook.remove()


def test_seeds_decide_the_primary_whatever_was_drawn_before(workshop: Workshop, tmp_path: Path) -> None:
    recipe, marks = changed(briefly(workshop.recipe), "encoder", dropout=0.2), []
    for number, seed in enumerate((1, 1, 2)):
        torch.rand(number)
        marks.append(pretrained(workshop, briefly(recipe, seed=seed), tmp_path / str(number)).fingerprint)
    assert marks[0] == marks[1] != marks[2]


def test_the_probe_of_precision_auto_changes_nothing_but_the_format(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precision, "_PROBE_S", 0.1)
    monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda: "AVX512")
    probed = pretrained(workshop, briefly(workshop.recipe).model_copy(update={"precision": "auto"}), tmp_path / "auto")
    chosen = probed.manifest.record["precision"]
    fixed = pretrained(workshop, briefly(workshop.recipe).model_copy(update={"precision": chosen}), tmp_path / "fixed")
    assert probed.fingerprint == fixed.fingerprint


def test_pretraining_trains_everything_and_every_head(workshop: Workshop) -> None:
    recipe = workshop.recipe
    with torch.random.fork_rng():
        torch.manual_seed(recipe.pretraining.seed)
        fresh = Encoder(recipe.encoder, recipe.tokenizer.vocabulary).state_dict()
    trained = load_primary(workshop.primary).encoder.state_dict()
    untrained = [name for name, tensor in trained.items() if torch.equal(tensor, fresh[name])]
    assert untrained == []
    assert {name.split(".")[1] for name in trained if name.startswith("heads.")} == {"1", "2", "3"}


def test_adaptation_leaves_the_body_bit_for_bit_and_trains_the_table_and_bias(workshop: Workshop) -> None:
    primary = load_primary(workshop.primary)
    before = {name: tensor.clone() for name, tensor in primary.encoder.body_tensors().items()}
    learned = load_embeddings(workshop.embeddings["de"])
    own = {name: tensor.clone() for name, tensor in primary.encoder.vocabulary.state_dict().items()}
    rows = initial_rows(workshop.recipe, primary, learned.tokenizer)
    for depth in (3, 1):  # an adaptation does not depend on one before it on the same primary
        mini, run = begun(workshop, primary, depth)
        list(run.points)
    assert same_tensors(primary.encoder.body_tensors(), before)
    assert same_tensors(primary.encoder.vocabulary.state_dict(), own)
    vocabulary = mini.vocabulary.state_dict()
    assert same_tensors(vocabulary, learned.vocabulary.state_dict())
    assert (vocabulary["table_VD"] != rows.table_VD).any(dim=1).float().mean() > 0.9
    assert (vocabulary["bias_V"] != rows.bias_V).float().mean() > 0.9


def test_in_adaptation_only_table_and_bias_have_gradients_and_optimizer_state(
    workshop: Workshop, optimized: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    primary = load_primary(workshop.primary)
    monkeypatch.setattr(torch.optim.AdamW, "zero_grad", lambda *_, **__: None)
    mini, run = begun(workshop, primary, 2)
    next(run.points)
    assert optimized == {id(mini.vocabulary.table_VD), id(mini.vocabulary.bias_V)}
    with_gradient = {name for name, parameter in mini.named_parameters() if parameter.grad is not None}
    assert with_gradient == {"vocabulary.table_VD", "vocabulary.bias_V"}


def test_finetuning_leaves_table_and_bias_and_trains_the_rest_of_the_body(workshop: Workshop) -> None:
    before = parts(workshop.primary, Kind.PRIMARY, "body")
    after = parts(workshop.tasks[1], Kind.TASK, "body")
    assert set(before) - set(after) == {name for name in before if name.startswith("heads.")}
    assert [name for name, tensor in after.items() if torch.equal(tensor, before[name])] == []
    assert {"positions_TD", "input_norm.weight", "layers.0.output_norm.bias"} <= set(after)


def test_over_a_frozen_body_the_head_alone_is_trained_by_one_pass_and_in_shorter_inputs(
    workshop: Workshop, tmp_path: Path
) -> None:
    topic = workshop.recipe.task()
    settings = topic.finetuning.model_copy(update={"frozen_body": True})
    recipe = changed(workshop.recipe, "encoder", block_tokens=16)
    recipe = recipe.model_copy(update={"tasks": (topic.model_copy(update={"finetuning": settings}),)})
    made = finetune.finetune(
        recipe, "topic", workshop.primary, workshop.texts["en"], 1, tmp_path / "task", ignore_metrics
    )
    body = Artifact.load(workshop.primary, Kind.PRIMARY).tensors("body")
    whole = Artifact.load(workshop.tasks[1], Kind.TASK)
    assert all(torch.equal(tensor, body[name]) for name, tensor in made.tensors("body").items())
    assert any(not torch.equal(tensor, body[name]) for name, tensor in whole.tensors("body").items())
    assert made.manifest.detail("dev_score", float) > 0.4
    assert made.manifest.detail("truncated", int) > whole.manifest.detail("truncated", int)
    assert made.manifest.cost.flops < whole.manifest.cost.flops / 3


def test_in_finetuning_the_vocabulary_is_bit_for_bit_what_it_was_and_seeds_differ_and_repeat(
    workshop: Workshop, tmp_path: Path, optimized: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Classifier] = []

    class Kept(Classifier):
        def __init__(self, encoder: Encoder, classes: int) -> None:
            super().__init__(encoder, classes)
            made.append(self)

    monkeypatch.setattr(classification, "Classifier", Kept)
    again = finetune.finetune(
        workshop.recipe, "topic", workshop.primary, workshop.texts["en"], 1, tmp_path / "task", ignore_metrics
    )
    encoder = made[0].encoder
    assert same_tensors(encoder.vocabulary.state_dict(), parts(workshop.primary, Kind.PRIMARY, "vocabulary"))
    frozen = {id(parameter) for module in (encoder.vocabulary, encoder.heads) for parameter in module.parameters()}
    assert optimized == {id(parameter) for parameter in made[0].parameters()} - frozen
    first, second = (Artifact.load(workshop.tasks[seed], Kind.TASK) for seed in (1, 2))
    assert again.fingerprint == first.fingerprint != second.fingerprint
    assert [one.manifest.details["seed"] for one in (first, second)] == [1, 2]


def test_manifests_say_where_everything_came_from(workshop: Workshop) -> None:
    primary = Artifact.load(workshop.primary, Kind.PRIMARY)
    blocks = Artifact.load(workshop.blocks["en"], Kind.BLOCKS)
    text = Artifact.load(workshop.texts["en"], Kind.TEXT)
    assert blocks.manifest.data_hashes == {"text": text.fingerprint, **text.manifest.data_hashes}
    assert primary.manifest.data_hashes == {"blocks": blocks.fingerprint, **blocks.manifest.data_hashes}
    assert primary.manifest.tokenizer_hash == blocks.manifest.tokenizer_hash
    task = Artifact.load(workshop.tasks[1], Kind.TASK)
    assert task.manifest.data_hashes["text"] == text.fingerprint
    assert task.manifest.aligned_with == primary.fingerprint
    assert primary.manifest.recipe == workshop.recipe.pretraining.model_dump(mode="json")
    assert primary.manifest.record["precision"] == "fp32"


def test_the_generator_is_left_alone_and_the_number_format_is_said_once(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runs, "_ANNOUNCED", set())
    generator = torch.get_rng_state()
    recipe = changed(workshop.recipe, "pretraining", steps=1, warmup_steps=0, batch_blocks=2)
    for place, number_format in enumerate(("fp32", "fp32", "bf16")):
        pretrained(workshop, recipe.model_copy(update={"precision": number_format}), tmp_path / str(place))
    assert torch.equal(torch.get_rng_state(), generator)
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("precision ")]
    # Where the CPU lacks bfloat16, that is told, too.
    assert [line.partition(", though")[0] for line in said] == ["precision fp32, as set", "precision bf16, as set"]


def test_adaptation_lets_go_of_the_tables_that_it_does_not_train(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables: list[weakref.ref[torch.Tensor]] = []
    load, draw = adapt.load_primary, adapt.initial_rows

    def loaded(*given: Any) -> LoadedPrimary:
        primary = load(*given)
        tables.append(weakref.ref(primary.encoder.vocabulary.table_VD))
        return primary

    def drawn(*given: Any) -> Any:
        rows = draw(*given)
        tables.append(weakref.ref(rows.table_VD))
        return rows

    monkeypatch.setattr(adapt, "load_primary", loaded)
    monkeypatch.setattr(adapt, "initial_rows", drawn)
    gone: list[bool] = []
    adapt.adapt(
        recipe=workshop.recipe,
        primary=workshop.primary,
        blocks=workshop.blocks["de"],
        tokenizer=workshop.tokenizers["de"],
        depth=1,
        out=tmp_path / "out",
        watch=lambda _: gone.extend(one() is None for one in tables),
    )
    assert gone
    assert all(gone)
