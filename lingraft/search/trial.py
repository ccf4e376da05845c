"""One trial: a training with checkpoints, evaluated on the shared grid, on the primary and not on its own mini-model.

All trials of a worker share the primary, the blocks, the tokenizer and the initial rows, so that a trial costs its
adaptation only.
"""

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from lingraft.artifacts import sync
from lingraft.config.initialisation import Initialisation
from lingraft.config.recipe import Recipe
from lingraft.config.search import Metric
from lingraft.config.training import Adaptation
from lingraft.data.bilingual_dictionary import pair_hashes
from lingraft.data.blocks import load_blocks, open_split
from lingraft.data.text import load_text
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.errors import RecipeError, TextError
from lingraft.model.encoder import Encoder
from lingraft.model.initialisation.initial_rows import InitialRows
from lingraft.model.loading import load_primary
from lingraft.model.swap import make_vocabulary, swap
from lingraft.search.budget import Budget, TrialLength
from lingraft.search.mini_models import MiniModels
from lingraft.search.space import Params, describe, params_key, trial_settings
from lingraft.stages.adapt import adaptation_run, mini_of
from lingraft.stages.alignment_probe import FEWEST_PAIRS, AlignmentProbe, language_probe
from lingraft.stages.embeddings import initial_rows, mark_of
from lingraft.stages.results import Trial
from lingraft.stages.sentence_pairs import PairData
from lingraft.training import precision
from lingraft.training.checkpoint import CheckpointManager
from lingraft.training.masked_lm import dev_evaluator
from lingraft.training.progress import training_progress
from lingraft.training.run import TrainingRun
from lingraft.training.schedule import MetricsCallback, TrainingMetrics
from lingraft.training.stage_output import resumable


@dataclass(frozen=True)
class Inputs:
    """Folders that a search reads."""

    primary: Path
    blocks: Path
    tokenizer: Path
    source_blocks: Path | None = None
    """Blocks of the source language, for mini-models of step 1b."""
    initial: Path | None = None
    """Embeddings that trials of the recipe's own initialisation start from; if absent, drawn with the recipe's seed."""
    source_evaluation: Path | None = None
    """Evaluation of the primary in the source language, for trials compared by alignment."""
    text: Path | None = None
    """Text of the language, for its parallel paragraphs; if absent, alignment is measured over shared pieces."""


@dataclass(frozen=True)
class ClaimedTrial:
    """A trial that this worker has claimed."""

    number: int
    params: Params
    scores: dict[int, float]
    """Scores by evaluation, including those of a lost worker that trained it before; `evaluate_once` adds to it."""
    report: Callable[[int, float], None]
    """Stores a score. Training goes on after that, so that no checkpoint is ahead of the storage."""
    should_stop: Callable[[dict[int, float], int], bool]
    """Whether to stop with these scores before the last evaluation, whose number is the second argument."""
    finish: Callable[[Trial], None]
    """Stores the record; the checkpoints are deleted after that."""

    def evaluate_once(self, number: int, judge: Callable[[], float]) -> None:
        """Evaluate and report the score, unless this evaluation has a score."""
        if number not in self.scores:
            self.scores[number] = judge()
            self.report(number, self.scores[number])

    def should_stop_at(self, look: int, last: int) -> bool:
        """Return whether to stop at an evaluation, from the scores up to it."""
        return self.should_stop({at: score for at, score in self.scores.items() if at <= look}, last)


