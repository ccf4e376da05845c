"""Commands that hand models and results to others: export, serving, reports, and checks."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from lingraft.cli.options import EmbeddingsOption, OutOption, PrimaryOption, print_artifact
from lingraft.errors import ExportError

# What a command needs is imported by it, so that --help does not wait for torch.


EXPORT_HELP = "Hand models on: to ONNX Runtime and the endpoint, or to transformers."


def export_onnx(
    primary: PrimaryOption,
    embeddings: EmbeddingsOption,
    out: OutOption,
    task: Annotated[
        Path | None,
        typer.Option(
            help="From `lingraft finetune`. Absent: the primary itself: fill-mask, or vectors of an embedding model."
        ),
    ] = None,
    precision: Annotated[
        list[str] | None, typer.Option(help="Further precision of the body beside fp32: fp16 for GPUs, int8 for CPUs.")
    ] = None,
    tables: Annotated[
        Literal["float32", "float16", "int8"],
        typer.Option(metavar="FORMAT", help="Number format of the languages' tables: float32, float16 or int8."),
    ] = "float32",
    judge: Annotated[
        bool, typer.Option("--judge", help="Judge each language and precision on test examples, by the metric.")
    ] = False,
    text: Annotated[
        list[Path] | None, typer.Option(help="Text of a language to judge a task of kind 'documents' on; once each.")
    ] = None,
    blocks: Annotated[
        list[Path] | None, typer.Option(help="Blocks of a language to judge the primary on; once each.")
    ] = None,
    alone: Annotated[
        bool,
        typer.Option(
            "--standalone", help="Write a model per language that plain ONNX Runtime opens; all share one body."
        ),
    ] = False,
) -> None:
    """Export one task body with the tables of many languages to ONNX, and check parity with PyTorch."""
    from lingraft.export import evaluation_examples, export_bundle, export_standalone, sort_precisions

    chosen = sort_precisions(precision or ())
    if alone:
        of_bundles = {"--judge": judge, "--text": text, "--blocks": blocks}
        if unused := ", ".join(name for name, given in of_bundles.items() if given):
            raise ExportError(
                f"standalone models are written without {unused}, which only bundles take. Leave it out, or leave "
                "--standalone out to write a bundle."
            )
        if len(precision or ()) > 1:
            raise ExportError(f"a standalone model has one precision, not {chosen}. Write each into its own folder.")
        for language, difference in export_standalone(
            primary=primary, task=task, embeddings=embeddings, out=out, precision=chosen[-1], tables=tables
        ).items():
            print(f"{out / language}.onnx: outputs equal PyTorch's within {difference:.1e}")
        return
    examples = evaluation_examples(task, embeddings, text or (), blocks or ()) if judge else {}
    print_artifact(
        export_bundle(
            primary=primary,
            task=task,
            embeddings=embeddings,
            out=out,
            precisions=chosen,
            tables=tables,
            examples=examples,
        )
    )


def export_add(
    bundle: Annotated[Path, typer.Argument(help="Bundle artifact, from `lingraft export onnx`.")],
    embeddings: Annotated[Path, typer.Option(help="From `lingraft adapt`.")],
    out: OutOption,
) -> None:
    """Write a bundle anew with one language more, or with another version of one; both share the body's file."""
    from lingraft.export import add_to_bundle

    print_artifact(add_to_bundle(bundle, embeddings, out))


def export_hf(
    primary: PrimaryOption,
    out: Annotated[Path, typer.Option(help="Folder of the checkpoint; must not hold anything yet.")],
    embeddings: Annotated[
        Path | None, typer.Option(help="From `lingraft adapt`; the source language's own if absent.")
    ] = None,
    task: Annotated[Path | None, typer.Option(help="From `lingraft finetune`; the MLM head if absent.")] = None,
    evaluation: Annotated[
        Path | None, typer.Option(help="From `lingraft evaluate`; its scores go into the model card.")
    ] = None,
) -> None:
    """Write one language of one task as a checkpoint that transformers' Auto classes load, with a model card.

    sentence-transformers loads the folder of a task of kind 'retrieval'.
    """
    from lingraft.huggingface.export import export_hf as write

    made = write(primary, out, embeddings=embeddings, task=task, evaluation=evaluation)
    print(f"{made.folder}: {made.loader}, outputs equal ours within {made.difference:.1e} in float64")


SERVE_CONTEXT = {"allow_extra_args": True, "ignore_unknown_options": True}
"""`python -m lingraft.serving` reads the rest, and has the help."""


def serve(context: typer.Context) -> None:
    """Serve bundles of many tasks and languages: text in, answers out."""
    from lingraft.serving.command import run

    run(context.args, "lingraft serve")


def report(
    source: Annotated[Path, typer.Option(help="From `lingraft evaluate-source`.")],
    evaluation: Annotated[list[Path], typer.Option(help="From `lingraft evaluate`; once a language and depth.")],
    out: OutOption,
) -> None:
    """Write the report as one HTML page, and print its tables."""
    from lingraft.reports.run.page import write
    from lingraft.reports.run.records import RunRecords
    from lingraft.reports.run.tables import as_text
    from lingraft.stages.results import load_language, load_source

    records = RunRecords.of(load_source(source), [load_language(folder) for folder in evaluation])
    print_artifact(write(records, out))
    print(as_text(records))
