"""The result of adding a language, and its summary."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from lingraft.console import command_line
from lingraft.huggingface.model import SENTENCE_TRANSFORMER
from lingraft.stages.results import SOURCE_TOKENIZER, LanguageResult, SeedScores, TaskScores, metric_label
from lingraft.tables import percent, text_table

MASKED_LM = "masked_lm"
"""Folder of the checkpoint with the MLM head; no task can have this name."""
_SHOWN_OTHERS = ("accuracy_at_10",)
"""Further metrics of a task that the table shows."""

_NOTHING_LEARNED = (
    "nothing was learned: there were no sentence pairs. "
    "Give --pairs, --dictionary, or --source-text on the same subjects."
)


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
    seconds: dict[str, float | None] = field(default_factory=dict, compare=False, repr=False)
    """Seconds that each stage took, by name; None where its result existed before."""

    def summary(self) -> str:
        """Return the summary for people: scores, seconds a stage, and what to do next."""
        scores = [*self._scores()]
        return "\n".join(
            [
                *([] if self.scores.cost.steps else [_NOTHING_LEARNED]),
                *(text_table([("", "as it is", "before", "after"), *scores]) if scores else ()),
                *self._notes(),
                "",
                *self._models(),
                *(f"not {what}: {why}" for what, why in self.left_out.items()),
                *self._stages(),
            ]
        )

    def _scores(self) -> Iterator[tuple[str, str, str, str]]:
        """Yield name, and scores: of the language fed to the source as it is, before learning, and after learning."""
        if masked := self.scores.masked:
            yield "masked tokens", "", percent(masked.primary_initial), percent(masked.primary)
        if found := self.scores.alignment:
            title = f"counterparts in the source, of {found.pairs:,} {found.basis.label}"
            yield title, "", percent(found.top_initial.accuracy), percent(found.top.accuracy)
        for task in self.scores.tasks:
            fed = task.baselines.get(SOURCE_TOKENIZER)
            title = f"{task.name}: {metric_label(task.metric)}, {task.examples:,} examples"
            yield title, _mean(fed), _mean(task.initial), _mean(task.score)
            others = task.baseline_others.get(SOURCE_TOKENIZER, {})
            for name in _SHOWN_OTHERS:
                if name in task.others:
                    before, after = task.initial_others.get(name), task.others[name]
                    yield f"{task.name}: {metric_label(name)}", _mean(others.get(name)), _mean(before), _mean(after)

    def _notes(self) -> list[str]:
        cost, quality = self.scores.cost, self.scores.initial_alignment
        share = cost.flops / self.scores.whole_flops if self.scores.whole_flops else 0.0
        learned = f"learned in {cost.elapsed_s:.0f} s by {cost.flops:.3g} FLOPs"
        if share < 1:
            learned += f", {share:.0%} of what as many updates over all {self.scores.layers} layers take"
        return [
            *map(_trivial_answer, self.scores.tasks),
            *([f"alignment with the source language {quality.summary}"] if quality else []),
            *([learned] if cost.steps else ()),
        ]

    def _stages(self) -> list[str]:
        shown = (f"{name} {'as it was' if took is None else f'{took:.0f} s'}" for name, took in self.seconds.items())
        return [f"stages: {', '.join(shown)}"] if self.seconds else []

    def _models(self) -> list[str]:
        load = [_loading_call(self.loaders[name], folder) for name, folder in self.hf.items()]
        serve = [command_line("lingraft", "serve", folder) for folder in self.bundles.values()]
        return [
            f"embeddings: {self.embeddings}",
            *(f"to load: {line}" for line in load),
            *(f"to serve: {s}" for s in serve),
        ]


def _mean(score: SeedScores | None) -> str:
    return percent(score.mean) if score else ""


def _trivial_answer(task: TaskScores) -> str:
    seeds = len(task.score.by_seed)
    spread = f", {seeds} seeds" if seeds > 1 else ""
    return f"{task.name}: without any training example; trivial answer {percent(task.baseline)}{spread}"


def _loading_call(loader: str, folder: Path) -> str:
    place = json.dumps(str(folder), ensure_ascii=False)
    if loader == SENTENCE_TRANSFORMER:
        return f"sentence_transformers.{loader}({place})"
    return f"transformers.{loader}.from_pretrained({place})"
