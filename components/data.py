"""Text to tokenizer to blocks, one language at a time."""

from kfp import dsl

from components.step import step


@step
def open_run(recipe: str, pipeline: str, run: dsl.Output[dsl.Artifact]):
    """Begin the tracking run that all steps of this pipeline run stand under.

    It is an artifact, because kfp.local gives a parameter that another step made the loop's item inside a loop.
    """
    from pathlib import Path

    from lingraft.steps import data

    data.open_run(recipe, pipeline, Path(run.path))


@step
def prepare_text(recipe: str, run: dsl.Input[dsl.Artifact], language: str, text: dsl.Output[dsl.Dataset]):
    """Read, split and write one language's text."""
    from pathlib import Path

    from lingraft.steps import data

    data.prepare_text(recipe, Path(run.path), language, Path(text.path))


@step
def train_tokenizer(
    recipe: str, run: dsl.Input[dsl.Artifact], text: dsl.Input[dsl.Dataset], tokenizer: dsl.Output[dsl.Artifact]
):
    """Train one language's SentencePiece tokenizer."""
    from pathlib import Path

    from lingraft.steps import data

    data.train_tokenizer(recipe, Path(run.path), Path(text.path), Path(tokenizer.path))


@step
def build_blocks(
    recipe: str,
    run: dsl.Input[dsl.Artifact],
    text: dsl.Input[dsl.Dataset],
    tokenizer: dsl.Input[dsl.Artifact],
    blocks: dsl.Output[dsl.Dataset],
):
    """Pack one language's text into blocks of token ids."""
    from pathlib import Path

    from lingraft.steps import data

    data.build_blocks(recipe, Path(run.path), Path(text.path), Path(tokenizer.path), Path(blocks.path))
