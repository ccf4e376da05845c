"""Commands for the source language, once a primary; those for text serve every language."""

from pathlib import Path
from typing import Annotated

import typer

from lingraft.cli.options import (
    BlocksOption,
    LanguageOption,
    OutOption,
    PrimaryOption,
    RecipeOption,
    TasksOption,
    TextOption,
    TokenizerOption,
    load_recipe,
    print_artifact,
)

# What a command needs is imported by it, so that --help does not wait for torch.


def import_primary(
    source: Annotated[
        str,
        typer.Option(
            "--from",
            help="Folder of a RoBERTa, XLM-R, CamemBERT, BERT or ModernBERT checkpoint, or of an embedding model of "
            "sentence-transformers on one; or its hub id.",
        ),
    ],
    language: Annotated[str, typer.Option("--language", help="Language of the checkpoint, as a tag such as 'en'.")],
    out: OutOption,
    revision: Annotated[
        str | None, typer.Option(help="Branch, tag or commit of the hub id; its main one if absent.")
    ] = None,
    block_tokens: Annotated[
        int | None,
        typer.Option(help="Tokens of the longest input, and of a block; the checkpoint's if absent."),
    ] = None,
    task_out: Annotated[
        Path | None, typer.Option(help="New folder for an embedding model's task; <out>-retrieval if absent.")
    ] = None,
) -> None:
    """Turn a checkpoint from Hugging Face into a primary (safetensors only).

    An embedding model becomes a primary and a task of kind 'retrieval' on it.
    """
    from lingraft.data.languages import warn_of_unknown_codes
    from lingraft.huggingface.importing import import_hf

    warn_of_unknown_codes([language])
    made = import_hf(
        source=source,
        out=out,
        language=language,
        revision=revision,
        block_tokens=block_tokens,
        task_out=task_out,
    )
    for each in (made.primary, made.task):
        if each:
            print_artifact(each)


def text(
    recipe: RecipeOption,
    language: LanguageOption,
    out: OutOption,
    folder: Annotated[
        Path | None, typer.Option("--text", help="Text of your own, in place of the recipe's: one file or folder each.")
    ] = None,
) -> None:
    """Read one language's text, clean it where the recipe asks for it, and split it into train, dev and test."""
    from lingraft.data.languages import warn_of_unknown_codes
    from lingraft.jobs.data import TextJob

    settings = load_recipe(recipe)
    warn_of_unknown_codes([language])
    if folder:
        settings = settings.with_folder(folder)
    made = TextJob(recipe=settings, language=language, out=out).make()
    print_artifact(made)
    for reason, count in made.manifest.details["dropped"].items():
        print(f"left out: {count:,} of {reason}")


def tokenize(
    recipe: RecipeOption,
    text: TextOption,
    out: OutOption,
    source: Annotated[
        Path | None,
        typer.Option(help="Primary or tokenizer of the source language, for a recipe with tokenizer.borrow = true."),
    ] = None,
) -> None:
    """Train one language's SentencePiece tokenizer."""
    from lingraft.jobs.data import TokenizerJob

    print_artifact(TokenizerJob(recipe=load_recipe(recipe), text=text, source=source, out=out).make())


def build_blocks(recipe: RecipeOption, text: TextOption, tokenizer: TokenizerOption, out: OutOption) -> None:
    """Pack one language's text into fixed-length blocks of token ids."""
    from lingraft.jobs.data import BlocksJob

    print_artifact(BlocksJob(recipe=load_recipe(recipe), text=text, tokenizer=tokenizer, out=out).make())


def vectors(recipe: RecipeOption, blocks: BlocksOption, tokenizer: TokenizerOption, out: OutOption) -> None:
    """Compute static vectors of a language's pieces from its blocks: what occurs beside what.

    `lingraft initialise` needs those of the source language where adaptation.initialisation is aligned; it computes
    the new language's itself.
    """
    from lingraft.jobs.training import VectorsJob

    print_artifact(VectorsJob(recipe=load_recipe(recipe), blocks=blocks, tokenizer=tokenizer, out=out).make())


def pretrain(recipe: RecipeOption, blocks: BlocksOption, tokenizer: TokenizerOption, out: OutOption) -> None:
    """Train the primary with all its MLM heads in the source language (step 1 of the paper)."""
    from lingraft.jobs.training import PretrainingJob

    print_artifact(PretrainingJob(recipe=load_recipe(recipe), blocks=blocks, tokenizer=tokenizer, out=out).make())


def mini(
    recipe: RecipeOption,
    primary: PrimaryOption,
    blocks: BlocksOption,
    out: OutOption,
    depth: Annotated[
        int | None,
        typer.Option(
            help="Layers that the mini-model shares with the primary; the recipe's adaptation.depth if absent."
        ),
    ] = None,
) -> None:
    """Build MINIPOST's mini-model: fresh layers between a primary's bottom and its head (step 1b)."""
    from lingraft.jobs.training import MiniBuildingJob

    settings = load_recipe(recipe)
    wanted = settings if depth is None else settings.over(depth)
    print_artifact(MiniBuildingJob(recipe=wanted, primary=primary, blocks=blocks, out=out).make())


def finetune(
    recipe: RecipeOption,
    primary: PrimaryOption,
    out: OutOption,
    text: Annotated[Path | None, typer.Option(help="From `lingraft text`, for a task of kind 'documents'.")] = None,
    task: Annotated[str | None, typer.Option(help="Name of the task, if the recipe has several.")] = None,
    seed: Annotated[
        int, typer.Option(help="Seed of the new head and the order of examples; repeat with others for a mean.")
    ] = 1,
) -> None:
    """Finetune the body on a task of the recipe in the source language, token embeddings frozen (step 3)."""
    from lingraft.jobs.training import FinetuningJob

    settings = load_recipe(recipe)
    name = settings.task(task).name
    print_artifact(FinetuningJob(recipe=settings, task=name, seed=seed, primary=primary, text=text, out=out).make())


def evaluate_source(
    recipe: RecipeOption,
    primary: PrimaryOption,
    text: TextOption,
    blocks: BlocksOption,
    out: OutOption,
    task: TasksOption = None,
) -> None:
    """Judge the primary and its tasks on the source language's test split."""
    from lingraft.jobs.evaluation import SourceEvaluationJob

    job = SourceEvaluationJob(
        recipe=load_recipe(recipe), primary=primary, tasks=tuple(task or ()), text=text, blocks=blocks, out=out
    )
    print_artifact(job.make())
    print((out / "result.json").read_text())
