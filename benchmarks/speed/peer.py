"""The peer: `transformers.Trainer` with the recipes of run_mlm and run_glue (their data sets, collators, loops)."""

from pathlib import Path
from typing import Any

import datasets
import torch
from tokenizers import Tokenizer, models
from torch import Tensor
from transformers import (
    DataCollatorForLanguageModeling,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForMaskedLM,
    RobertaForSequenceClassification,
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


def model(cell: Cell, attention: str) -> PreTrainedModel:
    """RoBERTa of the cell's shape under the stage's head; what the stage does not train is frozen."""
    step, shape = cell.training.step, cell.shape
    config = RobertaConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.width,
        num_hidden_layers=step.layers,
        num_attention_heads=shape.attention_heads,
        intermediate_size=4 * shape.width,
        max_position_embeddings=shape.tokens + 2,
        type_vocab_size=1,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        pad_token_id=DEFAULT_SPECIAL_IDS.pad,
        num_labels=len(LABELS),
        attn_implementation=attention,
    )
    if cell.training is Training.FINETUNING:
        classifier = RobertaForSequenceClassification(config)
        classifier.roberta.embeddings.word_embeddings.requires_grad_(False)
        return classifier
    made = RobertaForMaskedLM(config)
    made.requires_grad_(step.trained is TrainedPart.EVERYTHING)
    if step.trained is TrainedPart.FRESH_LAYERS:
        made.roberta.encoder.layer[-step.fresh_layers :].requires_grad_(True)
    if step.trained is TrainedPart.EMBEDDINGS:
        made.roberta.embeddings.word_embeddings.requires_grad_(True)
        made.lm_head.decoder.requires_grad_(True)
        made.lm_head.bias.requires_grad_(True)
    return made


def collator(cell: Cell) -> Any:
    """Masks on the fly, as run_mlm does; as they are, as run_glue has it for examples of one length."""
    if cell.training is Training.FINETUNING:
        return default_data_collator
    return DataCollatorForLanguageModeling(
        tokenizer=tokenizer(cell.shape, DEFAULT_SPECIAL_IDS), mlm_probability=MASK_RATE
    )


def pairs(blocks_NT: Tensor) -> datasets.Dataset:
    """Blocks in the place of labelled pairs, as long as they get."""
    made = rows(blocks_NT).remove_columns("special_tokens_mask")
    return made.add_column("label", [number % len(LABELS) for number in range(len(made))])


def rows(blocks_NT: Tensor) -> datasets.Dataset:
    """Packed blocks as run_mlm's `group_texts` leaves them."""
    ids = blocks_NT.tolist()
    ones, zeros = [1] * blocks_NT.shape[1], [0] * blocks_NT.shape[1]
    columns = {"input_ids": ids, "attention_mask": [ones] * len(ids), "special_tokens_mask": [zeros] * len(ids)}
    return datasets.Dataset.from_dict(columns)


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