class Trainer:
    """Trains trials, one after another."""

    def __init__(self, recipe: Recipe, inputs: Inputs, state: Path, watch: MetricsCallback) -> None:
        """Load what all trials share.

        Args:
            recipe: recipe with a [search] section.
            inputs: folders that trials are trained from.
            state: folder of checkpoints, unless `LINGRAFT_RESULTS` names one.
            watch: called with every point of each trial.
        """
        self.recipe = recipe
        self.search = recipe.require_search()
        self.state = state
        self.watch = watch
        self.source = load_primary(inputs.primary, recipe.primary_shape)
        pieces = Tokenizer.load(inputs.tokenizer, self.search.language)
        self.data = load_blocks(inputs.blocks, pieces, recipe.encoder.block_tokens)
        self.train = open_split(self.data, "train")
        self.dev = open_split(self.data, "dev")
        self.budget = Budget(recipe, len(pieces))
        self.mini_models = MiniModels(recipe, inputs.primary, inputs.source_blocks, state)
        if not recipe.builds_mini:
            for depth in recipe.searched_depths:
                self.source.encoder.require_depth(depth)
        kinds = {recipe.adaptation.initialisation, *self.search.initialisations}
        own = recipe.adaptation.initialisation
        self._start = mark_of(inputs.initial)
        self._rows = {
            kind: initial_rows(
                _with_initialisation(recipe, kind), self.source, pieces, inputs.initial if kind is own else None
            )
            for kind in kinds
        }
        self._pairs = PairData.load(recipe, self.source, pieces, recipe.searched_depths, initial=inputs.initial)
        self._initial: dict[Initialisation, float] = {}
        self._probe = self._alignment_probe(inputs, pieces) if self.search.metric is Metric.ALIGNMENT else None

    def _alignment_probe(self, inputs: Inputs, pieces: Tokenizer) -> AlignmentProbe:
        language = self.search.language
        evaluation = inputs.source_evaluation
        text = load_text(inputs.text, language) if inputs.text else None
        if found := language_probe(
            recipe=self.recipe,
            primary=self.source,
            pieces=pieces,
            split="dev",
            text=text,
            blocks=self.dev,
            evaluation=evaluation,
        ):
            return found
        if evaluation is None:
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

    def train_trial(self, attempt: ClaimedTrial) -> None:
        """Train one trial, from its last checkpoint if there is one, until its budget or `should_stop` ends it.

        Raises:
            TrainingError: it cannot be trained.
        """
        params = attempt.params
        length = self.budget.trial_length(attempt.params)
        step = self.budget.step(params)
        settings = trial_settings(self.recipe, params, length.steps)
        built = self.mini_models.get_or_build(params["depth"])
        mini = mini_of(self.source, step, built.folder if built else None)
        rows = self._rows[settings.initialisation]
        attempt.evaluate_once(0, lambda: self._initial_score(settings, rows))
        made_from = {"stage": "search", "search": self.fingerprint(), "params": params_key(params)}
        with (
            self._checkpoints(params) as folder,
            resumable(self.recipe, folder / "trial", settings, made_from, folder) as checkpointer,
        ):
            run = adaptation_run(
                recipe=self.recipe,
                steps=[step],
                minis=[mini],
                rows=rows,
                blocks=self.train,
                settings=settings,
                stops=tuple(length.looks),
                checkpointer=checkpointer,
                pairs=self._pairs,
            )
            with closing(run.points):
                point = self._train(run, checkpointer, length, self._scorer(mini, settings), attempt)
            attempt.finish(_trial_result(attempt, length, point))
            checkpointer.remove()

    def _train(
        self,
        run: TrainingRun,
        checkpointer: CheckpointManager,
        length: TrialLength,
        judge: Callable[[], float],
        attempt: ClaimedTrial,
    ) -> TrainingMetrics:
        """Train and evaluate at the planned updates; return the last point of the learning curve."""
        before = max((length.looks.get(point.step, 0) for point in run.earlier), default=0)
        if before and attempt.should_stop_at(before, length.last_look):
            return run.earlier[-1]
        title = f"search {self.search.language}: {describe(attempt.params)}"
        with training_progress(length.steps, title) as show:
            for point in run.points:
                show(point)
                self.watch(point)
                if look := length.looks.get(point.step):
                    attempt.evaluate_once(look, judge)
                    checkpointer.save_soon()
                    if attempt.should_stop_at(look, length.last_look):
                        break
        if run.state.step == length.steps:  # one that was stopped behind its last step has not been looked at there
            attempt.evaluate_once(length.last_look, judge)
        return run.state.points[-1]

    def _scorer(self, mini: Encoder, settings: Adaptation) -> Callable[[], float]:
        """Function for the dev score of the primary with the mini-model's current embeddings swapped in."""
        primary = self.source.encoder
        score = self._metric(settings)

        def swapped() -> float:
            swap(primary.to(precision.device()), mini.vocabulary)
            found = score()
            mini.train()
            primary.train()
            return found

        return swapped

    def _initial_score(self, settings: Adaptation, rows: InitialRows) -> float:
        """The dev score before any update; trials with the same initialisation share it."""
        kind = settings.initialisation
        primary = self.source.encoder
        if kind not in self._initial:
            swap(primary, make_vocabulary(rows.table_VD.clone(), rows.bias_V.clone(), rows.special, rows.borrowed))
            primary.to(precision.device())
            self._initial[kind] = self._metric(settings)()
        return self._initial[kind]

    def _metric(self, settings: Adaptation) -> Callable[[], float]:
        """Function for the search's metric on the dev split, of the primary with its current vocabulary."""
        probe = self._probe
        primary = self.source.encoder
        if probe is None:
            return dev_evaluator(primary, primary, self.dev, settings)
        top = probe.depths[-1]
        return lambda: probe.measure(primary, (top,))[top].scores.accuracy

    @contextlib.contextmanager
    def _checkpoints(self, params: Params) -> Iterator[Path]:
        """Folder of a trial's checkpoints, for whichever worker trains it."""
        name = hashlib.sha256(f"{self.fingerprint()} {params_key(params)}".encode()).hexdigest()[:32]
        if where := os.environ.get(sync.RESULTS_VARIABLE):
            with sync.shared_cache_dir(where, f"trial-{name}") as folder:
                yield folder
        else:
            yield self.state / f"trial-{name}"


def _with_initialisation(recipe: Recipe, kind: Initialisation) -> Recipe:
    return recipe.model_copy(update={"adaptation": recipe.adaptation.model_copy(update={"initialisation": kind})})


def _trial_result(attempt: ClaimedTrial, length: TrialLength, point: TrainingMetrics) -> Trial:
    own = {name: value for name, value in attempt.params.items() if name != "depth"}
    curve = length.curve({at: score for at, score in attempt.scores.items() if at <= length.looks[point.step]})
    return Trial(
        number=attempt.number,
        depth=attempt.params["depth"],
        steps=point.step,
        flops=point.flops,
        elapsed_s=point.elapsed_s,
        score=curve[-1][1],
        pruned=point.step < length.steps,
        scores_by_flops=curve,
        whole_flops=length.flops,
        **own,
    )
