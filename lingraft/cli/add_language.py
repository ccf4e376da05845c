"""The command `lingraft add-language`, which runs all stages of a new language."""

from pathlib import Path
from typing import Annotated

import typer

from lingraft.cli.options import MiniOption, PrimaryOption, SourceEvaluationOption, TasksOption, VectorsOption

# What the command needs is imported by it, so that --help does not wait for torch.


def add_language(
    primary: PrimaryOption,
    text: Annotated[
        list[Path],
        typer.Option(
            "--text",
            help="Files of the language, or folders of files: .txt or .jsonl, plain or followed by .gz, .xz or .zst.",
        ),
    ],
    language: Annotated[str, typer.Option("--lang", help="Tag of the language to add, such as 'de' or 'pt-BR'.")],
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of all results, named as the language if absent; what it has already is not redone."),
    ] = None,
    more_text: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILES", help="More of the language's text, so that --text *.txt works."),
    ] = None,
    task: TasksOption = None,
    mini: MiniOption = None,
    source_evaluation: SourceEvaluationOption = None,
    recipe: Annotated[
        Path | None,
        typer.Option(help="The primary's recipe, for settings that no option names. Absent: by primary and text."),
    ] = None,
    depth: Annotated[
        int | None,
        typer.Option(help="Layers of the mini-model. Absent: the recipe's, else the primary's shallowest head."),
    ] = None,
    vocabulary: Annotated[
        int | None,
        typer.Option(help="Pieces. Absent: the recipe's, else the primary's, 50,000 and the text's limit at most."),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="Updates. Absent: the recipe's, else ten times the text, 500 to 125,000.")
    ] = None,
    batch: Annotated[int | None, typer.Option(help="Blocks in one update. Absent: the recipe's, else 32.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Its peak. Absent: the recipe's, else 0.002.")] = None,
    seed: Annotated[
        int | None, typer.Option(help="Of initial rows, order of text, and masks. Absent: the recipe's, else 1.")
    ] = None,
    vectors: VectorsOption = None,
) -> None:
    """Add a language to a primary in one resumable command: text to swapped, judged and exported model.

    A command that was stopped goes on with the stage that it was at.
    """
    from lingraft.new_language.recipe import Wanted
    from lingraft.new_language.run import add_language as run

    made = run(
        primary=primary,
        text=[*text, *(more_text or [])],
        language=language,
        out=out or Path(language),
        tasks=task or [],
        mini=mini,
        recipe=recipe,
        wanted=Wanted(
            depth=depth,
            vocabulary=vocabulary,
            steps=steps,
            batch_blocks=batch,
            learning_rate=learning_rate,
            seed=seed,
        ),
        vectors=vectors,
        source_evaluation=source_evaluation,
    )
    print(made.summary())
