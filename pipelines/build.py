"""The pipelines as functions of a recipe, the same for a cluster, for local runs, and for compilation."""

from typing import Any, NamedTuple

from kfp import dsl
from kfp.dsl import base_component

from components import data, language, search, source
from lingraft.artifacts.names import bundle_kinds
from lingraft.cli.registry import DropOption, NewLabelsOption, NewPrimaryOption
from lingraft.config.cluster import StageName
from lingraft.config.recipe import Recipe
from lingraft.config.search import Search
from lingraft.config.source import Source
from lingraft.config.tasks import finetuning_ids
from pipelines.catalogue import COMPARE
from pipelines.cluster import StepSettings, configure_data, configure_light, configure_training
from pipelines.opening import describe, opened
from pipelines.settable import settable


class _TextSteps(NamedTuple):
    text: dsl.PipelineTask
    tokenizer: dsl.PipelineTask
    blocks: dsl.PipelineTask


def source_pipeline(settings: Recipe, file: str = "") -> base_component.BaseComponent:
    """Text to a registered primary, and tasks finetuned from it, in the source language: once per primary."""
    cluster = settings.cluster

    @dsl.pipeline(name=f"{settings.name}-source", description=describe(source_pipeline.__doc__, settings, file))
    @settable(cluster, *_source_stages(settings), language=Source.model_fields["language"].description)
    def pipeline(step_settings: StepSettings, language: str = settings.source.language) -> None:
        with opened(settings, file, "source", step_settings, languages=[]) as (recipe, run):
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
    settings: Recipe, recipe: Any, run: Any, text_steps: _TextSteps, step_settings: StepSettings
) -> dict[str, Any]:
    """Compute static vectors of the source if new languages are aligned with them; else return no inputs."""
    if not settings.adaptation.initialisation.needs_text:
        return {}
    inputs = {"blocks": text_steps.blocks.outputs["blocks"], "tokenizer": text_steps.tokenizer.outputs["tokenizer"]}
    built = configure_data(source.build_vectors(recipe=recipe, run=run, **inputs), step_settings)
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


def depth_search_pipeline(settings: Recipe, file: str = "") -> base_component.BaseComponent:
    """Choose one language's mini-model depth with Optuna, and tag the registered primary with it."""
    cluster = settings.cluster
    wanted = settings.require_search()
    workers = [*range(1, wanted.workers + 1)]

    @dsl.pipeline(
        name=f"{settings.name}-depth-search", description=describe(depth_search_pipeline.__doc__, settings, file)
    )
    @settable(cluster, "search", target=Search.model_fields["language"].description)
    def pipeline(step_settings: StepSettings, target: str = wanted.language) -> None:
        with opened(settings, file, "depth-search", step_settings, languages=[target]) as (recipe, run):
            fetched = configure_light(source.fetch_source(recipe=recipe, run=run), step_settings)
            text_steps = _text_steps(recipe, run, target, step_settings)
            mini_builders = (
                _text_steps(recipe, run, settings.source.language, step_settings) if settings.builds_mini else None
            )
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


def language_pipeline(settings: Recipe, file: str = "") -> base_component.BaseComponent:
    """Text to registered embeddings, a served bundle and a report, for all languages named; others stay as they are."""
    cluster = settings.cluster
    targets = list(settings.targets)

    @dsl.pipeline(name=f"{settings.name}-language", description=describe(language_pipeline.__doc__, settings, file))
    @settable(
        cluster,
        "adaptation",
        "judging",
        languages=Recipe.model_fields["targets"].description,
        compare=COMPARE,
        drop_languages=_help_of(DropOption),
        new_primary=_help_of(NewPrimaryOption),
        new_labels=_help_of(NewLabelsOption),
    )
    def pipeline(
        step_settings: StepSettings,
        languages: list = targets,
        compare: bool = False,
        drop_languages: list = [],  # noqa: B006  KFP reads it as the parameter's default
        new_primary: bool = False,
        new_labels: bool = False,
    ) -> None:
        with opened(
            settings=settings,
            file=file,
            pipeline="language",
            step_settings=step_settings,
            languages=languages,
            drop_languages=drop_languages,
        ) as (recipe, run):
            fetched = configure_light(source.fetch_source(recipe=recipe, run=run), step_settings)
            common = {"recipe": recipe, "run": run, "primary": fetched.outputs["primary"]}
            mini = {"mini": fetched.outputs["mini"]}
            with dsl.ParallelFor(languages, parallelism=cluster.parallel_languages) as target:
                text_steps = _text_steps(recipe, run, target, step_settings, isolated=True)
                folders = {
                    "blocks": text_steps.blocks.outputs["blocks"],
                    "initial": _initial(recipe, run, fetched, text_steps, step_settings, isolated=True),
                }
                depths = configure_light(
                    language.depths_of(recipe=recipe, language=target, compare=compare), step_settings
                )
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

    return pipeline


def _help_of(option: Any) -> str:
    """Return the help of a command's option, which is that of the pipeline's parameter too."""
    return str(option.__metadata__[0].help)


def _text_steps(recipe: Any, run: Any, target: str, step_settings: StepSettings, isolated: bool = False) -> _TextSteps:
    text = configure_data(data.prepare_text(recipe=recipe, run=run, language=target, isolated=isolated), step_settings)
    made = {"recipe": recipe, "run": run, "text": text.outputs["text"], "isolated": isolated}
    tokenizer = configure_data(data.train_tokenizer(**made), step_settings)
    blocks = configure_data(data.build_blocks(**made, tokenizer=tokenizer.outputs["tokenizer"]), step_settings)
    return _TextSteps(text, tokenizer, blocks)


def _initial(
    recipe: Any,
    run: Any,
    fetched: dsl.PipelineTask,
    text_steps: _TextSteps,
    step_settings: StepSettings,
    isolated: bool = False,
) -> Any:
    """Initialise a language's embeddings, by one step for every kind of initialisation."""
    inputs = {"primary": fetched.outputs["primary"], "vectors": fetched.outputs["vectors"]}
    inputs |= {"tokenizer": text_steps.tokenizer.outputs["tokenizer"], "blocks": text_steps.blocks.outputs["blocks"]}
    made = configure_data(language.initialise(recipe=recipe, run=run, **inputs, isolated=isolated), step_settings)
    return made.outputs["initial"]
