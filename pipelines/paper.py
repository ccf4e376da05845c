"""The paper's comparison as a pipeline: systems are fixed when it is compiled, languages when it is run."""

from typing import Any, NamedTuple

from kfp import dsl
from kfp.dsl import base_component

from components import paper
from lingraft.comparison.plan import Arm, Comparison, PlannedPrimary, plan_comparison
from lingraft.config.cluster import StageName
from lingraft.config.recipe import Recipe
from pipelines.cluster import StepSettings, configure_data, configure_light, configure_training
from pipelines.opening import describe, opened
from pipelines.settable import settable

_TEXT_OUTPUTS = ("text", "tokenizer", "blocks")


class _PrimaryOutputs(NamedTuple):
    """Outputs of the steps of one primary."""

    primary: Any
    tasks: Any
    evaluation: Any


def paper_pipeline(settings: Recipe, file: str = "") -> base_component.BaseComponent:
    """Every system in every language on every task, with learning curves; tables say what failed and why."""
    comparison = plan_comparison(settings)
    targets = list(settings.targets)

    @dsl.pipeline(name=f"{settings.name}-paper", description=describe(paper_pipeline.__doc__, settings, file))
    @settable(settings.cluster, *_stages(comparison), languages=Recipe.model_fields["targets"].description)
    def pipeline(step_settings: StepSettings, languages: list = targets) -> None:
        with opened(settings, file, "paper", step_settings, languages) as (recipe, run):
            common = {"recipe": recipe, "run": run}
            source = _text_steps(common, settings.source.language, step_settings)
            bodies = {
                planned.name: _primary_steps(planned, common, source, step_settings) for planned in comparison.primaries
            }
            vectors = _vectors(settings, common, source, step_settings)
            minis = {
                arm.name: _mini(arm, common, bodies[arm.primary], source, step_settings)
                for arm in comparison.arms
                if arm.recipe.builds_mini
            }
            with dsl.ParallelFor(languages, parallelism=step_settings.cluster.parallel_languages) as language:
                target = _text_steps(common, language, step_settings)
                in_language = common | {"language": language}
                starts = _initial_embeddings(bodies, in_language, vectors, target, step_settings) if vectors else {}
                judged = {
                    arm.name: _arm_steps(
                        arm=arm,
                        common=in_language,
                        bodies=bodies[arm.primary],
                        mini=minis.get(arm.name),
                        start=starts.get(arm.primary),
                        target=target,
                        step_settings=step_settings,
                    )
                    for arm in comparison.arms
                }
            results = bodies[comparison.arms[0].primary].evaluation
            for arm in comparison.arms:
                parts = {"source": bodies[arm.primary].evaluation, "judged": dsl.Collected(judged[arm.name])}
                gathered = configure_light(paper.gather(before=results, **parts), step_settings)
                results = _titled(gathered, f"gather {arm.name}").outputs["results"]
            configure_light(paper.write_report(**common, results=results), step_settings)

    return pipeline


def _stages(comparison: Comparison) -> tuple[StageName, ...]:
    mini: tuple[StageName, ...] = ("mini",) if any(arm.recipe.builds_mini for arm in comparison.arms) else ()
    tuned: tuple[StageName, ...] = (
        ("finetuning",) if any(planned.finetunings for planned in comparison.primaries) else ()
    )
    return "pretraining", *mini, *tuned, "adaptation", "judging"


def _text_steps(common: dict[str, Any], language: Any, step_settings: StepSettings) -> dict[str, Any]:
    """Prepare a language, and return its text, tokenizer and blocks."""
    made = configure_data(paper.prepare_language(**common, language=language), step_settings)
    return {name: made.outputs[name] for name in _TEXT_OUTPUTS}


def _primary_steps(
    planned: PlannedPrimary, common: dict[str, Any], source: dict[str, Any], step_settings: StepSettings
) -> _PrimaryOutputs:
    """Pretrain a primary, finetune it in parallel on every task with every seed, and evaluate it."""
    of = common | {"name": planned.name}
    pieces = {"blocks": source["blocks"], "tokenizer": source["tokenizer"]}
    pretrained = _titled(
        configure_training(paper.pretrain(**of, **pieces), step_settings, "pretraining"), f"pretrain {planned.name}"
    )
    primary = pretrained.outputs["primary"]
    made = {}
    if planned.finetunings:
        words = [wanted.key for wanted in planned.finetunings]
        with dsl.ParallelFor(words, parallelism=step_settings.cluster.parallel_languages) as job:
            finetuned = configure_training(
                paper.finetune(**of, job=job, primary=primary, text=source["text"]), step_settings, "finetuning"
            )
        made = {"finetuned": dsl.Collected(finetuned.outputs["task"])}
    judged = configure_training(paper.judge_source(**of, primary=primary, **source, **made), step_settings, "judging")
    _titled(judged, f"judge {planned.name}")
    return _PrimaryOutputs(primary, judged.outputs["tasks"], judged.outputs["evaluation"])


def _mini(
    arm: Arm, common: dict[str, Any], bodies: _PrimaryOutputs, source: dict[str, Any], step_settings: StepSettings
) -> Any:
    built = paper.build_mini(**common, arm=arm.name, primary=bodies.primary, blocks=source["blocks"])
    configure_training(built, step_settings, "mini")
    return _titled(built, f"build mini {arm.name}").outputs["mini"]


def _vectors(settings: Recipe, common: dict[str, Any], source: dict[str, Any], step_settings: StepSettings) -> Any:
    """Compute static vectors of the source if languages are aligned with them; else return None."""
    if not settings.adaptation.initialisation.needs_text:
        return None
    built = configure_data(
        paper.build_vectors(**common, blocks=source["blocks"], tokenizer=source["tokenizer"]), step_settings
    )
    return built.outputs["vectors"]


def _initial_embeddings(
    bodies: dict[str, _PrimaryOutputs],
    common: dict[str, Any],
    vectors: Any,
    target: dict[str, Any],
    step_settings: StepSettings,
) -> dict[str, Any]:
    """Return a language's embeddings at update 0 by primary: systems with the same primary share them."""
    pieces = {"blocks": target["blocks"], "tokenizer": target["tokenizer"], "vectors": vectors}
    starts = {}
    for name, body in bodies.items():
        made = configure_data(paper.initialise(**common, name=name, primary=body.primary, **pieces), step_settings)
        starts[name] = _titled(made, f"initialise {name}").outputs["initial"]
    return starts


def _arm_steps(
    arm: Arm,
    common: dict[str, Any],
    bodies: _PrimaryOutputs,
    mini: Any,
    start: Any,
    target: dict[str, Any],
    step_settings: StepSettings,
) -> Any:
    """Adapt a language in one arm, and evaluate every checkpoint."""
    of = common | {"arm": arm.name, "primary": bodies.primary}
    pieces = {"blocks": target["blocks"], "tokenizer": target["tokenizer"]} | ({"initial": start} if start else {})
    adapt = paper.adapt(**of, **pieces) if mini is None else paper.adapt_over_mini(**of, **pieces, mini=mini)
    adapted = _titled(configure_training(adapt, step_settings, "adaptation"), f"adapt {arm.name}")
    judged = paper.judge_language(**of, **target, tasks=bodies.tasks, curve=adapted.outputs["curve"])
    return _titled(configure_training(judged, step_settings, "judging"), f"judge {arm.name}").outputs["evaluation"]


def _titled(task: dsl.PipelineTask, title: str) -> dsl.PipelineTask:
    """Set the display name of a step, since this pipeline has the same step many times."""
    return task.set_display_name(title)
