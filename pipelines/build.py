"""The pipelines as functions of a recipe, the same for a cluster, for local runs, and for compilation."""

from typing import Any, NamedTuple

from kfp import dsl
from kfp.dsl import base_component, pipeline_channel

from components import data, language, search, source
from lingraft.artifacts.names import bundle_kinds
from lingraft.config.cluster import StageName
from lingraft.config.recipe import Recipe
from lingraft.config.tasks import finetuning_ids
from pipelines.cluster import StepSettings, configure_light, configure_training
from pipelines.settable import settable


class LanguageOutputs(NamedTuple):
    """Outputs of the language pipeline."""

    report: dsl.Artifact


class _TextSteps(NamedTuple):
    text: dsl.PipelineTask
    tokenizer: dsl.PipelineTask
    blocks: dsl.PipelineTask


def source_pipeline(settings: Recipe) -> base_component.BaseComponent:
    """Text to a registered primary, and tasks finetuned from it, in the source language: once per primary."""
    cluster = settings.cluster

    @dsl.pipeline(name=f"{settings.name}-source", description=source_pipeline.__doc__)
    @settable(cluster, *_source_stages(settings))
    def pipeline(
        step_settings: StepSettings, recipe: str = settings.to_json(), language: str = settings.source
    ) -> None:
        run = _open(recipe, "source", step_settings, [])
        text_steps = _text_steps(recipe, run, language, step_settings)
        blocks = text_steps.blocks.outputs["blocks"]
        text = text_steps.text.outputs["text"]
        pretrained = source.pretrain(
            recipe=recipe, run=run, blocks=blocks, tokenizer=text_steps.tokenizer.outputs["tokenizer"]
        )
        configure_training(pretrained, step_settings, "pretraining")
        common = {"recipe": recipe, "run": run, "primary": pretrained.outputs["primary"]}
        built = (
            [configure_training(source.build_mini(**common, blocks=blocks), step_settings, "mini")]
            if settings.builds_mini
            else []
        )
        vectors = _vectors(settings, recipe, run, text_steps, step_settings)
        finetuned = _finetunings(settings, common, text, step_settings)
        judged = source.evaluate_source(**common, text=text, blocks=blocks, **_collected(finetuned))
        configure_training(judged, step_settings, "judging")
        more = {"evaluation": judged.outputs["evaluation"], **vectors, **_collected(finetuned)}
        registered = source.register_source(**common, **more)
        configure_light(registered, step_settings).after(*built)  # this step promotes the mini-model too

    return pipeline


def _source_stages(settings: Recipe) -> tuple[StageName, ...]:
    mini: tuple[StageName, ...] = ("mini",) if settings.builds_mini else ()
    finetuning: tuple[StageName, ...] = ("finetuning",) if settings.tasks else ()
    return "pretraining", *mini, *finetuning, "judging"


def _vectors(
    settings: Recipe, recipe: str, run: Any, text_steps: _TextSteps, step_settings: StepSettings
) -> dict[str, Any]:
    """Compute static vectors of the source if new languages are aligned with them; else return no inputs."""
    if not settings.adaptation.initialisation.needs_text:
        return {}
    inputs = {"blocks": text_steps.blocks.outputs["blocks"], "tokenizer": text_steps.tokenizer.outputs["tokenizer"]}
    built = configure_light(source.build_vectors(recipe=recipe, run=run, **inputs), step_settings)
    return {"vectors": built.outputs["vectors"]}


def _finetunings(
    settings: Recipe, common: dict[str, Any], text: Any, step_settings: StepSettings
) -> dsl.PipelineTask | None:
    """Finetune each task with each seed, in parallel; None without tasks."""
    if not settings.tasks:
        return None
    with dsl.ParallelFor(finetuning_ids(settings.tasks), parallelism=step_settings.cluster.parallel_languages) as job:
        return configure_training(source.finetune(**common, job=job, text=text), step_settings, "finetuning")


def _collected(finetuned: dsl.PipelineTask | None) -> dict[str, Any]:
    return {} if finetuned is None else {"tasks": dsl.Collected(finetuned.outputs["task"])}


def depth_search_pipeline(settings: Recipe) -> base_component.BaseComponent:
    """Choose one language's mini-model depth with Optuna, and tag the registered primary with it."""
    cluster = settings.cluster
    wanted = settings.require_search()
    workers = [*range(1, wanted.workers + 1)]

    @dsl.pipeline(name=f"{settings.name}-depth-search", description=depth_search_pipeline.__doc__)
    @settable(cluster, "search")
    def pipeline(step_settings: StepSettings, recipe: str = settings.to_json(), target: str = wanted.language) -> None:
        run = _open(recipe, "depth-search", step_settings, [target])
        fetched = configure_light(source.fetch_source(recipe=recipe, run=run), step_settings)
        text_steps = _text_steps(recipe, run, target, step_settings)
        mini_builders = _text_steps(recipe, run, settings.source, step_settings) if settings.builds_mini else None
        common = {
            "recipe": recipe,
            "run": run,
            "primary": fetched.outputs["primary"],
            "blocks": text_steps.blocks.outputs["blocks"],
            "tokenizer": text_steps.tokenizer.outputs["tokenizer"],
            "source_blocks": mini_builders.blocks.outputs["blocks"] if mini_builders else fetched.outputs["mini"],
            "initial": _initial(recipe, run, fetched, text_steps, step_settings),
            "source_evaluation": fetched.outputs["evaluation"],
            "text": text_steps.text.outputs["text"],
        }
        with dsl.ParallelFor(workers, parallelism=wanted.workers) as worker:
            tried = configure_training(search.try_depths(**common, worker=worker), step_settings, "search")
        configure_training(
            search.search_depth(**common, worked=dsl.Collected(tried.outputs["worked"])), step_settings, "search"
        )

    return pipeline


