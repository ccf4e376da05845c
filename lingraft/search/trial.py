"""One trial: a training with checkpoints, evaluated on the shared grid, on the primary and not on its own mini-model.

All trials of a worker share the primary, the blocks, the tokenizer and the initial rows, so that a trial costs its
adaptation only.
"""

import contextlib
import functools
import hashlib
import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import optuna
import torch

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.cache import RESULTS_VARIABLE, shared_folder
from lingraft.artifacts.manifest import json_fingerprint
from lingraft.config.recipe import Recipe
from lingraft.config.search import Metric
from lingraft.data.bilingual_dictionary import pair_hashes
from lingraft.data.blocks import load_blocks, open_split
from lingraft.data.text import load_text
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.errors import RecipeError, TextError
from lingraft.jobs.training import MiniBuildingJob
from lingraft.model.encoder import Encoder
from lingraft.model.loading import load_primary
from lingraft.model.swap import make_vocabulary, swap
from lingraft.search.budget import Budget, TrialLength, trial_settings
from lingraft.stages.adapt import adaptation_run, mini_of
from lingraft.stages.alignment_probe import FEWEST_PAIRS, AlignmentProbe, language_probe
from lingraft.stages.embeddings import initial_rows, mark_of
from lingraft.stages.results import Trial
from lingraft.stages.sentence_pairs import PairData
from lingraft.training import precision
from lingraft.training.checkpoint import CheckpointManager
from lingraft.training.masked_lm import accuracy
from lingraft.training.progress import training_progress
from lingraft.training.run import TrainingRun
from lingraft.training.schedule import MetricsCallback
from lingraft.training.stage_output import resumable

RECORD = "record"
"""Name of the attribute of an Optuna trial that holds its record."""


@dataclass(frozen=True)
class Inputs:
    """Folders that a search reads."""

    primary: Path
    blocks: Path
    tokenizer: Path
    source_blocks: Path | None = None
    """Blocks of the source language, for mini-models of step 1b."""
    initial: Path | None = None
    """Embeddings that trials start from; if absent, drawn with the recipe's seed."""
    source_evaluation: Path | None = None
    """Evaluation of the primary in the source language, for trials compared by alignment."""
    text: Path | None = None
    """Text of the language, for its parallel paragraphs; if absent, alignment is measured over shared pieces."""


