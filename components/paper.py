"""Components of the paper's comparison: every step writes its output, or the reason why it failed."""

from typing import List  # noqa: UP035  kfp reads typing.List for lists of artifacts

from kfp import dsl

from components.step import step


@step
def prepare_language(
    recipe: str,
    run: dsl.Input[dsl.Artifact],
    language: str,
    text: dsl.Output[dsl.Dataset],
    tokenizer: dsl.Output[dsl.Artifact],
    blocks: dsl.Output[dsl.Dataset],
):
    """Read a language's text, train its tokenizer, and pack its blocks."""
    from lingraft.steps.launch import launcher

    outputs = {"text": text.path, "tokenizer": tokenizer.path, "blocks": blocks.path}
    values = {"recipe": recipe, "language": language}
    launcher.run("paper.prepare_language", {"run": run.path}, outputs, isolated=True, **values)


@step
def pretrain(
    recipe: str,
    run: dsl.Input[dsl.Artifact],
    name: str,
    blocks: dsl.Input[dsl.Dataset],
    tokenizer: dsl.Input[dsl.Artifact],
    primary: dsl.Output[dsl.Model],
    metrics: dsl.Output[dsl.Metrics],
):
    """Train one of the comparison's primaries in the source language."""
    from lingraft.steps.launch import launcher

    alone = {"isolated": True, "bears_failed_inputs": True, "otherwise": {}}
    inputs = {"run": run.path, "blocks": blocks.path, "tokenizer": tokenizer.path}
    found = launcher.run("paper.pretrain", inputs, {"out": primary.path}, **alone, recipe=recipe, name=name)
    metrics.metadata.update(found)


@step
def build_vectors(
    recipe: str,
    run: dsl.Input[dsl.Artifact],
    blocks: dsl.Input[dsl.Dataset],
    tokenizer: dsl.Input[dsl.Artifact],
    vectors: dsl.Output[dsl.Artifact],
):
    """Compute static vectors of the source language's pieces, which new languages are aligned with."""
    from lingraft.steps.launch import launcher

    alone = {"isolated": True, "bears_failed_inputs": True}
    inputs = {"run": run.path, "blocks": blocks.path, "tokenizer": tokenizer.path}
    launcher.run("paper.build_vectors", inputs, {"out": vectors.path}, **alone, recipe=recipe)


@step
def build_mini(
    recipe: str,
    run: dsl.Input[dsl.Artifact],
    arm: str,
    primary: dsl.Input[dsl.Model],
    blocks: dsl.Input[dsl.Dataset],
    mini: dsl.Output[dsl.Model],
    metrics: dsl.Output[dsl.Metrics],
):
    """Train the fresh layers of an arm that has a step 1b."""
    from lingraft.steps.launch import launcher

    alone = {"isolated": True, "bears_failed_inputs": True, "otherwise": {}}
    inputs = {"run": run.path, "primary": primary.path, "blocks": blocks.path}
    found = launcher.run("paper.build_mini", inputs, {"out": mini.path}, **alone, recipe=recipe, arm=arm)
    metrics.metadata.update(found)


@step
def finetune(
    recipe: str,
    run: dsl.Input[dsl.Artifact],
    name: str,
    job: str,
    primary: dsl.Input[dsl.Model],
    text: dsl.Input[dsl.Dataset],
    task: dsl.Output[dsl.Model],
    metrics: dsl.Output[dsl.Metrics],
):
    """Finetune one of a primary's models on one task in the source language, with one seed."""
    from lingraft.steps.launch import launcher

    alone = {"isolated": True, "bears_failed_inputs": True, "otherwise": {}}
    inputs = {"run": run.path, "primary": primary.path, "text": text.path}
    values = {"recipe": recipe, "name": name, "job": job}
    metrics.metadata.update(launcher.run("paper.finetune", inputs, {"out": task.path}, **alone, **values))


@step
def judge_source(
    recipe: str,
    run: dsl.Input[dsl.Artifact],
    name: str,
    primary: dsl.Input[dsl.Model],
    text: dsl.Input[dsl.Dataset],
    tokenizer: dsl.Input[dsl.Artifact],
    blocks: dsl.Input[dsl.Dataset],
    tasks: dsl.Output[dsl.Model],
    evaluation: dsl.Output[dsl.Artifact],
    metrics: dsl.Output[dsl.Metrics],
    finetuned: dsl.Input[List[dsl.Model]] = None,  # noqa: UP006
):
    """Gather a primary's finetunings, and judge them in the source language."""
    from lingraft.steps.launch import launcher

    alone = {"isolated": True, "bears_failed_inputs": True, "otherwise": {}}
    inputs = {
        "run": run.path,
        "finetuned": [item.path for item in finetuned or ()],
        "primary": primary.path,
        "text": text.path,
        "tokenizer": tokenizer.path,
        "blocks": blocks.path,
    }
    outputs, values = {"tasks": tasks.path, "out": evaluation.path}, {"recipe": recipe, "name": name}
    metrics.metadata.update(launcher.run("paper.judge_source", inputs, outputs, **alone, **values))


