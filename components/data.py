"""Components from text to tokenizer to blocks, for one language at a time."""

from kfp import dsl

from components.step import step


@step
def check_inputs(
    settings: str,
    file: str,
    pipeline: str,
    languages: list,
    drop_languages: list,
    recipe: dsl.Output[dsl.Artifact],
):
    """Check text, labels, task examples, pairs, outputs and languages to drop before anything is computed.

    The other steps read the recipe from its output, whose metadata are the recipe's file and digest.
    """
    from pathlib import Path

    from lingraft.steps import data

    facts = data.check_inputs(
        recipe=settings,
        file=file,
        pipeline=pipeline,
        languages=languages,
        drop_languages=drop_languages,
        out=Path(recipe.path),
    )
    recipe.metadata.update(facts)


@step
def open_run(recipe: dsl.Input[dsl.Artifact], pipeline: str, kfp_run: str, run: dsl.Output[dsl.Artifact]):
    """Begin the tracking run that all steps of this pipeline run stand under.

    It is an artifact, because kfp.local gives a parameter that another step made the loop's item inside a loop.
    """
    from pathlib import Path

    from lingraft.steps import data

    data.open_run(Path(recipe.path).read_text(), pipeline, Path(run.path), kfp_run)


@step
def close_run(project: str, kfp_run: str, status: dsl.PipelineTaskFinalStatus):
    """End the tracking runs that an aborted pipeline run has left open; those that its steps have ended stay.

    Nothing depends on the status, but it is the input by which `kfp.local` knows the step of an exit handler.
    """
    from lingraft.steps import data

    data.close_run(project, kfp_run)


@step
def prepare_text(
    recipe: dsl.Input[dsl.Artifact],
    run: dsl.Input[dsl.Artifact],
    language: str,
    text: dsl.Output[dsl.Dataset],
    isolated: bool = False,
):
    """Read, split and write one language's text."""
    from pathlib import Path

    from lingraft.jobs.data import TextJob
    from lingraft.steps import runner

    runner.run(TextJob(recipe=Path(recipe.path).read_text(), language=language, out=text.path), run.path, isolated)


@step
def train_tokenizer(
    recipe: dsl.Input[dsl.Artifact],
    run: dsl.Input[dsl.Artifact],
    text: dsl.Input[dsl.Dataset],
    tokenizer: dsl.Output[dsl.Artifact],
    source: dsl.Input[dsl.Model] = None,
    isolated: bool = False,
):
    """Train one language's SentencePiece tokenizer, which borrows pieces of a source if one is given."""
    from pathlib import Path

    from lingraft.jobs.data import TokenizerJob
    from lingraft.steps import runner

    job = TokenizerJob(
        recipe=Path(recipe.path).read_text(),
        text=text.path,
        out=tokenizer.path,
        source=next((given.path for given in filter(None, [source])), None),
    )
    runner.run(job, run.path, isolated)


@step
def build_blocks(
    recipe: dsl.Input[dsl.Artifact],
    run: dsl.Input[dsl.Artifact],
    text: dsl.Input[dsl.Dataset],
    tokenizer: dsl.Input[dsl.Artifact],
    blocks: dsl.Output[dsl.Dataset],
    isolated: bool = False,
):
    """Pack one language's text into blocks of token ids."""
    from pathlib import Path

    from lingraft.jobs.data import BlocksJob
    from lingraft.steps import runner

    job = BlocksJob(recipe=Path(recipe.path).read_text(), text=text.path, tokenizer=tokenizer.path, out=blocks.path)
    runner.run(job, run.path, isolated)