def language_pipeline(settings: Recipe) -> base_component.BaseComponent:
    """Text to registered embeddings, a served bundle and a report, for all languages named; others stay as they are."""
    cluster = settings.cluster
    targets = list(settings.targets)

    @dsl.pipeline(name=f"{settings.name}-language", description=language_pipeline.__doc__)
    @settable(cluster, "adaptation", "judging")
    def pipeline(
        step_settings: StepSettings,
        recipe: str = settings.to_json(),
        languages: list = targets,
        compare: bool = False,
        drop_languages: list = [],  # noqa: B006  KFP reads it as the parameter's default
        new_primary: bool = False,
        new_labels: bool = False,
    ) -> LanguageOutputs:
        run = _open(recipe, "language", step_settings, languages, drop_languages=drop_languages)
        fetched = configure_light(source.fetch_source(recipe=recipe, run=run), step_settings)
        common = {"recipe": recipe, "run": run, "primary": fetched.outputs["primary"]}
        mini = {"mini": fetched.outputs["mini"]}
        with dsl.ParallelFor(languages, parallelism=cluster.parallel_languages) as target:
            text_steps = _text_steps(recipe, run, target, step_settings, isolated=True)
            folders = {
                "blocks": text_steps.blocks.outputs["blocks"],
                "initial": _initial(recipe, run, fetched, text_steps, step_settings, isolated=True),
            }
            depths = configure_light(language.depths_of(recipe=recipe, language=target, compare=compare), step_settings)
            with dsl.ParallelFor(depths.outputs["Output"], parallelism=cluster.parallel_languages) as depth:
                chosen = {"depth": depth, "depths": depths.outputs["depths"]}
                adapted = language.adapt(
                    **common, **mini, **chosen, tokenizer=text_steps.tokenizer.outputs["tokenizer"], **folders
                )
                configure_training(adapted, step_settings, "adaptation")
                judged = language.evaluate_language(
                    **common,
                    **mini,
                    tasks=fetched.outputs["tasks"],
                    embeddings=adapted.outputs["embeddings"],
                    text=text_steps.text.outputs["text"],
                    source_evaluation=fetched.outputs["evaluation"],
                    **folders,
                )
                configure_training(judged, step_settings, "judging")
            registered = language.register_language(
                recipe=recipe,
                run=run,
                language=target,
                tasks=fetched.outputs["tasks"],
                embeddings=dsl.Collected(adapted.outputs["embeddings"]),
                evaluations=dsl.Collected(judged.outputs["evaluation"]),
            )
            configure_light(registered, step_settings)
        reported = language.write_report(
            recipe=recipe,
            run=run,
            evaluation=fetched.outputs["evaluation"],
            results=dsl.Collected(registered.outputs["results"]),
            outcomes=dsl.Collected(registered.outputs["outcome"]),
        )
        configure_light(reported, step_settings)
        for name in bundle_kinds(settings):
            exported = language.export_bundle(
                **common,
                task=name,
                tasks=fetched.outputs["tasks"],
                embeddings=dsl.Collected(registered.outputs["chosen"]),
                drop_languages=drop_languages,
                new_primary=new_primary,
                new_labels=new_labels,
            )
            configure_light(exported, step_settings)
            reported.after(exported)
        required = language.require_languages(run=run, outcomes=dsl.Collected(registered.outputs["outcome"]))
        configure_light(required, step_settings).after(reported)
        return LanguageOutputs(reported.outputs["report"])

    return pipeline


def _open(
    recipe: str, pipeline: str, step_settings: StepSettings, languages: Any, **dropped: Any
) -> pipeline_channel.PipelineArtifactChannel:
    """Check the inputs of the languages (all if empty), then open the tracking run that all steps need."""
    named = {"languages": languages, "drop_languages": []} | dropped
    checked = configure_light(data.check_inputs(recipe=recipe, pipeline=pipeline, **named), step_settings)
    return configure_light(data.open_run(recipe=recipe, pipeline=pipeline), step_settings).after(checked).outputs["run"]


def _text_steps(recipe: str, run: Any, target: str, step_settings: StepSettings, isolated: bool = False) -> _TextSteps:
    text = configure_light(data.prepare_text(recipe=recipe, run=run, language=target, isolated=isolated), step_settings)
    made = {"recipe": recipe, "run": run, "text": text.outputs["text"], "isolated": isolated}
    tokenizer = configure_light(data.train_tokenizer(**made), step_settings)
    blocks = configure_light(data.build_blocks(**made, tokenizer=tokenizer.outputs["tokenizer"]), step_settings)
    return _TextSteps(text, tokenizer, blocks)


def _initial(
    recipe: str,
    run: Any,
    fetched: dsl.PipelineTask,
    text_steps: _TextSteps,
    step_settings: StepSettings,
    isolated: bool = False,
) -> Any:
    """Initialise a language's embeddings, by one step for every kind of initialisation."""
    inputs = {"primary": fetched.outputs["primary"], "vectors": fetched.outputs["vectors"]}
    inputs |= {"tokenizer": text_steps.tokenizer.outputs["tokenizer"], "blocks": text_steps.blocks.outputs["blocks"]}
    made = configure_light(language.initialise(recipe=recipe, run=run, **inputs, isolated=isolated), step_settings)
    return made.outputs["initial"]
