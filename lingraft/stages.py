"""The training stages, each in a screenful: load artifacts, choose what is trained, train, save."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from lingraft import artifact, masked_lm, precision
from lingraft.artifact import Artifact, Draft, Kind
from lingraft.blocks import batches, load_blocks
from lingraft.config import Finetuning, Recipe, Training
from lingraft.cost import Work
from lingraft.embeddings import Initialised, initialise, swap, vocabulary_of
from lingraft.encoder import Encoder
from lingraft.files import require_new
from lingraft.models import HISTORY_FILE, Primary, load_primary, save_task, save_vocabulary
from lingraft.progress import say, shown
from lingraft.tasks import labelled
from lingraft.text import load_split, load_text
from lingraft.tokenizer import Tokenizer
from lingraft.train import Plan, Progress, train

Batch = TypeVar("Batch")
Begun = tuple[Callable[[Batch], Tensor], Iterator[Batch]]
"""The loss of a batch, and the batches from the first one on."""
Watch = Callable[[Progress], None]
"""Is told every point of a learning curve, for example to record it."""


def pretrain(recipe: Recipe, blocks: Path, tokenizer: Path, out: Path, watch: Watch) -> Artifact:
    """Train the primary with all its MLM heads from nothing, in the source language (paper section 2, step 1).

    Raises:
        TokenizerError: the tokenizer is not the source's, or the blocks were made with another.
        TrainingError: the loss is not finite.
        ArtifactError: an input is not what it should be, or `out` cannot be written.
    """
    require_new(out)
    pieces = Tokenizer.load(tokenizer, recipe.source)
    data = load_blocks(blocks, pieces, recipe.encoder.block_tokens)
    with torch.random.fork_rng():
        torch.manual_seed(recipe.pretraining.seed)
        encoder = Encoder(recipe.encoder, len(pieces)).to(precision.device())
    trained = list(encoder.parameters())
    work = work_of(recipe, recipe.pretraining, len(pieces), recipe.encoder.layers, len(encoder.depths))
    settings = recipe.pretraining
    points, number_format = _masked_lm_run(
        encoder,
        encoder.depths,
        trained,
        data.tensors("train")["tokens_NT"],
        settings,
        recipe,
        work.pretraining_flops(),
    )
    history = _watched(points, settings.steps, settings.seed, f"pretrain {recipe.source}", watch)
    with artifact.create(out, Kind.PRIMARY) as draft:
        draft.tensors("body", encoder.body_tensors())
        save_vocabulary(draft, encoder.vocabulary, pieces)
        _describe(draft, pieces.language, {"blocks": data.fingerprint}, settings, history, number_format)
        draft.facts["details"] |= {"shape": recipe.encoder.model_dump(mode="json")}
    return Artifact.load(out, Kind.PRIMARY)


def adapt(
    recipe: Recipe, primary: Path, blocks: Path, tokenizer: Path, depth: int, out: Path, watch: Watch
) -> Artifact:
    """Learn one language's embeddings over the bottom `depth` layers, body frozen (section 2, step 2).

    Raises:
        DepthError: the primary has no MLM head at `depth`.
        RecipeError: the recipe's [encoder] is not the primary's.
        TokenizerError: the blocks were made with another tokenizer.
        TrainingError: the loss is not finite.
        ArtifactError: an input is not what it should be, or `out` cannot be written.
    """
    require_new(out)
    source, pieces = load_primary(primary, recipe.encoder), Tokenizer.load(tokenizer)
    data = load_blocks(blocks, pieces, recipe.encoder.block_tokens)
    rows = initial_rows(recipe, source, pieces)
    settings = recipe.adaptation
    points, number_format = adaptation_run(recipe, source, rows, data.tensors("train")["tokens_NT"], depth, settings)
    history = _watched(points, settings.steps, settings.seed, f"adapt {pieces.language} over {depth} layers", watch)
    with artifact.create(out, Kind.EMBEDDINGS) as draft:
        save_vocabulary(draft, source.encoder.vocabulary, pieces)
        _describe(draft, pieces.language, {"blocks": data.fingerprint}, settings, history, number_format)
        draft.facts["aligned_with"] = source.fingerprint
        draft.facts["details"] |= {"depth": depth, "overlap": rows.copied, "vocabulary": len(pieces)}
    return Artifact.load(out, Kind.EMBEDDINGS)


def initial_rows(recipe: Recipe, primary: Primary, pieces: Tokenizer) -> Initialised:
    """A language's embeddings before training; the same every time for one recipe."""
    vocabulary = primary.encoder.vocabulary
    return initialise(
        vocabulary.table_VD.detach(),
        vocabulary.bias_V.detach(),
        primary.tokenizer.pieces(),
        pieces.pieces(),
        copy_overlap=recipe.adaptation.initialisation == "overlap",
        generator=torch.Generator().manual_seed(recipe.adaptation.seed),
    )


