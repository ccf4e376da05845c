"""Writing of a fitted recipe as TOML, with a comment on every line."""

import json
from collections.abc import Mapping, Sequence

from lingraft.config.text import Files, Folder
from lingraft.new_recipe.fitting import FAMILY, MASK_RATE, FittedSizes, Machine

_COLUMN = 44
_WARMUP_SHARE = 0.08


def format_recipe(
    *,
    name: str,
    text: Files | Folder,
    languages: Sequence[str],
    labels: Sequence[str],
    judged: Sequence[str],
    no_task: str,
    examples: Mapping[str, str],
    machine: Machine,
    fitted: FittedSizes,
) -> str:
    """Return a recipe as TOML.

    Args:
        name: name of the project.
        text: source of the text.
        languages: languages, the source first.
        labels: labels of the task of kind 'documents'; no task if empty.
        judged: languages whose documents have labels to judge the task by; empty if all have.
        no_task: reason why there is no task.
        examples: a text to ask the endpoint about, by language.
        machine: machine that the sizes were fitted to.
        fitted: sizes.
    """
    shape = fitted.shape
    lines = [
        f"# Written by `lingraft init` for {machine}.",
        "# Change what you like, and run the same command again: what does not depend on the change is not made anew.",
        _line("name", name, "prefix of the models in the registry, and the experiment in MLflow"),
        _line("source", languages[0], "language of the primary, and of the labels that it learns from"),
        _line("targets", [*languages[1:]], "languages to add; remove any, or add one that there is text for"),
        _line("precision", "auto", "bf16 where it is faster, else fp32"),
    ]
    if not labels:
        lines.append(_line("serve_primary", True, "without a task, serve masked tokens and embeddings"))
    lines += [
        *_text(text),
        "",
        "[split]",
        _line("dev_share", 0.1, "documents for choices made on the way"),
        _line("test_share", 0.2, "documents for the reported scores only"),
        "",
        "[tokenizer]",
        _line("vocabulary", fitted.vocabulary, "pieces of each language; more need more text"),
        _line("character_coverage", 0.9995, "the rarest characters get no piece of their own"),
        "",
        "[encoder]",
        _line("family", FAMILY, "layers of ModernBERT's kind; absent: RoBERTa's"),
        _line("width", shape.width, "hidden size; larger learns more, from more text, in more time"),
        _line("layers", shape.layers, "Transformer layers of the primary"),
        _line("attention_heads", shape.attention_heads, "of each layer; must divide the width"),
        _line("feedforward", shape.feedforward, "width of the gated feed-forward layers"),
        _line("mlm_heads", [*shape.mlm_heads], "layers with a head: depths that a mini-model can have"),
        _line("block_tokens", fitted.block_tokens, "tokens of a block, and of the longest input"),
        "",
        "[pretraining]  # the primary, in the source language",
        *_stage(fitted, fitted.pretraining_steps, shape.pretraining_rate),
        _line("optimizer", "muon", "for matrices; small primaries learn in fewer updates than by AdamW"),
        _line("embeddings", "static-vectors", "likewise; what words mean is counted in the text"),
        "",
        "[adaptation]  # embeddings, once for each language",
        _line("depth", fitted.depth, "layers of the mini-model; one of encoder.mlm_heads"),
        _line("initialisation", "aligned", "new embeddings begin as the source's that mean the same"),
        *_stage(fitted, fitted.adaptation_steps, shape.adaptation_rate),
        *(_task(labels, judged, examples, fitted) if labels else _without_task(no_task)),
        "",
        "[cluster]",
        _line("parallel_languages", 1, "languages that are learned at the same time"),
    ]
    return "\n".join(lines) + "\n"


def _text(text: Files | Folder) -> list[str]:
    if isinstance(text, Files):
        named = (_line(f"paths.{tag}", [*paths], f"files or folders in {tag!r}") for tag, paths in text.paths.items())
        return ["", "[text]", _line("kind", "files", "files of any name, listed by language"), *named]
    return [
        "",
        "[text]",
        _line("kind", "folder", "one file or folder for each language, named after it"),
        _line("path", text.path, "the folder"),
        "# [text.cleaning]  # remove the '# ' before it to drop what is no prose, and what comes twice",
    ]


def _stage(fitted: FittedSizes, steps: int, rate: float) -> list[str]:
    lines = [
        _line("steps", steps, "updates; more take more time, and learn more until the text is exhausted"),
        _line("batch_blocks", fitted.batch_blocks, "blocks in one update"),
    ]
    if fitted.micro_batch_blocks:
        lines.append(_line("micro_batch_blocks", fitted.micro_batch_blocks, "computed at once, to fit into memory"))
    return [
        *lines,
        _line("learning_rate", rate, "at its peak; lower it if the loss jumps"),
        _line("warmup_steps", int(_WARMUP_SHARE * steps), "updates until the peak"),
        _line("mask_rate", MASK_RATE, "share of tokens that are predicted"),
    ]


def _task(labels: Sequence[str], judged: Sequence[str], examples: Mapping[str, str], fitted: FittedSizes) -> list[str]:
    where = _line("languages", [*judged], "those that have labels; the task is served in all")
    lines = [
        "",
        f"[[tasks]]  # learned in the source language only, and judged in {'some' if judged else 'all'}",
        _line("name", "topic", "what the endpoint calls it"),
        _line("kind", "documents", "the documents above, by their labels"),
        _line("labels", [*labels], "in this order"),
        *([where] if judged else []),
        "",
        "[tasks.finetuning]",
        _line("epochs", 5, "times that every labelled document is seen"),
        _line("batch_examples", 32, "documents in one update"),
        _line("learning_rate", fitted.shape.finetuning_rate, "at its peak"),
        _line("seeds", [1, 2, 3], "finetuned once with each; scores are their mean"),
    ]
    if examples:
        lines += ["", "[tasks.examples]  # what the endpoint is asked at the end; change them as you like"]
        lines += [f"{tag} = {_value(text)}" for tag, text in examples.items()]
    return lines


def _without_task(reason: str) -> list[str]:
    return [
        "",
        f"# No task: {reason}.",
        "# With labels (the key 'label' in JSONL, or one sub-folder a label) remove the '# ' of these lines:",
        "# [[tasks]]",
        '# name = "topic"',
        '# kind = "documents"',
    ]


def _line(key: str, value: object, comment: str) -> str:
    setting = f"{key} = {_value(value)}"
    return f"{setting.ljust(_COLUMN - 2)}  # {comment}"


def _value(value: object) -> str:
    """Return a value as TOML writes it, which is as JSON does but for one control character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