@step
def initialise(
    recipe: str,
    run: dsl.Input[dsl.Artifact],
    name: str,
    language: str,
    primary: dsl.Input[dsl.Model],
    blocks: dsl.Input[dsl.Dataset],
    tokenizer: dsl.Input[dsl.Artifact],
    vectors: dsl.Input[dsl.Artifact],
    initial: dsl.Output[dsl.Model],
):
    """Write a language's embeddings at update 0 for one of the comparison's primaries."""
    from lingraft.steps.launch import launcher

    alone = {"isolated": True, "bears_failed_inputs": True}
    inputs = {
        "run": run.path,
        "primary": primary.path,
        "blocks": blocks.path,
        "tokenizer": tokenizer.path,
        "vectors": vectors.path,
    }
    values = {"recipe": recipe, "name": name, "language": language}
    launcher.run("paper.initialise", inputs, {"out": initial.path}, **alone, **values)


@step
def adapt(
    recipe: str,
    run: dsl.Input[dsl.Artifact],
    arm: str,
    language: str,
    primary: dsl.Input[dsl.Model],
    blocks: dsl.Input[dsl.Dataset],
    tokenizer: dsl.Input[dsl.Artifact],
    curve: dsl.Output[dsl.Model],
    metrics: dsl.Output[dsl.Metrics],
    initial: dsl.Input[dsl.Model] = None,
):
    """Learn a language's embeddings over a cut of the primary, and keep them along the way."""
    from lingraft.steps.launch import launcher

    alone = {"isolated": True, "bears_failed_inputs": True, "otherwise": {}}
    inputs = {
        "run": run.path,
        "primary": primary.path,
        "blocks": blocks.path,
        "tokenizer": tokenizer.path,
        "initial": [start.path for start in filter(None, [initial])],
    }
    values = {"recipe": recipe, "arm": arm, "language": language}
    metrics.metadata.update(launcher.run("paper.adapt", inputs, {"out": curve.path}, **alone, **values))


@step
def adapt_over_mini(
    recipe: str,
    run: dsl.Input[dsl.Artifact],
    arm: str,
    language: str,
    primary: dsl.Input[dsl.Model],
    blocks: dsl.Input[dsl.Dataset],
    tokenizer: dsl.Input[dsl.Artifact],
    mini: dsl.Input[dsl.Model],
    curve: dsl.Output[dsl.Model],
    metrics: dsl.Output[dsl.Metrics],
    initial: dsl.Input[dsl.Model] = None,
):
    """Learn a language's embeddings over the mini-model of step 1b, and keep them along the way."""
    from lingraft.steps.launch import launcher

    alone = {"isolated": True, "bears_failed_inputs": True, "otherwise": {}}
    inputs = {
        "run": run.path,
        "primary": primary.path,
        "mini": mini.path,
        "blocks": blocks.path,
        "tokenizer": tokenizer.path,
        "initial": [start.path for start in filter(None, [initial])],
    }
    values = {"recipe": recipe, "arm": arm, "language": language}
    metrics.metadata.update(launcher.run("paper.adapt", inputs, {"out": curve.path}, **alone, **values))


@step
def judge_language(
    recipe: str,
    run: dsl.Input[dsl.Artifact],
    arm: str,
    language: str,
    primary: dsl.Input[dsl.Model],
    tasks: dsl.Input[dsl.Model],
    curve: dsl.Input[dsl.Model],
    text: dsl.Input[dsl.Dataset],
    tokenizer: dsl.Input[dsl.Artifact],
    blocks: dsl.Input[dsl.Dataset],
    evaluation: dsl.Output[dsl.Artifact],
    metrics: dsl.Output[dsl.Metrics],
):
    """Swap every checkpoint of a language into the primary and all finetuned bodies, and judge them."""
    from lingraft.steps.launch import launcher

    alone = {"isolated": True, "bears_failed_inputs": True, "otherwise": {}}
    inputs = {
        "run": run.path,
        "primary": primary.path,
        "tasks": tasks.path,
        "curve": curve.path,
        "text": text.path,
        "tokenizer": tokenizer.path,
        "blocks": blocks.path,
    }
    values = {"recipe": recipe, "arm": arm, "language": language}
    metrics.metadata.update(launcher.run("paper.judge_language", inputs, {"out": evaluation.path}, **alone, **values))


@step
def gather(
    before: dsl.Input[dsl.Artifact],
    source: dsl.Input[dsl.Artifact],
    judged: dsl.Input[List[dsl.Artifact]],  # noqa: UP006
    results: dsl.Output[dsl.Artifact],
):
    """Put one arm's results, in the source language and all others, beside those of the arms before it."""
    from pathlib import Path

    from lingraft.steps import paper

    folders = [Path(item.path) for item in (before, source, *judged)]
    paper.gather(folders, Path(results.path))


@step
def write_report(
    recipe: str,
    run: dsl.Input[dsl.Artifact],
    results: dsl.Input[dsl.Artifact],
    report: dsl.Output[dsl.Artifact],
    page: dsl.Output[dsl.HTML],
):
    """Write tables and figures, and show their page in the KFP UI; closes the pipeline's tracking run."""
    from pathlib import Path

    from lingraft.steps import paper

    html = paper.report(recipe, Path(run.path), Path(results.path), Path(report.path))
    Path(page.path).write_text(html, encoding="utf-8")