def adaptation_run(
    recipe: Recipe, primary: Primary, rows: Initialised, blocks_NT: Tensor, depth: int, settings: Training
) -> tuple[Iterator[Progress], str]:
    """Put `rows` into the primary, freeze all but them, and return the run that trains them, not yet begun.

    Raises:
        DepthError: the primary has no MLM head at `depth`.
    """
    encoder = primary.encoder
    encoder.require_depth(depth)
    encoder.requires_grad_(False)
    swap(encoder, vocabulary_of(rows.table_VD.clone(), rows.bias_V.clone()))
    encoder.to(precision.device())
    work = work_of(recipe, settings, len(encoder.vocabulary), depth)
    trained = list(encoder.vocabulary.parameters())
    return _masked_lm_run(encoder, (depth,), trained, blocks_NT, settings, recipe, work.adaptation_flops())


def finetune(recipe: Recipe, primary: Path, text: Path, seed: int, out: Path, watch: Watch) -> Artifact:
    """Finetune the body on the task in the source language, token table frozen (section 2, step 3).

    Raises:
        RecipeError: the recipe has no task, or its [encoder] is not the primary's.
        TextError: the documents are not in the source language, or have fewer than two labels.
        TrainingError: the loss is not finite.
        ArtifactError: an input is not what it should be, or `out` cannot be written.
    """
    require_new(out)
    task = recipe.require_task()
    source, documents = load_primary(primary, recipe.encoder), load_text(text, recipe.source)
    training = load_split(documents, "train")
    names = labelled.label_names(training)
    data = labelled.prepare(training, names, source.tokenizer, recipe.encoder.block_tokens)
    settings = task.finetuning
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        classifier = labelled.Classifier(source.encoder, len(names)).to(precision.device())
    trained = _all_but_vocabulary_and_heads(classifier)
    plan = _finetuning_plan(recipe, settings, data)
    points, number_format = _finetuning_run(classifier, data, trained, plan, settings, recipe, seed)
    history = _watched(points, plan.steps, seed, f"finetune {task.name}, seed {seed}", watch)
    held_out = labelled.prepare(load_split(documents, "dev"), names, source.tokenizer, recipe.encoder.block_tokens)
    dev_accuracy = labelled.accuracy(labelled.confusion(classifier, held_out))
    with artifact.create(out, Kind.TASK) as draft:
        save_task(draft, classifier)
        _describe(draft, recipe.source, {"text": documents.fingerprint}, settings, history, number_format)
        draft.facts["aligned_with"] = source.fingerprint
        draft.facts["details"] |= {
            "task": task.name,
            "labels": names,
            "seed": seed,
            "truncated": data.truncated,
        }
        draft.facts["details"] |= {
            "dev_accuracy": dev_accuracy,
            "documents": len(data),
            "shape": recipe.encoder.model_dump(mode="json"),
        }
    return Artifact.load(out, Kind.TASK)


def _all_but_vocabulary_and_heads(classifier: labelled.Classifier) -> list[nn.Parameter]:
    """Positions and LayerNorms train with the body; the vocabulary stays, or the languages would no longer fit."""
    classifier.requires_grad_(True)
    classifier.encoder.vocabulary.requires_grad_(False)
    classifier.encoder.heads.requires_grad_(False)
    return [parameter for parameter in classifier.parameters() if parameter.requires_grad]


