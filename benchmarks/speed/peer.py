"""The peers: `transformers.Trainer` with run_mlm's and run_glue's recipes (collators and loops), and a plain loop."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import DataLoader
from transformers import (
    AutoConfig,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    DataCollatorForLanguageModeling,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
    default_data_collator,
)

from benchmarks.speed.cells import CLIP_NORM, LABELS, LEARNING_RATE, MASK_RATE, WEIGHT_DECAY, Cell, Shape, Training
from benchmarks.speed.orders import Orders
from benchmarks.speed.settings import Settings
from lingraft.config.systems import TrainedPart
from lingraft.data.tokenizer.pieces import SpecialIds
from lingraft.data.tokenizer.tokenizer import DEFAULT_SPECIAL_IDS
from lingraft.huggingface.model import hf_config
from lingraft.model.encoder import Encoder

Row = dict[str, Any]
"""An example, by the names of what a model takes."""


class Ordered(TrainerCallback):  # type: ignore[misc]
    """Runs Trainer's own loop as many steps at a time as it is told to."""

    def __init__(self, orders: Orders) -> None:
        self.orders, self.left = orders, 0

    def on_train_begin(self, _: TrainingArguments, __: TrainerState, control: TrainerControl, **___: Any) -> None:
        """Wait for the first order."""
        self._listen(control)

    def on_step_end(self, _: TrainingArguments, __: TrainerState, control: TrainerControl, **___: Any) -> None:
        """Count a step, and wait for the next order after the last."""
        self.left -= 1
        if not self.left:
            self.orders.done()
            self._listen(control)

    def _listen(self, control: TrainerControl) -> None:
        self.left = self.orders.wait()
        control.should_training_stop = not self.left


def serve(cell: Cell, settings: Settings, blocks_NT: Tensor, orders: Orders, folder: Path) -> None:
    """Train as told, to the end of the orders."""
    if settings.plain_loop:
        _train_plainly(cell, settings, blocks_NT, orders)
        return
    arguments = TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=cell.shape.blocks,
        max_steps=1_000_000,
        learning_rate=LEARNING_RATE,
        weight_decay=WEIGHT_DECAY,
        max_grad_norm=CLIP_NORM,
        bf16=cell.format == "bf16",
        optim=settings.optim,
        torch_compile=settings.compiled,
        dataloader_num_workers=settings.loader_workers,
        dataloader_persistent_workers=settings.loader_workers > 0,
        use_cpu=not torch.cuda.is_available(),
        logging_strategy="no",
        logging_nan_inf_filter=False,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    trainer = Trainer(
        model=model(cell, settings.attention),
        args=arguments,
        train_dataset=pairs(blocks_NT) if cell.training is Training.FINETUNING else rows(blocks_NT),
        data_collator=collator(cell),
        callbacks=[Ordered(orders)],
    )
    trainer.train()


def _train_plainly(cell: Cell, settings: Settings, blocks_NT: Tensor, orders: Orders) -> None:
    """Train in a loop such as one writes over transformers' model, with logits at masked places only."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    net = model(cell, settings.attention).to(device)
    trained = [each for each in net.parameters() if each.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY, fused=True)
    batches = _endless(DataLoader(rows(blocks_NT), cell.shape.blocks, shuffle=True, collate_fn=collator(cell)))
    while steps := orders.wait():
        for _ in range(steps):
            batch = {name: value.to(device) for name, value in next(batches).items()}
            with torch.autocast(device, torch.bfloat16, enabled=cell.format == "bf16"):
                masked_BT = batch["labels"] != -100  # the collator's label of all other places
                hidden_MD = net.base_model(batch["input_ids"]).last_hidden_state[masked_BT]
                head = net.lm_head if hasattr(net, "lm_head") else torch.nn.Sequential(net.head, net.decoder)
                loss = F.cross_entropy(head(hidden_MD), batch["labels"][masked_BT])
            loss.backward()
            torch.nn.utils.clip_grad_norm_(trained, CLIP_NORM)
            optimizer.step()
            optimizer.zero_grad()
        orders.done()


def _endless(loader: DataLoader[Row]) -> Iterator[dict[str, Tensor]]:
    while True:
        yield from loader


def model(cell: Cell, attention: str) -> PreTrainedModel:
    """RoBERTa or ModernBERT of the cell's shape under the stage's head; what the stage does not train is frozen."""
    step = cell.training.step
    auto = AutoModelForSequenceClassification if cell.training is Training.FINETUNING else AutoModelForMaskedLM
    made = auto.from_config(config(cell), attn_implementation=attention)
    if cell.training is Training.FINETUNING:
        made.get_input_embeddings().requires_grad_(False)
        return made
    made.requires_grad_(step.trained is TrainedPart.EVERYTHING)
    if step.trained is TrainedPart.FRESH_LAYERS:
        layers = made.model.layers if cell.shape.encoder.family.pre_norm else made.roberta.encoder.layer
        layers[-step.fresh_layers :].requires_grad_(True)
    if step.trained is TrainedPart.EMBEDDINGS:
        made.get_input_embeddings().requires_grad_(True)
        made.get_output_embeddings().requires_grad_(True)
    return made


def config(cell: Cell) -> PreTrainedConfig:
    """Configuration of the cell's shape, without dropout."""
    shape, layers = cell.shape, cell.training.step.layers
    if shape.encoder.family.pre_norm:
        with torch.device("meta"):
            encoder = Encoder(shape.encoder.cut(layers, (layers,)), shape.vocabulary)
        return AutoConfig.for_model(**hf_config(encoder, "modernbert", LABELS))
    return AutoConfig.for_model(
        "roberta",
        vocab_size=shape.vocabulary,
        hidden_size=shape.width,
        num_hidden_layers=layers,
        num_attention_heads=shape.attention_heads,
        intermediate_size=4 * shape.width,
        max_position_embeddings=shape.tokens + 2,
        type_vocab_size=1,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        pad_token_id=DEFAULT_SPECIAL_IDS.pad,
        num_labels=len(LABELS),
    )


def collator(cell: Cell) -> Any:
    """Masks on the fly, as run_mlm does; as they are, as run_glue has it for examples of one length."""
    if cell.training is Training.FINETUNING:
        return default_data_collator
    return DataCollatorForLanguageModeling(
        tokenizer=tokenizer(cell.shape, DEFAULT_SPECIAL_IDS), mlm_probability=MASK_RATE
    )


def pairs(blocks_NT: Tensor) -> list[Row]:
    """Blocks in the place of labelled pairs, as long as they get."""
    made = rows(blocks_NT)
    return [
        {"input_ids": row["input_ids"], "attention_mask": row["attention_mask"], "label": number % len(LABELS)}
        for number, row in enumerate(made)
    ]


def rows(blocks_NT: Tensor) -> list[Row]:
    """Packed blocks as run_mlm's `group_texts` leaves them; from memory, where nothing is to be decoded."""
    ones, zeros = [1] * blocks_NT.shape[1], [0] * blocks_NT.shape[1]
    return [{"input_ids": ids, "attention_mask": ones, "special_tokens_mask": zeros} for ids in blocks_NT.tolist()]


def tokenizer(shape: Shape, special: SpecialIds) -> PreTrainedTokenizerFast:
    """A tokenizer of the vocabulary's size, of which the collator needs the special pieces alone."""
    pieces = {f"piece{number}": number for number in range(shape.vocabulary)}
    begin, pad, end, unknown, mask = (f"piece{number}" for number in special)
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(pieces, unk_token=unknown)),
        bos_token=begin,
        pad_token=pad,
        eos_token=end,
        unk_token=unknown,
        mask_token=mask,
    )
