"""A writer of every kind, of artifacts and exports, on disks that fill up at every possible place.

`everything`, called in a process of its own, lets each writer write in peace, then again with the kernel refusing files
beyond one size after another, and returns what each attempt came to.
"""

import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from lingraft import export
from lingraft.artifacts.cache import cached
from lingraft.artifacts.manifest import Kind
from lingraft.data import text
from lingraft.huggingface.export import export_hf
from lingraft.huggingface.importing import import_hf
from lingraft.reports.run.page import write as write_report
from lingraft.reports.run.records import RunRecords
from lingraft.stages import evaluate
from lingraft.stages.pretrain import pretrain as pretrain_stage
from lingraft.stages.results import load_language, load_source
from lingraft.training.schedule import ignore_metrics
from tests.full_disk import full_disk
from tests.huggingface.checkpoints import make_checkpoint
from tests.tiny import Tiny
from tests.workshop import Workshop, changed


@dataclass
class Attempt:
    largest_file: int
    """Bytes that a file could have."""
    error: str
    message: str
    left: list[str]
    """What lies beside and in place of the output."""


@dataclass
class Given:
    shop: Workshop
    tiny: Tiny
    checkpoint: Path
    source: Path
    language: Path

    @classmethod
    def make(cls, folder: Path) -> Self:
        shop = Workshop.shared()
        recipe = shop.recipe.model_copy(update={"search": None})
        for section in ("pretraining", "adaptation"):
            recipe = changed(recipe, section, steps=2, warmup_steps=0)
        short = Workshop(
            recipe, shop.texts, shop.tokenizers, shop.blocks, shop.primary, shop.embeddings, shop.tasks, {}
        )
        given = cls(
            short,
            Tiny.make(recipe, shop.tokenizers, folder / "tiny"),
            folder / "checkpoint",
            folder / "evaluation" / "source",
            folder / "evaluation" / "de",
        )
        make_checkpoint(given.checkpoint, "roberta")
        evaluate_source(given, given.source)
        evaluate_language(given, given.language)
        return given


def prepare_text(given: Given, out: Path) -> None:
    text.prepare(given.shop.recipe, "de", out)


def pretrain(given: Given, out: Path) -> None:
    pretrain_stage(given.shop.recipe, given.shop.blocks["en"], given.shop.tokenizers["en"], out, ignore_metrics)


def evaluate_source(given: Given, out: Path) -> None:
    shop = given.shop
    evaluate.evaluate_source(
        shop.recipe, shop.primary, list(shop.tasks.values()), shop.texts["en"], shop.blocks["en"], out
    )


def evaluate_language(given: Given, out: Path) -> None:
    shop, tasks = given.shop, list(given.shop.tasks.values())
    folders = shop.primary, shop.embeddings["de"], tasks, shop.texts["de"], shop.blocks["de"]
    evaluate.evaluate_language(shop.recipe, *folders, out)


def export_bundle(given: Given, out: Path) -> None:
    export.export_bundle(given.tiny.primary, given.tiny.task, list(given.tiny.embeddings.values()), out)


def export_for_transformers(given: Given, out: Path) -> None:
    export_hf(given.shop.primary, out, given.shop.embeddings["de"])


def import_from_transformers(given: Given, out: Path) -> None:
    import_hf(str(given.checkpoint), out, "en")


def report(given: Given, out: Path) -> None:
    judged = load_source(given.source), [load_language(given.language)]
    write_report(RunRecords.of(*judged), out)


def make_once(given: Given, out: Path) -> None:
    with cached(out, Kind.EMBEDDINGS, {"setting": 1}) as found:
        assert found is None
        given.shop.adapt("de", 1, out)


WRITERS: dict[str, Callable[[Given, Path], None]] = {
    writer.__name__: writer
    for writer in (
        prepare_text,
        pretrain,
        evaluate_source,
        evaluate_language,
        export_bundle,
        export_for_transformers,
        import_from_transformers,
        report,
        make_once,
    )
}


def attempts(writer: Callable[[Given, Path], None], given: Given, folder: Path) -> Iterator[Attempt]:
    """Write in peace, then with all and with the largest files too large; in peace after each."""
    writer(given, folder / "peace" / "out")
    sizes = sorted({file.stat().st_size for file in (folder / "peace").rglob("*") if file.is_file()} - {0})
    for largest in sorted({0, sizes[-1] - 1}):
        place = folder / f"{largest}"
        place.mkdir()
        error: Exception | None = None
        try:
            with full_disk(largest):
                writer(given, place / "out")
        except Exception as caught:  # noqa: BLE001  whatever it is, the test judges it
            error = caught
        left = sorted(path.relative_to(place).as_posix() for path in place.rglob("*"))
        writer(given, place / "out")
        yield Attempt(largest, type(error).__name__, str(error), left)


def everything(folder: Path) -> dict[str, list[Attempt]]:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    given = Given.make(folder / "given")
    return {name: [*attempts(writer, given, folder / name)] for name, writer in WRITERS.items()}
