"""`python -m benchmarks.encoder_speed`: our encoder against Hugging Face's RobertaForMaskedLM, at equal work.

Both train the same shape on the same batches with the same optimizer and number format, in turns, in one process;
the peer computes its loss with its own code path, as a user would run it. Printed is tokens per second, and the ratio.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from transformers import RobertaConfig, RobertaForMaskedLM

from lingraft import masked_lm
from lingraft.encoder import Encoder
from lingraft.masking import Maskable, mask
from lingraft.model_config import EncoderShape
from lingraft.precision import device, precise
from lingraft.tokenizer import OWN_IDS

VOCABULARY, MASK_RATE, IGNORED = 8000, 0.15, -100


def main() -> None:
    """Measure, and print one line a system and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--tokens", type=int, default=128, help="tokens of a block")
    parser.add_argument("--blocks", type=int, default=16, help="blocks of a batch")
    parser.add_argument("--rounds", type=int, default=10, help="steps of each, in turns")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="bf16")
    settings = parser.parse_args()
    batch_BT = torch.randint(5, VOCABULARY, (settings.blocks, settings.tokens), device=device())
    steps = {"lingraft": _ours(settings, batch_BT), "transformers": _peer(settings, batch_BT)}
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for step in steps.values():
        step()
    for _ in range(settings.rounds):
        for name, step in steps.items():
            started = time.perf_counter()
            step()
            seconds[name].append(time.perf_counter() - started)
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    for name, median in medians.items():
        print(f"{name:<13} {batch_BT.numel() / median:9,.0f} tokens/s  ({median * 1000:.0f} ms a step)")
    ratios = [peer / ours for ours, peer in zip(seconds["lingraft"], seconds["transformers"], strict=True)]
    shape = f"width {settings.width}, {settings.layers} layers, {settings.tokens} tokens, {settings.precision}"
    print(f"lingraft is {statistics.median(ratios):.2f} times as fast ({shape}, median of {settings.rounds} pairs)")


def _ours(settings: argparse.Namespace, batch_BT: torch.Tensor) -> Callable[[], None]:
    shape = EncoderShape(
        width=settings.width,
        layers=settings.layers,
        attention_heads=settings.width // 64,
        mlm_heads=(settings.layers,),
        block_tokens=settings.tokens,
    )
    encoder = Encoder(shape, VOCABULARY).to(device())
    loss_of = masked_lm.loss(encoder, encoder.depths, MASK_RATE, torch.Generator(device()).manual_seed(1))
    return _step(encoder, lambda: loss_of(batch_BT), settings.precision)


def _peer(settings: argparse.Namespace, batch_BT: torch.Tensor) -> Callable[[], None]:
    config = RobertaConfig(
        vocab_size=VOCABULARY,
        hidden_size=settings.width,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.width // 64,
        intermediate_size=4 * settings.width,
        max_position_embeddings=settings.tokens + 2,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        attn_implementation="sdpa",
    )
    model = RobertaForMaskedLM(config).to(device())
    generator = torch.Generator(device()).manual_seed(1)
    pieces = Maskable.of(VOCABULARY, OWN_IDS, device())

    def loss_of() -> torch.Tensor:
        masked = mask(batch_BT, MASK_RATE, pieces, generator)
        labels_BT = torch.full_like(batch_BT, IGNORED).flatten()
        labels_BT[masked.positions_M] = masked.targets_M
        return model(input_ids=masked.tokens_BT, labels=labels_BT.view_as(batch_BT)).loss

    return _step(model, loss_of, settings.precision)


def _step(model: torch.nn.Module, loss_of: Callable[[], torch.Tensor], number_format: str) -> Callable[[], None]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    context = precise("bf16" if number_format == "bf16" else "fp32")
    model.train()

    def step() -> None:
        with context():
            loss = loss_of()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()

    return step


if __name__ == "__main__":
    main()
