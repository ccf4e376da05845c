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


class _Lane(NamedTuple):
    """A language's text, tokenizer and blocks, as outputs of steps."""

    text: Any
    tokenizer: Any
    blocks: Any


def source_pipeline(settings: Recipe, file: str = "") -> base_component.BaseComponent:
    """Text or a model to a registered primary, and tasks finetuned from it in the source language, once per primary."""
    cluster = settings.cluster

    @dsl.pipeline(name=f"{settings.name}-source", description=describe(source_pipeline.__doc__, settings, file))
    @settable(cluster, *_source_stages(settings), language=Source.model_fields["language"].description)
    def pipeline(step_settings: StepSettings, language: str = settings.source.language) -> None:
        with opened(settings, file, "source", step_settings, languages=[]) as (recipe, run):
            given = {"recipe": recipe, "run": run}
            if settings.pretraining:
                lane = _lane(**given, target=language, step_settings=step_settings)
                pretrained = source.pretrain(**given, blocks=lane.blocks, tokenizer=lane.tokenizer)
                primary = configure_training(pretrained, step_settings, "pretraining").outputs["primary"]
                own, judged_own = {}, {}
            else:
                brought = configure_data(source.import_model(**given), step_settings).outputs
                primary, own = brought["primary"], {"imported": brought["task"]}
                lane = _lane(**given, target=language, step_settings=step_settings, tokenizer=primary)
                judged_own = own if any(task.is_imported for task in settings.tasks) else {}
            common = given | {"primary": primary}
            built = (
                [configure_training(source.build_mini(**common, blocks=lane.blocks), step_settings, "mini")]
                if settings.builds_mini
                else []
            )
            vectors = _vectors(settings, recipe, run, lane, step_settings)
            finetuned = _finetunings(settings, common, lane.text, step_settings)
            judged = source.evaluate_source(
                **common, text=lane.text, blocks=lane.blocks, **_collected(finetuned), **judged_own
            )
            configure_training(judged, step_settings, "judging")
            more = {"evaluation": judged.outputs["evaluation"], **vectors, **_collected(finetuned), **own}
            registered = source.register_source(**common, **more)
            configure_light(registered, step_settings).after(*built)  # this step promotes the mini-model too

    return pipeline


def _source_stages(settings: Recipe) -> tuple[StageName, ...]:
    wanted: dict[StageName, object] = {
        "pretraining": settings.pretraining,
        "mini": settings.builds_mini,
        "finetuning": finetuning_ids(settings.tasks),
    }
    return *(stage for stage, has in wanted.items() if has), "judging"


def _vectors(settings: Recipe, recipe: Any, run: Any, lane: _Lane, step_settings: StepSettings) -> dict[str, Any]:
    """Compute static vectors of the source if new languages are aligned with them; else return no inputs."""
    if not settings.needs_vectors:
        return {}
    inputs = {"blocks": lane.blocks, "tokenizer": lane.tokenizer}
    built = configure_data(source.build_vectors(recipe=recipe, run=run, **inputs), step_settings)
    return {"vectors": built.outputs["vectors"]}


def _finetunings(
    settings: Recipe, common: dict[str, Any], text: Any, step_settings: StepSettings
) -> dsl.PipelineTask | None:
    """Finetune each task with each seed, in parallel; None without tasks to finetune."""
    if not (jobs := finetuning_ids(settings.tasks)):
        return None
    with dsl.ParallelFor(jobs, parallelism=step_settings.cluster.parallel_languages) as job:
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
            given, primary = {"recipe": recipe, "run": run}, fetched.outputs["primary"]
            lender = {"source": primary} if settings.tokenizer.borrow else {}
            own = {} if settings.pretraining else {"tokenizer": primary}
            lane = _lane(**given, target=target, step_settings=step_settings, **lender)
            mini_builders = (
                _lane(**given, target=settings.source.language, step_settings=step_settings, **own)
                if settings.builds_mini
                else None
            )
            common = {
                **given,
                "primary": primary,
                "blocks": lane.blocks,
                "tokenizer": lane.tokenizer,
                "source_blocks": mini_builders.blocks if mini_builders else fetched.outputs["mini"],
                "initial": _initial(recipe, run, fetched, lane, step_settings),
                "source_evaluation": fetched.outputs["evaluation"],
                "text": lane.text,
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
            lender = {"source": fetched.outputs["primary"]} if settings.tokenizer.borrow else {}
            with dsl.ParallelFor(languages, parallelism=cluster.parallel_languages) as target:
                lane = _lane(
                    recipe=recipe, run=run, target=target, step_settings=step_settings, isolated=True, **lender
                )
                folders = {
                    "blocks": lane.blocks,
                    "initial": _initial(recipe, run, fetched, lane, step_settings, isolated=True),
                }
                depths = configure_light(
                    language.depths_of(recipe=recipe, language=target, compare=compare), step_settings
                )
                with dsl.ParallelFor(depths.outputs["Output"], parallelism=cluster.parallel_languages) as depth:
                    chosen = {"depth": depth, "depths": depths.outputs["depths"]}
                    adapted = language.adapt(**common, **mini, **chosen, tokenizer=lane.tokenizer, **folders)
                    configure_training(adapted, step_settings, "adaptation")
                    judged = language.evaluate_language(
                        **common,
                        **mini,
                        tasks=fetched.outputs["tasks"],
                        embeddings=adapted.outputs["embeddings"],
                        text=lane.text,
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


def _lane(
    recipe: Any,
    run: Any,
    target: str,
    step_settings: StepSettings,
    tokenizer: Any = None,
    source: Any = None,
    isolated: bool = False,
) -> _Lane:
    """Prepare a language's text, with a tokenizer at hand, or with one that is trained and borrows from a source."""
    read = data.prepare_text(recipe=recipe, run=run, language=target, isolated=isolated)
    made = {"recipe": recipe, "run": run, "isolated": isolated}
    made |= {"text": configure_data(read, step_settings).outputs["text"]}
    if tokenizer is None:
        trained = data.train_tokenizer(**made, **({"source": source} if source else {}))
        tokenizer = configure_data(trained, step_settings).outputs["tokenizer"]
    built = configure_data(data.build_blocks(**made, tokenizer=tokenizer), step_settings)
    return _Lane(made["text"], tokenizer, built.outputs["blocks"])


def _initial(
    recipe: Any,
    run: Any,
    fetched: dsl.PipelineTask,
    lane: _Lane,
    step_settings: StepSettings,
    isolated: bool = False,
) -> Any:
    """Initialise a language's embeddings, by one step for every kind of initialisation."""
    inputs = {"primary": fetched.outputs["primary"], "vectors": fetched.outputs["vectors"]}
    inputs |= {"tokenizer": lane.tokenizer, "blocks": lane.blocks}
    made = configure_data(language.initialise(recipe=recipe, run=run, **inputs, isolated=isolated), step_settings)
    return made.outputs["initial"]