class Trainer:
    """Trains trials, one after another."""

    def __init__(self, recipe: Recipe, inputs: Inputs, state: Path, watch: MetricsCallback) -> None:
        """Load what all trials share; checkpoints lie in `state`, unless `LINGRAFT_RESULTS` names a folder."""
        self.recipe = recipe
        self.search = recipe.require_search()
        self.state = state
        self.watch = watch
        self.source = load_primary(inputs.primary, recipe.primary_shape)
        pieces = Tokenizer.load(inputs.tokenizer, self.search.language)
        self.data = load_blocks(inputs.blocks, pieces, recipe.encoder.block_tokens)
        self.train_blocks = open_split(self.data, "train")
        self.dev = open_split(self.data, "dev")
        self.budget = Budget(recipe, len(pieces))
        self._inputs = inputs
        if not recipe.builds_mini:
            for depth in recipe.searched_depths:
                self.source.encoder.require_depth(depth)
        self._start = mark_of(inputs.initial)
        self._rows = initial_rows(recipe, self.source, pieces, inputs.initial)
        self._pairs = PairData.load(recipe, self.source, pieces, recipe.searched_depths, initial=inputs.initial)
        self._probe = self._alignment_probe(inputs, pieces) if self.search.metric is Metric.ALIGNMENT else None

    def _alignment_probe(self, inputs: Inputs, pieces: Tokenizer) -> AlignmentProbe:
        language = self.search.language
        if found := language_probe(
            recipe=self.recipe,
            primary=self.source,
            pieces=pieces,
            split="dev",
            text=load_text(inputs.text, language) if inputs.text else None,
            blocks=self.dev,
            evaluation=inputs.source_evaluation,
        ):
            return found
        if inputs.source_evaluation is None:
            raise RecipeError(
                "search.metric is 'alignment', which needs the source's hidden states, but its evaluation is not "
                "given. Evaluate the source (`lingraft evaluate-source`), and give its folder (--source-evaluation); "
                "or set search.metric = 'masked'."
            )
        raise TextError(
            f"search.metric is 'alignment', but the dev split of {language!r} has fewer than {FEWEST_PAIRS} "
            "parallel paragraphs, and as few pieces that occur often in both languages. Give more text, or set "
            "search.metric = 'masked'."
        )

    @property
    def data_hashes(self) -> dict[str, str]:
        """Fingerprints of the inputs of the search."""
        pairs = pair_hashes(self.recipe, self.search.language)
        return {"primary": self.source.fingerprint, "blocks": self.data.fingerprint, **self._start, **pairs}

    def fingerprint(self) -> str:
        """Return a hash of everything that determines the scores of trials; another hash means another study."""
        mini = self.recipe.mini.model_dump_json() if self.recipe.builds_mini and self.recipe.mini else ""
        settings = self.recipe.adaptation.model_dump_json(), self.search.decisive, mini, str(self.recipe.system)
        probed = (self._probe.basis, self._probe.mark) if self._probe else ()
        facts = (*self.data_hashes.values(), *settings, self.recipe.precision, *probed)
        return hashlib.sha256("\n".join(facts).encode()).hexdigest()

    def mini_model(self, depth: int) -> Artifact | None:
        """Return MINIPOST's mini-model of a depth, built once for all trials; None where the system has no step 1b."""
        if not self.recipe.builds_mini:
            return None
        if self._inputs.source_blocks is None:
            raise RecipeError(
                f"a search over {self.recipe.system}'s depths builds a mini-model of each, in the source language, but "
                "its blocks are not given. Give the folder that `lingraft blocks` wrote for it (--source-blocks)."
            )
        job = MiniBuildingJob(
            recipe=self.recipe.over(depth),
            primary=self._inputs.primary,
            blocks=self._inputs.source_blocks,
            out=self.state / f"mini-{depth}",
        )
        with job.cached() as found:
            return found or job.get_or_make()

    def train(self, trial: optuna.Trial, depth: int) -> Trial:
        """Train one trial, from its last checkpoint if there is one, until its budget or Optuna ends it.

        Its record is an attribute of the trial, and the checkpoints are removed after that. Training goes on only when
        a score is stored, so that no checkpoint is ahead of the storage.
        """
        length = self.budget.trial_length(depth)
        step = self.budget.step(depth)
        settings = trial_settings(self.recipe, length.steps)
        built = self.mini_model(depth)
        mini = mini_of(self.source, step, built.folder if built else None)
        scores = _Scores(trial)
        scores.add(0, lambda: self._initial_score)
        made_from = {"stage": "search", "search": self.fingerprint(), "depth": depth}
        with (
            self._checkpoints(depth) as folder,
            resumable(self.recipe, folder / "trial", settings, made_from, folder) as checkpointer,
        ):
            run = adaptation_run(
                recipe=self.recipe,
                step=step,
                mini=mini,
                rows=self._rows,
                blocks=self.train_blocks,
                settings=settings,
                stops=tuple(length.looks),
                checkpointer=checkpointer,
                pairs=self._pairs,
            )
            with closing(run.points):
                self._train(run, checkpointer, length, self._scorer(mini), scores)
            point = run.state.points[-1]
            curve = length.curve({at: score for at, score in scores.found.items() if at <= length.looks[point.step]})
            found = Trial(
                number=trial.number,
                depth=depth,
                steps=point.step,
                flops=point.flops,
                elapsed_s=point.elapsed_s,
                score=curve[-1][1],
                pruned=point.step < length.steps,
                scores_by_flops=curve,
                whole_flops=length.flops,
            )
            trial.set_user_attr(RECORD, found.model_dump(mode="json"))
            checkpointer.remove()
        return found

    def _train(
        self,
        run: TrainingRun,
        checkpointer: CheckpointManager,
        length: TrialLength,
        judge: Callable[[], float],
        scores: "_Scores",
    ) -> None:
        """Train and evaluate at the planned updates, until the trial ends."""
        before = max((length.looks.get(point.step, 0) for point in run.earlier), default=0)
        if before and self._ends(scores, before, length):
            return
        title = f"search {self.search.language}: depth {scores.trial.params['depth']}"
        with training_progress(length.steps, title) as show:
            for point in run.points:
                show(point)
                self.watch(point)
                if look := length.looks.get(point.step):
                    scores.add(look, judge)
                    checkpointer.save_soon()
                    if self._ends(scores, look, length):
                        break
        if run.state.step == length.steps:  # one that was stopped behind its last step was not evaluated there
            scores.add(length.last_look, judge)

    def _ends(self, scores: "_Scores", look: int, length: TrialLength) -> bool:
        return look < length.last_look and scores.trial.should_prune()

    def _scorer(self, mini: Encoder) -> Callable[[], float]:
        """Function for the dev score of the primary with the mini-model's current embeddings swapped in."""
        primary = self.source.encoder
        score = self._metric()

        def swapped() -> float:
            swap(primary.to(precision.device()), mini.vocabulary)
            found = score()
            mini.train()
            primary.train()
            return found

        return swapped

    @functools.cached_property
    def _initial_score(self) -> float:
        """The dev score before any update."""
        primary, rows = self.source.encoder, self._rows
        swap(primary, make_vocabulary(rows.table_VD.clone(), rows.bias_V.clone(), rows.special, rows.borrowed))
        primary.to(precision.device())
        return self._metric()()

    def _metric(self) -> Callable[[], float]:
        """Function for the search's metric on the dev split, of the primary with its current vocabulary."""
        probe = self._probe
        primary = self.source.encoder
        if probe is None:
            last, dev_NT = (
                primary.shape.layers,
                self.dev.take(torch.arange(min(self.search.eval_blocks, len(self.dev)))),
            )
            return lambda: accuracy(primary, dev_NT, (last,))[last]
        top = probe.depths[-1]
        return lambda: probe.measure(primary, (top,))[top].scores.accuracy

    def _checkpoints(self, depth: int) -> contextlib.AbstractContextManager[Path]:
        """Folder of a trial's checkpoints, for whichever worker trains it."""
        where = os.environ.get(RESULTS_VARIABLE, str(self.state))
        name = json_fingerprint({"search": self.fingerprint(), "depth": depth})[:32]
        return shared_folder(where, f"trial-{name}")


class _Scores:
    """Scores of a trial by evaluation, those included that an earlier worker of the trial has stored."""

    def __init__(self, trial: optuna.Trial) -> None:
        self.trial = trial
        self.found: dict[int, float] = dict(trial.study.trials[trial.number].intermediate_values)

    def add(self, look: int, judge: Callable[[], float]) -> None:
        """Evaluate and store the score, unless this evaluation has a score."""
        if look not in self.found:
            self.found[look] = judge()
            self.trial.report(self.found[look], look)
