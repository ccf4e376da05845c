"""Evaluation on text that no training saw: the source with its tasks, a language with its embeddings swapped in."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Cost
from lingraft.config.recipe import Recipe
from lingraft.config.systems import Stage, System
from lingraft.data.blocks import load_blocks, open_split
from lingraft.data.text import load_text
from lingraft.errors import ArtifactError
from lingraft.model.encoder import Encoder, Vocabulary
from lingraft.model.flops import step_flops
from lingraft.model.loading import Embeddings, LoadedPrimary, load_embeddings, load_mini, load_primary
from lingraft.model.swap import make_vocabulary, swap
from lingraft.stages import alignment_probe, results, source_passages
from lingraft.stages.adapt import mini_of
from lingraft.stages.alignment_probe import MOST_TOKENS, AlignmentProbe, language_probe, reference_tensors
from lingraft.stages.embeddings import initial_rows, mark_of, quality_of, require_start
from lingraft.stages.nearest_words import nearest_words
from lingraft.stages.results import (
    ALIGNMENT,
    ALIGNMENT_INITIAL,
    MASKED,
    MASKED_INITIAL,
    AlignmentScores,
    LanguageResult,
    MaskedScores,
    SeedScores,
    SourceResult,
    TaskScores,
    task_item,
)
from lingraft.stages.source_passages import embed_source_passages, load_source_passages, task_hash
from lingraft.stages.task_tests import TaskTest, task_tests
from lingraft.tasks.finetuned import TaskModel, load_task
from lingraft.tasks.item_counts import ItemCounts
from lingraft.tasks.task_kind import TaskEvaluation
from lingraft.training import masked_lm, precision
from lingraft.training.schedule import read_curve

SwapIn = Callable[[TaskModel], object]
"""Gives a task's body the embeddings to judge."""


def evaluate_source(
    recipe: Recipe, primary: Path, tasks: Sequence[Path], text: Path, blocks: Path, out: Path
) -> Artifact:
    """Judge the primary on the source language's test split: every MLM head, and every task once a finetuning seed.

    Hidden states to compare other languages with are kept beside the scores (`lingraft.stages.alignment_probe`), and
    so are vectors of the passages that queries in every language are looked for in (`lingraft.stages.source_passages`).

    Raises:
        AlignmentError: a task was finetuned from another primary.
        RecipeError: the recipe's [encoder] is not the primary's, or it lacks a task.
        TextError: the text is in another language, or examples have labels that the task does not know.
        ArtifactError: an input is not what it should be, or `out` cannot be written.
    """
    source = load_primary(primary, recipe.primary_shape)
    source.encoder.to(precision.device())
    data = load_blocks(blocks, source.tokenizer, recipe.encoder.block_tokens)
    documents = load_text(text, recipe.source.language)
    models = load_tasks(tasks, recipe.encoder.block_tokens)
    passages = embed_source_passages(recipe, models, source, documents)
    tests = task_tests(
        recipe=recipe,
        tasks=models,
        text=documents,
        tokenizer=source.tokenizer,
        source=source,
        embedded=passages,
    )
    judged = evaluate_tasks(tests, lambda model: model.swap_in(source))
    depths = source.encoder.depths
    result = SourceResult(
        language=recipe.source.language,
        primary=source.fingerprint,
        layers=source.encoder.shape.layers,
        vocabulary=len(source.tokenizer),
        masked_by_depth=masked_lm.accuracy(source.encoder, masked_test_blocks(recipe, data), depths) if depths else {},
        tasks=tuple(one.scores for one in judged),
        pretraining=source.manifest.cost,
        finetuning={name: _sum([model.manifest.cost for model in seeds]) for name, seeds in models.items()},
        pretraining_history=read_curve(primary),
        finetuning_history={
            name: {model.seed: read_curve(model.folder) for model in seeds} for name, seeds in models.items()
        },
        precision=source.manifest.recorded("precision", str),
    )
    compared = sorted({recipe.adaptation.depth, source.encoder.shape.layers})
    most_tokens = recipe.test_blocks * recipe.encoder.block_tokens if recipe.test_blocks else MOST_TOKENS
    reference = reference_tensors(source, documents, data, compared, most_tokens)
    parts = {alignment_probe.PART: reference}
    if passages:
        parts[source_passages.PART] = {
            key: tensor for name, one in passages.items() for key, tensor in one.tensors(name).items()
        }
    return results.save(result, out, _facts(result, _hashes(source, documents, data, models)), parts=parts)