def _finetuning_plan(recipe: Recipe, settings: Finetuning, data: labelled.Labelled) -> Plan:
    shape = recipe.encoder
    steps = max(1, round(settings.epochs * len(data) / settings.batch_documents))
    work = Work(shape.layers, shape.width, 0, shape.block_tokens, settings.batch_documents, mask_rate=0.0)
    return Plan(
        steps=steps,
        learning_rate=settings.learning_rate,
        warmup_steps=round(settings.warmup_ratio * steps),
        weight_decay=settings.weight_decay,
        clip_norm=settings.clip_norm,
        log_every_steps=settings.log_every_steps,
        tokens_per_step=settings.batch_documents * shape.block_tokens,
        flops_per_step=work.pretraining_flops(),
    )


def _finetuning_run(
    classifier: labelled.Classifier,
    data: labelled.Labelled,
    trained: list[nn.Parameter],
    plan: Plan,
    settings: Finetuning,
    recipe: Recipe,
    seed: int,
) -> tuple[Iterator[Progress], str]:
    device = precision.device()

    def loss_of(batch: labelled.LabelledBatch) -> Tensor:
        logits_BC = classifier(batch.tokens_BT.to(device), batch.visible_BT.to(device))
        return nn.functional.cross_entropy(logits_BC.float(), batch.labels_B.to(device))

    def begin() -> Begun[labelled.LabelledBatch]:
        return loss_of, labelled.batches(data, settings.batch_documents, torch.Generator().manual_seed(seed))

    classifier.train()
    return _run(begin, trained, plan, recipe)


def work_of(recipe: Recipe, settings: Training, vocabulary: int, layers: int, heads: int = 1) -> Work:
    """Shape of an update over the bottom `layers` layers, for the cost formulas."""
    shape = recipe.encoder
    return Work(layers, shape.width, vocabulary, shape.block_tokens, settings.batch_blocks, settings.mask_rate, heads)


def _masked_lm_run(
    encoder: Encoder,
    depths: tuple[int, ...],
    trained: list[nn.Parameter],
    blocks_NT: Tensor,
    settings: Training,
    recipe: Recipe,
    flops_per_step: float,
) -> tuple[Iterator[Progress], str]:
    device = precision.device()
    plan = Plan(
        steps=settings.steps,
        learning_rate=settings.learning_rate,
        warmup_steps=settings.warmup_steps,
        weight_decay=settings.weight_decay,
        clip_norm=settings.clip_norm,
        log_every_steps=settings.log_every_steps,
        tokens_per_step=settings.batch_blocks * blocks_NT.shape[1],
        flops_per_step=flops_per_step,
    )

    def begin() -> Begun[Tensor]:
        order = torch.Generator().manual_seed(settings.seed)
        masks = torch.Generator(device).manual_seed(settings.seed)
        stream = (tokens_BT.to(device) for tokens_BT in batches(blocks_NT, settings.batch_blocks, order))
        return masked_lm.loss(encoder, depths, settings.mask_rate, masks), stream

    encoder.train()
    return _run(begin, trained, plan, recipe)


def _run(
    begin: Callable[[], Begun[Batch]], trained: Sequence[nn.Parameter], plan: Plan, recipe: Recipe
) -> tuple[Iterator[Progress], str]:
    """The probe sees as many batches as time allows, so training begins anew: it must not depend on the clock."""
    if recipe.threads:
        torch.set_num_threads(recipe.threads)
    probed_loss, probed = begin()
    number_format, reason = precision.choose(recipe.precision, lambda: probed_loss(next(probed)), list(trained))
    say(reason)
    loss_of, stream = begin()
    return train(loss_of, trained, stream, plan, precision.precise(number_format)), number_format


def _watched(points: Iterator[Progress], steps: int, seed: int, title: str, watch: Watch) -> list[Progress]:
    history = []
    with torch.random.fork_rng():
        torch.manual_seed(seed)  # what dropout draws from
        for point in shown(points, steps, title):
            watch(point)
            history.append(point)
    return history


def _describe(
    draft: Draft,
    language: str,
    data_hashes: dict[str, str],
    settings: Training | Finetuning,
    history: list[Progress],
    number_format: str,
) -> None:
    lines = "".join(json.dumps(point._asdict()) + "\n" for point in history)
    (draft.folder / HISTORY_FILE).write_text(lines, encoding="utf-8")
    details: dict[str, Any] = {"precision": number_format, "device": precision.device().type}
    draft.facts = {
        "language": language,
        "data_hashes": data_hashes,
        "recipe": settings.model_dump(mode="json"),
        "cost": history[-1].cost,
        "details": details,
    }
