"""The result of adding a language, and its summary."""

import json
from dataclasses import dataclass
from pathlib import Path

from lingraft.console import command_line
from lingraft.huggingface.model import SENTENCE_TRANSFORMER
from lingraft.stages.results import LanguageResult, MaskedScores, TaskScores

MASKED_LM = "masked_lm"
"""Folder of the checkpoint with the MLM head; no task can have this name."""


@dataclass(frozen=True)
class AddedLanguage:
    """An added language: its embeddings, their scores, and the models that were exported with them."""

    language: str
    embeddings: Path
    """Artifact: table, output bias and tokenizer."""
    scores: LanguageResult
    """Masked accuracy before and after, zero-shot scores before and after, cost."""
    hf: dict[str, Path]
    """Checkpoints by each task's name, and 'masked_lm' if the primary has an MLM head."""
    loaders: dict[str, str]
    """Class that loads each of them: one of transformers, or SentenceTransformer."""
    bundles: dict[str, Path]
    """ONNX bundles for the endpoint, by task."""
    left_out: dict[str, str]
    """Reasons by the work that was not done."""

    def summary(self) -> str:
        """Return the summary for people."""
        return "\n".join(
            (*self._scores(), *self._models(), *(f"not {what}: {why}" for what, why in self.left_out.items()))
        )

    def _scores(self) -> list[str]:
        masked = self.scores.masked
        cost = self.scores.cost
        share = cost.flops / self.scores.whole_flops
        return [
            *([self._masked(masked)] if masked else []),
            *self._alignment(),
            *map(_task_line, self.scores.tasks),
            f"learned in {cost.elapsed_s:.0f} s by {cost.flops:.3g} FLOPs, "
            f"{share:.0%} of what as many updates over all {self.scores.layers} layers take",
        ]

    def _masked(self, found: MaskedScores) -> str:
        change = _change(found.primary_initial, found.primary)
        return f"{self.language}: masked tokens found in the primary {change}"

    def _alignment(self) -> list[str]:
        quality = self.scores.initial_alignment
        found = self.scores.alignment
        lines = [f"alignment with the source language {quality.summary}"] if quality else []
        if found:
            change = _change(found.top_initial.accuracy, found.top.accuracy)
            lines.append(f"counterparts in the source language found {change} (of {found.pairs}, {found.basis.label})")
        return lines

    def _models(self) -> list[str]:
        load = [_loading_call(self.loaders[name], folder) for name, folder in self.hf.items()]
        serve = [command_line("lingraft", "serve", folder) for folder in self.bundles.values()]
        return [
            f"embeddings: {self.embeddings}",
            *(f"to load: {line}" for line in load),
            *(f"to serve: {s}" for s in serve),
        ]


def _loading_call(loader: str, folder: Path) -> str:
    place = json.dumps(str(folder), ensure_ascii=False)
    if loader == SENTENCE_TRANSFORMER:
        return f"sentence_transformers.{loader}({place})"
    return f"transformers.{loader}.from_pretrained({place})"


def _task_line(task: TaskScores) -> str:
    assert task.initial is not None
    seeds = len(task.score.by_seed)
    spread = f", {seeds} seeds" if seeds > 1 else ""
    change = _change(task.initial.mean, task.score.mean)
    return (
        f"{task.name}: {task.metric} without any training example {change} (trivial answer {task.baseline:.1%}{spread})"
    )


def _change(before: float, after: float) -> str:
    return f"{before:.1%} -> {after:.1%}"