def evaluate_language(
    recipe: Recipe,
    primary: Path,
    embeddings: Path,
    tasks: Sequence[Path],
    text: Path,
    blocks: Path,
    out: Path,
    mini: Path | None = None,
    initial: Path | None = None,
    source_evaluation: Path | None = None,
) -> Artifact:
    """Judge a language's embeddings on its test split: masked accuracy and zero-shot scores (section 2, step 4).

    Alignment with the source is measured over held-out lines of the recipe's parallel text, else over what
    `source_evaluation` keeps: parallel paragraphs, or the contexts of shared pieces where too few are parallel.

    Frequent words of the language are shown beside the source's nearest pieces (`lingraft.stages.nearest_words`).

    Each score is also taken with the embeddings as they were before training. The counts that scores are made of are
    kept beside them, item by item, so that two evaluations of the same items can be compared.

    Args:
        recipe: recipe with the tasks.
        primary: primary that the embeddings are swapped into.
        embeddings: embeddings of the language.
        tasks: finetuned bodies, all tasks and seeds together.
        text: text of the language.
        blocks: blocks of the language.
        out: folder of the result.
        mini: MINIPOST's fresh layers, where the embeddings were learned over them.
        initial: embeddings that these started from; if absent, the initial rows are drawn by the recipe's seed.
        source_evaluation: result of `evaluate_source` for the same primary.

    Raises:
        AlignmentError: embeddings, mini-model, tasks, primary, `initial` and source evaluation do not belong together.
        RecipeError: the recipe's [encoder] is not the primary's, it lacks a task, or its initialisation is not that of
            `initial`, or needs one.
        TextError: the text is in another language, or examples have labels that the task does not know.
        ArtifactError: an input is not what it should be, or `out` cannot be written.
    """
    source, learned = load_primary(primary, recipe.primary_shape), load_embeddings(embeddings)
    source.lend_to(learned)
    pieces = learned.tokenizer
    depth, system = learned.manifest.detail("depth", int), learned.manifest.detail("system", System)
    step = recipe.steps_over(depth, system)[Stage.ADAPT]
    data, documents = load_blocks(blocks, pieces, recipe.encoder.block_tokens), load_text(text, learned.language)
    models = load_tasks(tasks, recipe.encoder.block_tokens)
    probe = language_probe(
        recipe=recipe,
        primary=source,
        pieces=pieces,
        split="test",
        text=documents,
        blocks=open_split(data, "test"),
        evaluation=source_evaluation,
    )
    require_start(learned, initial)
    rows = initial_rows(recipe, source, pieces, initial)
    untrained = make_vocabulary(rows.table_VD, rows.bias_V, rows.special, rows.borrowed)
    test_NT = masked_test_blocks(recipe, data)
    words = nearest_words(
        source=source.source,
        source_pieces=source.tokenizer,
        target_pieces=pieces,
        blocks_NT=test_NT,
        before=untrained,
        after=learned.vocabulary,
    )
    passages = load_source_passages(source_evaluation, source, models) if source_evaluation else {}
    tests = task_tests(
        recipe=recipe,
        tasks=models,
        text=documents,
        tokenizer=pieces,
        source=source,
        embedded=passages,
    )
    over = mini_of(source, step, mini)
    if not step.fresh_layers:
        over = source.encoder  # whose bottom the mini-model is: one pass scores both
    masked, masked_items = (
        _masked(over, step.layers, source, (learned.vocabulary, untrained), test_NT) if over.depths else (None, {})
    )
    alignment, aligned_items = _alignment(source, probe, (learned.vocabulary, untrained)) if probe else (None, {})
    scores, task_items = _task_scores(tests, learned, untrained)
    result = LanguageResult(
        language=learned.language,
        primary=source.fingerprint,
        embeddings=learned.fingerprint,
        system=system,
        depth=depth,
        fresh_layers=learned.manifest.detail("fresh_layers", int),
        learned_over=recipe.layers_through(step) if recipe.adaptation.pairs else depth,
        layers=source.encoder.shape.layers,
        vocabulary=len(rows.table_VD),
        overlap=rows.copied,
        masked=masked,
        alignment=alignment,
        initial_alignment=quality_of(initial),
        nearest_words=words,
        tasks=scores,
        cost=learned.manifest.cost,
        building=load_mini(mini).manifest.cost if mini else None,
        whole_flops=_whole_flops(recipe, source, learned),
        history=read_curve(embeddings),
        precision=learned.manifest.recorded("precision", str),
    )
    hashes = _hashes(source, documents, data, models) | {"embeddings": learned.fingerprint} | mark_of(initial)
    hashes |= {ALIGNMENT: probe.mark} if probe else {}
    return results.save(result, out, _facts(result, hashes), masked_items | aligned_items | task_items)


