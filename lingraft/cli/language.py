"""Commands for a target language."""

from pathlib import Path
from typing import Annotated

import typer

from lingraft.cli.options import (
    BlocksOption,
    InitialOption,
    MiniOption,
    OutOption,
    PrimaryOption,
    RecipeOption,
    SourceEvaluationOption,
    TasksOption,
    TextOption,
    TokenizerOption,
    VectorsOption,
    load_recipe,
    print_artifact,
)

# What a command needs is imported by it, so that --help does not wait for torch.


STORAGE_VARIABLE = "LINGRAFT_SEARCH_STORAGE"
"""`lingraft.config.search.SEARCH_STORAGE`, whose module takes long to import."""


def initialise(
    recipe: RecipeOption,
    primary: PrimaryOption,
    tokenizer: TokenizerOption,
    out: OutOption,
    blocks: Annotated[
        Path | None,
        typer.Option(help="Blocks of the language, from `lingraft blocks`, for initialisation 'aligned'."),
    ] = None,
    vectors: VectorsOption = None,
) -> None:
    """Write one language's embeddings at update 0, as the recipe's adaptation.initialisation says.

    overlap needs the primary and the language's tokenizer alone. aligned also needs the language's blocks and the
    source's static vectors, unless the primary has no MLM head. The result is an embeddings artifact: `adapt` starts
    from it (--initial), `evaluate` takes the scores before training from it, and `export onnx` serves it as it is.
    """
    from lingraft.jobs.training import InitialisationJob

    job = InitialisationJob(
        recipe=load_recipe(recipe),
        primary=primary,
        tokenizer=tokenizer,
        blocks=blocks,
        source_vectors=vectors,
        out=out,
    )
    made = job.make()
    print_artifact(made)
    details = made.manifest.details
    print(f"{details['initialisation']}: {details['overlap']} of {details['vocabulary']} rows are the source's")


def adapt(
    recipe: RecipeOption,
    primary: PrimaryOption,
    blocks: BlocksOption,
    tokenizer: TokenizerOption,
    out: OutOption,
    depth: Annotated[
        int | None, typer.Option(help="Layers of the mini-model; the recipe's adaptation.depth if absent.")
    ] = None,
    mini: MiniOption = None,
    checkpoints: Annotated[
        Path | None, typer.Option(help="Folder for the embeddings along the way, at the updates [adaptation] names.")
    ] = None,
    initial: InitialOption = None,
) -> None:
    """Learn one language's embeddings over the bottom layers, body frozen (step 2)."""
    from lingraft.jobs.training import AdaptationJob

    settings = load_recipe(recipe)
    job = AdaptationJob(
        recipe=settings,
        depth=settings.adaptation.depth if depth is None else depth,
        primary=primary,
        blocks=blocks,
        tokenizer=tokenizer,
        mini=mini,
        initial=initial,
        checkpoints=checkpoints,
        out=out,
    )
    print_artifact(job.make())


def search_depth(
    recipe: RecipeOption,
    primary: PrimaryOption,
    blocks: BlocksOption,
    tokenizer: TokenizerOption,
    out: OutOption,
    storage: Annotated[
        str | None,
        typer.Option(
            envvar=STORAGE_VARIABLE,
            help="Optuna storage, such as sqlite:///optuna.db; a search goes on from there, and whoever runs the same "
            "with another --out shares its trials.",
        ),
    ] = None,
    source_blocks: Annotated[
        Path | None, typer.Option(help="Blocks of the source language, where the system builds mini-models (MINIPOST).")
    ] = None,
    source_evaluation: Annotated[
        Path | None,
        typer.Option(help="From `lingraft evaluate-source`, where search.metric is 'alignment'."),
    ] = None,
    text: Annotated[
        Path | None,
        typer.Option(
            help="Text artifact of the language, where search.metric is 'alignment'; without it, shared pieces are "
            "compared instead of parallel paragraphs."
        ),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(help="Folder of the trials' checkpoints, which workers share; <out>.training if absent."),
    ] = None,
    initial: InitialOption = None,
) -> None:
    """Choose a language's mini-model depth by short adaptations at equal compute."""
    from lingraft.search import Inputs, search
    from lingraft.stages.results import load_search

    inputs = Inputs(
        primary=primary,
        blocks=blocks,
        tokenizer=tokenizer,
        source_blocks=source_blocks,
        initial=initial,
        source_evaluation=source_evaluation,
        text=text,
    )
    print_artifact(search(recipe=load_recipe(recipe), inputs=inputs, storage=storage, out=out, state=state))
    found = load_search(out)
    print(f"depth {found.chosen}: {found.reason}")


def evaluate(
    recipe: RecipeOption,
    primary: PrimaryOption,
    embeddings: Annotated[Path, typer.Option(help="Embeddings artifact, from `lingraft adapt`.")],
    text: TextOption,
    blocks: BlocksOption,
    out: OutOption,
    task: TasksOption = None,
    mini: MiniOption = None,
    initial: InitialOption = None,
    source_evaluation: SourceEvaluationOption = None,
) -> None:
    """Swap a language's embeddings in, and judge masked and zero-shot accuracy on its test split (step 4)."""
    from lingraft.jobs.evaluation import LanguageEvaluationJob

    job = LanguageEvaluationJob(
        recipe=load_recipe(recipe),
        primary=primary,
        embeddings=embeddings,
        tasks=tuple(task or ()),
        text=text,
        blocks=blocks,
        mini=mini,
        initial=initial,
        source_evaluation=source_evaluation,
        out=out,
    )
    print_artifact(job.make())
    print((out / "result.json").read_text())
