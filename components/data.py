"""Components from text to tokenizer to blocks, for one language at a time."""

from kfp import dsl

from components.step import step


@step
def check_inputs(recipe: str, pipeline: str, languages: list, drop_languages: list):
    """Check text, labels, task examples, sizes, outputs and languages to drop before anything is computed."""
    from lingraft.steps import data

    data.check_inputs(recipe, pipeline, languages, drop_languages)


@step
def open_run(recipe: str, pipeline: str, run: dsl.Output[dsl.Artifact]):
    """Begin the tracking run that all steps of this pipeline run stand under.

    It is an artifact, because kfp.local gives a parameter that another step made the loop's item inside a loop.
    """
    from pathlib import Path

    from lingraft.steps import data

    data.open_run(recipe, pipeline, Path(run.path))


@step
def prepare_text(
    recipe: str, run: dsl.Input[dsl.Artifact], language: str, text: dsl.Output[dsl.Dataset], isolated: bool = False
):
    """Read, split and write one language's text."""
    from lingraft.jobs.job import TextJob
    from lingraft.steps.launch import launcher

    launcher.run(TextJob(recipe=recipe, language=language, out=text.path), run.path, isolated)


@step
def train_tokenizer(
    recipe: str,
    run: dsl.Input[dsl.Artifact],
    text: dsl.Input[dsl.Dataset],
    tokenizer: dsl.Output[dsl.Artifact],
    isolated: bool = False,
):
    """Train one language's SentencePiece tokenizer."""
    from lingraft.jobs.job import TokenizerJob
    from lingraft.steps.launch import launcher

    launcher.run(TokenizerJob(recipe=recipe, text=text.path, out=tokenizer.path), run.path, isolated)


@step
def build_blocks(
    recipe: str,
    run: dsl.Input[dsl.Artifact],
    text: dsl.Input[dsl.Dataset],
    tokenizer: dsl.Input[dsl.Artifact],
    blocks: dsl.Output[dsl.Dataset],
    isolated: bool = False,
):
    """Pack one language's text into blocks of token ids."""
    from lingraft.jobs.job import BlocksJob
    from lingraft.steps.launch import launcher

    job = BlocksJob(recipe=recipe, text=text.path, tokenizer=tokenizer.path, out=blocks.path)
    launcher.run(job, run.path, isolated)