def _whole_flops(recipe: Recipe, source: LoadedPrimary, learned: Embeddings) -> float:
    """FLOPs of as many updates over all layers."""
    whole = recipe.steps_over(source.encoder.shape.layers, System.BL_BASE)[Stage.ADAPT]
    return learned.manifest.cost.steps * step_flops(recipe, whole, recipe.adaptation, len(learned.tokenizer))


def _facts(result: SourceResult | LanguageResult, data_hashes: dict[str, str]) -> dict[str, Any]:
    return {"language": result.language, "aligned_with": result.primary, "data_hashes": data_hashes}


def _hashes(
    source: LoadedPrimary, text: Artifact, blocks: Artifact, models: dict[str, list[TaskModel]]
) -> dict[str, str]:
    tasks = {task_hash(model): model.fingerprint for seeds in models.values() for model in seeds}
    return {"primary": source.fingerprint, "text": text.fingerprint, "blocks": blocks.fingerprint, **tasks}


def _masked(
    over: Encoder,
    depth: int,
    source: LoadedPrimary,
    vocabularies: tuple[Vocabulary, Vocabulary],
    blocks_NT: Tensor,
) -> tuple[MaskedScores, dict[str, ItemCounts]]:
    """Masked accuracy of the mini-model and of the primary, with the vocabulary learned and the initial one.

    A primary without an MLM head has that of the mini-model.
    """
    top = source.encoder.shape.layers

    def tallies(vocabulary: Vocabulary) -> tuple[ItemCounts, ItemCounts]:
        """Return the mini-model's tally and the primary's."""
        if over is source.encoder:
            found = _tallies(over, vocabulary, blocks_NT, (depth, top))
            return found[depth], found[top]
        mini = _tallies(over, vocabulary, blocks_NT, (depth,))[depth]
        has_head = bool(source.encoder.depths)
        return mini, _tallies(source.encoder, vocabulary, blocks_NT, (top,))[top] if has_head else mini

    (mini, primary), (mini_initial, primary_initial) = map(tallies, vocabularies)
    scores = MaskedScores(
        mini=mini.score,
        primary=primary.score,
        mini_initial=mini_initial.score,
        primary_initial=primary_initial.score,
    )
    return scores, {MASKED: primary, MASKED_INITIAL: primary_initial}


def _tallies(
    encoder: Encoder, vocabulary: Vocabulary, blocks_NT: Tensor, depths: Sequence[int]
) -> dict[int, ItemCounts]:
    swap(encoder, vocabulary)
    return masked_lm.accuracy_counts(encoder.to(precision.device()), blocks_NT, depths)


def _alignment(
    source: LoadedPrimary, probe: AlignmentProbe, vocabularies: tuple[Vocabulary, Vocabulary]
) -> tuple[AlignmentScores, dict[str, ItemCounts]]:
    """Alignment of the primary's hidden states, with the vocabulary learned and the initial one."""
    found = []
    for vocabulary in vocabularies:
        swap(source.encoder, vocabulary)
        found.append(probe.measure(source.encoder))
    (after, before), bottom, top = found, probe.depths[0], probe.depths[-1]
    scores = AlignmentScores(
        basis=probe.basis,
        pairs=probe.pairs,
        bottom_layer=bottom,
        top_layer=top,
        bottom=after[bottom].scores,
        top=after[top].scores,
        bottom_initial=before[bottom].scores,
        top_initial=before[top].scores,
    )
    return scores, {ALIGNMENT: after[top].tally, ALIGNMENT_INITIAL: before[top].tally}


