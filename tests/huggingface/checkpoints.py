"""Small random checkpoints with tokenizers, made on the spot by transformers itself: one function a need.

Weights are large, and drawn for biases and LayerNorms too, so that a tensor that is left out or misplaced shows.
"""

from pathlib import Path
from typing import Any, NamedTuple

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from torch import Tensor
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertTokenizer,
    CamembertConfig,
    CamembertForMaskedLM,
    CamembertTokenizer,
    ModernBertConfig,
    ModernBertForMaskedLM,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForMaskedLM,
    RobertaTokenizer,
    XLMRobertaConfig,
    XLMRobertaForMaskedLM,
    XLMRobertaTokenizer,
)

MODEL_TYPES = ("roberta", "xlm-roberta", "camembert", "bert")
"""Those with post-norm layers."""
LINES = [
    "the harbour was quiet and the boats lay still",
    "a garden of herbs, and a kitchen full of bread",
    "Der Hafen war still, und die Boote lagen da.",
    "Ο κήπος ήταν ήσυχος και το ψωμί ζεστό",
    "海港很安静，船都停着",
    "สวนเงียบสงบและขนมปังยังอุ่น",
    "الميناء هادئ والقوارب ساكنة",
]
"""Text that the tokenizers are trained on, in several scripts."""
MORE_LINES = [*LINES, "bahçe sessizdi, ekmek ılıktı, çayın yanında şeker vardı"]
"""Text that those of ModernBERT's family are trained on."""
_VOCABULARY = 420
_SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
_CAMEMBERT_FIRST = [("<s>NOTUSED", 0.0), ("<pad>", 0.0), ("</s>NOTUSED", 0.0), ("<unk>", 0.0), ("<unk>NOTUSED", -100.0)]
_SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 40,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "layer_norm_eps": 1e-5,
}
_SMALL_MODERNBERT = {
    "hidden_size": 32,
    "num_hidden_layers": 5,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "max_position_embeddings": 40,
    "local_attention": 8,
    "pad_token_id": 1,
}
_CLASSES: dict[str, tuple[type[PreTrainedConfig], type[PreTrainedModel]]] = {
    "roberta": (RobertaConfig, RobertaForMaskedLM),
    "xlm-roberta": (XLMRobertaConfig, XLMRobertaForMaskedLM),
    "camembert": (CamembertConfig, CamembertForMaskedLM),
    "bert": (BertConfig, BertForMaskedLM),
    "modernbert": (ModernBertConfig, ModernBertForMaskedLM),
}


class Made(NamedTuple):
    """A checkpoint as transformers has it, and the folder that it is saved in."""

    folder: Path
    model: Any
    tokenizer: Any


def make_checkpoint(folder: Path, model_type: str, seed: int = 1, pieces: str | None = None, **settings: Any) -> Made:
    """Save a random masked language model and a tokenizer with the same pad id, as a hub repository holds them.

    `pieces` is the kind of tokenizer, if not the model type's own.
    """
    tokenizer = make_tokenizer(pieces or model_type)
    if "pad_token_id" in settings:
        tokenizer.pad_token = tokenizer.convert_ids_to_tokens(settings["pad_token_id"])
    rows = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
    model = make_model(model_type, seed, **{**rows, **settings})
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return Made(folder, model, tokenizer)


@torch.no_grad()
def make_model(model_type: str, seed: int = 1, **settings: Any) -> Any:
    """A random masked language model of a few thousand parameters; `settings` go into its configuration."""
    configuration, model_class = _CLASSES[model_type]
    small = _SMALL_MODERNBERT if model_type == "modernbert" else _SMALL
    model = model_class(configuration(**{"vocab_size": 60, **small, **settings})).eval()
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        is_scale = "norm.weight" in name.lower()
        parameter.normal_(mean=1.0 if is_scale else 0.0, std=0.15, generator=generator)
    return model


@torch.no_grad()
def logits_of(model: Any, tokens_BT: Tensor, visible_BT: Tensor | None = None) -> Tensor:
    """Logits (B, T, V) of transformers."""
    return model(input_ids=tokens_BT, attention_mask=None if visible_BT is None else visible_BT.long()).logits


