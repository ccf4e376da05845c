"""The pipelines as functions of a recipe: what runs on a cluster is what runs here, and what is compiled."""

from typing import Any, NamedTuple

from kfp import dsl
from kfp.dsl import base_component, pipeline_channel

from components import data, language, source
from lingraft.cluster import Cluster
from lingraft.config import Recipe
from lingraft.steps.source import finetunings
from pipelines.cluster import light, training


class LanguageOutputs(NamedTuple):
    """What a language run leaves behind."""

    report: dsl.Artifact


class _TextLane(NamedTuple):
    text: dsl.PipelineTask
    tokenizer: dsl.PipelineTask
    blocks: dsl.PipelineTask


def source_pipeline(settings: Recipe) -> base_component.BaseComponent:
    """Text to a registered primary, and tasks finetuned from it, in the source language: once per primary."""
    cluster = settings.cluster

    @dsl.pipeline(name=f"{settings.name}-source", description=source_pipeline.__doc__)
    def pipeline(recipe: str = settings.to_json(), language: str = settings.source) -> None:
        run = _open(recipe, "source", cluster)
        lane = _text_lane(recipe, run, language, cluster)
        blocks, text = lane.blocks.outputs["blocks"], lane.text.outputs["text"]
        pretrained = source.pretrain(
            recipe=recipe, run=run, blocks=blocks, tokenizer=lane.tokenizer.outputs["tokenizer"]
        )
        training(pretrained, cluster)
        common = {"recipe": recipe, "run": run, "primary": pretrained.outputs["primary"]}
        if settings.builds_mini:
            training(source.build_mini(**common, blocks=blocks), cluster)
        finetuned = _finetunings(settings, common, text)
        judged = source.evaluate_source(**common, text=text, blocks=blocks, **_collected(finetuned))
        training(judged, cluster)
        registered = source.register_source(**common, evaluation=judged.outputs["evaluation"], **_collected(finetuned))
        light(registered, cluster)

    return pipeline


def _finetunings(settings: Recipe, common: dict[str, Any], text: Any) -> dsl.PipelineTask | None:
    """One finetuning a task and seed, side by side; none without tasks."""
    if not settings.tasks:
        return None
    with dsl.ParallelFor(finetunings(settings), parallelism=settings.cluster.parallel_languages) as job:
        return training(source.finetune(**common, job=job, text=text), settings.cluster)


def _collected(finetuned: dsl.PipelineTask | None) -> dict[str, Any]:
    return {} if finetuned is None else {"tasks": dsl.Collected(finetuned.outputs["task"])}


def depth_search_pipeline(settings: Recipe) -> base_component.BaseComponent:
    """Choose one language's mini-model depth with Optuna, and tag the registered primary with it."""
    cluster = settings.cluster
    wanted = settings.require_search().language

    @dsl.pipeline(name=f"{settings.name}-depth-search", description=depth_search_pipeline.__doc__)
    def pipeline(recipe: str = settings.to_json(), target: str = wanted, storage: str = "") -> None:
        run = _open(recipe, "depth-search", cluster)
        fetched = light(source.fetch_source(recipe=recipe, run=run), cluster)
        lane = _text_lane(recipe, run, target, cluster)
        training(
            language.search_depth(
                recipe=recipe,
                run=run,
                storage=storage,
                primary=fetched.outputs["primary"],
                blocks=lane.blocks.outputs["blocks"],
                tokenizer=lane.tokenizer.outputs["tokenizer"],
            ),
            cluster,
        )

    return pipeline


def language_pipeline(settings: Recipe) -> base_component.BaseComponent:
    """Text to registered embeddings, a served bundle and a report, for every target language."""
    cluster, targets = settings.cluster, list(settings.targets)

    @dsl.pipeline(name=f"{settings.name}-language", description=language_pipeline.__doc__)
    def pipeline(recipe: str = settings.to_json(), languages: list = targets, compare: bool = False) -> LanguageOutputs:
        run = _open(recipe, "language", cluster)
        fetched = light(source.fetch_source(recipe=recipe, run=run), cluster)
        common = {"recipe": recipe, "run": run, "primary": fetched.outputs["primary"]}
        mini = {"mini": fetched.outputs["mini"]}
        with dsl.ParallelFor(languages, parallelism=cluster.parallel_languages) as target:
            lane = _text_lane(recipe, run, target, cluster)
            folders = {"blocks": lane.blocks.outputs["blocks"]}
            depths = light(language.depths_of(recipe=recipe, language=target, compare=compare), cluster)
            with dsl.ParallelFor(depths.output, parallelism=cluster.parallel_languages) as depth:
                adapted = language.adapt(
                    **common, **mini, depth=depth, tokenizer=lane.tokenizer.outputs["tokenizer"], **folders
                )
                training(adapted, cluster)
                judged = language.evaluate_language(
                    **common,
                    **mini,
                    tasks=fetched.outputs["tasks"],
                    embeddings=adapted.outputs["embeddings"],
                    text=lane.text.outputs["text"],
                    **folders,
                )
                training(judged, cluster)
            registered = language.register_language(
                recipe=recipe,
                run=run,
                embeddings=dsl.Collected(adapted.outputs["embeddings"]),
                evaluations=dsl.Collected(judged.outputs["evaluation"]),
            )
            light(registered, cluster)
        reported = language.write_report(
            recipe=recipe,
            run=run,
            evaluation=fetched.outputs["evaluation"],
            results=dsl.Collected(registered.outputs["results"]),
        )
        light(reported, cluster)
        for task in settings.served_tasks:
            exported = language.export_bundle(
                **common,
                task=task.name,
                tasks=fetched.outputs["tasks"],
                embeddings=dsl.Collected(registered.outputs["chosen"]),
            )
            light(exported, cluster)
            reported.after(exported)
        return LanguageOutputs(reported.outputs["report"])

    return pipeline


def _open(recipe: str, pipeline: str, cluster: Cluster) -> pipeline_channel.PipelineArtifactChannel:
    return light(data.open_run(recipe=recipe, pipeline=pipeline), cluster).outputs["run"]


def _text_lane(recipe: str, run: Any, target: str, cluster: Cluster) -> _TextLane:
    text = light(data.prepare_text(recipe=recipe, run=run, language=target), cluster)
    made = {"recipe": recipe, "run": run, "text": text.outputs["text"]}
    tokenizer = light(data.train_tokenizer(**made), cluster)
    blocks = light(data.build_blocks(**made, tokenizer=tokenizer.outputs["tokenizer"]), cluster)
    return _TextLane(text, tokenizer, blocks)