def _task_scores(
    tests: Sequence[TaskTest], learned: Embeddings, untrained: Vocabulary
) -> tuple[tuple[TaskScores, ...], dict[str, ItemCounts]]:
    """Zero-shot scores of the tasks, with the embeddings learned and the initial vocabulary."""
    before = evaluate_tasks(tests, lambda model: swap(model.net.encoder, untrained))
    after = evaluate_tasks(tests, lambda model: model.swap_in(learned))
    scores = tuple(
        one.scores.model_copy(update={"initial": other.scores.score, "initial_others": other.scores.others})
        for one, other in zip(after, before, strict=True)
    )
    return scores, {task_item(one.scores.name, seed): tally for one in after for seed, tally in one.tallies.items()}


def _sum(costs: Sequence[Cost]) -> Cost:
    return Cost(
        steps=sum(cost.steps for cost in costs),
        tokens=sum(cost.tokens for cost in costs),
        flops=sum(cost.flops for cost in costs),
        elapsed_s=sum(cost.elapsed_s for cost in costs),
    )


def masked_test_blocks(recipe: Recipe, blocks: Artifact) -> Tensor:
    """Return the test blocks (N, T) in which masked tokens are predicted: all, or as many as the recipe names."""
    test = open_split(blocks, "test")
    count = min(recipe.test_blocks or len(test), len(test))
    return test.take(torch.arange(count) * len(test) // count)


class EvaluatedTask(NamedTuple):
    """A task's scores, and what they are made of."""

    scores: TaskScores
    tallies: dict[int, ItemCounts]
    """Counts by finetuning seed, of the same examples in the same order."""


def load_tasks(folders: Sequence[Path], block_tokens: int | None = None) -> dict[str, list[TaskModel]]:
    """Open finetuned tasks, by name, each with its seeds; inputs are cut to `block_tokens` where that is less.

    Raises:
        ArtifactError: one is not a task or is damaged, or the seeds of a task differ in their labels.
    """
    by_name: dict[str, list[TaskModel]] = {}
    for model in map(load_task, folders):
        by_name.setdefault(model.name, []).append(model)
        if block_tokens:
            model.net.encoder.shape = model.shape.within(block_tokens)
    for name, models in by_name.items():
        if any(model.labels != models[0].labels for model in models):
            raise ArtifactError(
                f"seeds of task {name!r} differ in labels: {[m.labels for m in models]}. Finetune again."
            )
    return by_name


def evaluate_tasks(tests: Sequence[TaskTest], put_in: SwapIn) -> tuple[EvaluatedTask, ...]:
    """Score tasks, each of their seeds, with the embeddings that `put_in` gives their bodies."""
    return tuple(_evaluate_task(test, put_in) for test in tests)


def _evaluate_task(test: TaskTest, put_in: SwapIn) -> EvaluatedTask:
    first = test.seeds[0]
    judged: dict[int, TaskEvaluation] = {}
    for model in test.seeds:
        put_in(model)
        judged[model.seed] = test.judge(model)
    found = next(iter(judged.values()))
    baselines = test.baselines()
    matrices = [one.confusion_CC for one in judged.values() if one.confusion_CC is not None]
    scores = TaskScores(
        name=first.name,
        metric=first.kind.metric,
        labels=first.labels,
        examples=test.examples,
        truncated=test.truncated,
        truncated_passages=test.truncated_passages,
        baseline=found.baseline,
        score=_score(judged),
        others=_others(judged),
        baselines={name: _score(seeds) for name, seeds in baselines.items()},
        baseline_others={name: others for name, seeds in baselines.items() if (others := _others(seeds))},
        confusion=torch.stack(matrices).sum(0).tolist() if matrices else [],
    )
    return EvaluatedTask(scores, {seed: one.tally for seed, one in judged.items()})


def _score(judged: Mapping[int, TaskEvaluation]) -> SeedScores:
    return SeedScores(by_seed={seed: one.score for seed, one in judged.items()})


def _others(judged: Mapping[int, TaskEvaluation]) -> dict[str, SeedScores]:
    """Further metrics by name, of evaluations by seed."""
    names = next(iter(judged.values())).others
    return {name: SeedScores(by_seed={seed: one.others[name] for seed, one in judged.items()}) for name in names}