def make_tokenizer(model_type: str) -> PreTrainedTokenizerBase:
    """A tokenizer of the model type's own class and kind, trained on `LINES`."""
    makers = {
        "roberta": _bytes,
        "xlm-roberta": _xlm,
        "camembert": _camembert,
        "bert": _wordpiece,
        "modernbert": _modern_bytes,
        "gemma": _gemma,
    }
    return makers[model_type]()


def _gemma() -> PreTrainedTokenizerBase:
    """BPE of marked pieces that falls back to bytes, which mmBERT has."""
    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
    trained = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    trained.normalizer = normalizers.Replace(" ", "▁")
    trained.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    trained.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    settings = {"vocab_size": _VOCABULARY, "special_tokens": special, "limit_alphabet": 110}
    by_bytes = [f"<0x{byte:02X}>" for byte in range(256)]
    trained.train_from_iterator(MORE_LINES, trainers.BpeTrainer(show_progress=False, **settings))
    trained.add_tokens(by_bytes)
    ends = [("<bos>", special.index("<bos>")), ("<eos>", special.index("<eos>"))]
    trained.post_processor = processors.TemplateProcessing(single="<bos> $A <eos>", special_tokens=ends)
    roles = {"cls": "<bos>", "sep": "<eos>", "pad": "<pad>", "unk": "<unk>", "mask": "<mask>"}
    return PreTrainedTokenizerFast(tokenizer_object=trained, **{f"{role}_token": roles[role] for role in roles})


def _modern_bytes() -> PreTrainedTokenizerBase:
    """ModernBERT's byte-level BPE has no class of its own, and its special pieces stand behind the others."""
    trained = _trained_bytes(MORE_LINES, [])
    roles = {"cls": "[CLS]", "sep": "[SEP]", "pad": "[PAD]", "unk": "[UNK]", "mask": "[MASK]"}
    named = {f"{role}_token": piece for role, piece in roles.items()}
    made = PreTrainedTokenizerFast(tokenizer_object=trained, **named)
    made.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", made.cls_token_id), ("[SEP]", made.sep_token_id)]
    )
    return made


def _bytes() -> PreTrainedTokenizerBase:
    vocabulary, merges = _bpe_files(_trained_bytes(LINES, _SPECIAL))
    return RobertaTokenizer(vocab=vocabulary, merges=merges)


def _trained_bytes(lines: list[str], special: list[str]) -> Tokenizer:
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    settings = {"vocab_size": _VOCABULARY, "special_tokens": special, "initial_alphabet": alphabet}
    trained.train_from_iterator(lines, trainers.BpeTrainer(show_progress=False, **settings))
    return trained


def _bpe_files(trained: Tokenizer) -> tuple[dict[str, int], list[tuple[str, str]]]:
    import json

    model = json.loads(trained.to_str())["model"]
    return model["vocab"], [tuple(merge) for merge in model["merges"]]


def _pieces() -> list[tuple[str, float]]:
    import json

    trained = Tokenizer(models.Unigram())
    trained.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    settings = {"vocab_size": 150, "special_tokens": _SPECIAL, "unk_token": "<unk>"}
    trained.train_from_iterator(LINES, trainers.UnigramTrainer(show_progress=False, **settings))
    return [(piece, score) for piece, score in json.loads(trained.to_str())["model"]["vocab"]]


def _xlm() -> PreTrainedTokenizerBase:
    """The mask comes last, as in the checkpoints that there are."""
    pieces = [pair for pair in _pieces() if pair[0] != "<mask>"]
    return XLMRobertaTokenizer(vocab=[*pieces, ("<mask>", 0.0)])


def _camembert() -> PreTrainedTokenizerBase:
    """CamemBERT's first pieces are unused, so that begin and end have ids of their own behind them."""
    pieces = [pair for pair in _pieces() if pair[0] not in _SPECIAL]
    return CamembertTokenizer(vocab=[*_CAMEMBERT_FIRST, ("<s>", 0.0), ("</s>", 0.0), *pieces, ("<mask>", 0.0)])


def _wordpiece() -> PreTrainedTokenizerBase:
    trained = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    trained.normalizer, trained.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    settings = {"vocab_size": 200, "special_tokens": special}
    trained.train_from_iterator(LINES, trainers.WordPieceTrainer(show_progress=False, **settings))
    return BertTokenizer(vocab=trained.get_vocab())
