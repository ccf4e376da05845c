"""Optuna's search of a language's mini-model depth: the best one depends on the language (section 5.2, table 4)."""

import hashlib
from pathlib import Path

from lingraft import masked_lm, precision, results
from lingraft.adaptation import adaptation_run, initial_rows, mini_of
from lingraft.artifact import Artifact, Cost, Kind
from lingraft.blocks import load_blocks, split
from lingraft.config import Recipe
from lingraft.embeddings import swap
from lingraft.encoder import Encoder
from lingraft.errors import MissingExtraError, TrackingError
from lingraft.files import require_new
from lingraft.models import load_primary
from lingraft.progress import shown
from lingraft.results import SearchResult, Trial
from lingraft.runs import Watch, step_flops
from lingraft.systems import Stage
from lingraft.tokenizer import Tokenizer
from lingraft.training_config import Search

try:
    import optuna
    from sqlalchemy import make_url
    from sqlalchemy.exc import SQLAlchemyError
except ImportError as error:
    raise MissingExtraError("optuna", "search") from error

_LOOKS = 4
"""Times that a trial is judged, the last at its end, so that a hopeless one can be stopped."""

_RECORD = "record"
"""Optuna's name for what we keep of a trial beside its score."""


def search(
    recipe: Recipe, primary: Path, blocks: Path, tokenizer: Path, storage: str | None, out: Path, watch: Watch
) -> Artifact:
    """Choose the depth whose short adaptation gives the best masked accuracy, all depths at equal FLOPs.

    A trial is judged on the dev split by the primary with the trial's rows swapped in, which is what will be served,
    and not by its own mini-model.

    Args:
        recipe: with its [search].
        primary: the primary, with its heads.
        blocks: blocks of the language that [search] names.
        tokenizer: the language's tokenizer.
        storage: an Optuna storage URL; a search that was interrupted goes on from there. None keeps it in memory.
        out: where the result goes.
        watch: is told every point of each trial.

    Raises:
        RecipeError: the recipe has no [search], or its [encoder] is not the primary's.
        DepthError: the primary has no MLM head at one of the depths.
        TokenizerError: the tokenizer is not the language's, or the blocks were made with another.
        TrackingError: the storage cannot be used.
        ArtifactError: an input is not what it should be, or `out` cannot be written.
    """
    require_new(out)
    wanted = recipe.require_search()
    trials = _Trials(recipe, wanted, primary, blocks, tokenizer, watch)
    study = _study(f"{recipe.name}-{wanted.language}-{trials.digest()[:12]}", storage)
    for depth in sorted(set(trials.depths) - _finished(study).keys()):
        study.enqueue_trial({"depth": depth})
        study.optimize(trials, n_trials=1)
    result = SearchResult(
        language=wanted.language,
        primary=trials.source.fingerprint,
        chosen=int(study.best_params["depth"]),
        trials=[trial for _, trial in sorted(_finished(study).items())],
    )
    facts = {"language": result.language, "aligned_with": result.primary, "data_hashes": trials.data_hashes}
    settings = wanted.model_dump(mode="json")
    return results.save(result, Kind.SEARCH, out, **facts, recipe=settings, cost=_cost(recipe, result.trials))


def _study(name: str, storage: str | None) -> optuna.Study:
    try:
        return optuna.create_study(
            storage=storage,
            study_name=name,
            direction="maximize",
            pruner=optuna.pruners.MedianPruner(n_startup_trials=2, n_warmup_steps=1),
            load_if_exists=True,
        )
    except (SQLAlchemyError, optuna.exceptions.StorageInternalError) as error:
        raise TrackingError(
            f"the Optuna storage {_without_password(storage)} cannot be used: {error}. Give the URL of a database that "
            "can be written, such as sqlite:///optuna.db, and see that its folder or server is there."
        ) from error


def _without_password(storage: str | None) -> str:
    try:
        return make_url(storage or "").render_as_string(hide_password=True)
    except SQLAlchemyError:
        return "that is given"


def _cost(recipe: Recipe, trials: list[Trial]) -> Cost:
    """What all trials together took."""
    steps = sum(trial.steps for trial in trials)
    return Cost(
        steps=steps,
        tokens=steps * recipe.adaptation.batch_blocks * recipe.encoder.block_tokens,
        flops=sum(trial.flops for trial in trials),
        elapsed_s=sum(trial.elapsed_s for trial in trials),
    )


def _finished(study: optuna.Study) -> dict[int, Trial]:
    """What was found at each depth; a trial that was broken off on the way counts as untried."""
    ended = (optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.PRUNED)
    found = [Trial(**trial.user_attrs[_RECORD]) for trial in study.get_trials(deepcopy=False, states=ended)]
    return {trial.depth: trial for trial in found}


class _Trials:
    """Optuna's objective; the primary, the blocks and the initial rows are shared by all trials."""

    def __init__(
        self, recipe: Recipe, search: Search, primary: Path, blocks: Path, tokenizer: Path, watch: Watch
    ) -> None:
        self.recipe, self.search, self.watch = recipe, search, watch
        self.source = load_primary(primary, recipe.primary_shape)
        pieces = Tokenizer.load(tokenizer, search.language)
        self.data = load_blocks(blocks, pieces, recipe.encoder.block_tokens)
        self.train, self.dev_NT = split(self.data, "train"), split(self.data, "dev").all()
        self.rows = initial_rows(recipe, self.source, pieces)
        self.depths = search.depths or self.source.encoder.depths
        for depth in self.depths:
            self.source.encoder.require_depth(depth)

    @property
    def data_hashes(self) -> dict[str, str]:
        """What the search was made from."""
        return {"primary": self.source.fingerprint, "blocks": self.data.fingerprint}

    def digest(self) -> str:
        """Of all that a trial's score hangs on: a search with other settings or data goes on from no earlier trial."""
        settings = (self.recipe.adaptation.model_dump_json(), self.search.model_dump_json())
        facts = (self.source.fingerprint, self.data.fingerprint, *settings)
        return hashlib.sha256("\n".join(facts).encode()).hexdigest()

    def __call__(self, trial: optuna.Trial) -> float:
        depth = int(trial.suggest_categorical("depth", self.depths))
        steps = self._steps(depth)
        settings = self.recipe.adaptation.model_copy(
            update={"steps": steps, "log_every_steps": -(-steps // _LOOKS), "warmup_steps": steps // 10}
        )
        step = self.recipe.steps_over(depth)[Stage.ADAPT]
        mini = mini_of(self.source, step, None)
        run = adaptation_run(self.recipe, step, mini, self.rows, self.train, settings)
        seen: list[tuple[float, float]] = []
        for look, point in enumerate(shown(run.points, steps, f"search {self.search.language}: depth {depth}")):
            self.watch(point)
            score = self._score(mini)
            seen.append((point.flops, score))
            trial.report(score, look)
            pruned = trial.should_prune() and point.step < steps
            record = Trial(
                depth=depth,
                steps=point.step,
                flops=point.flops,
                elapsed_s=point.elapsed_s,
                score=score,
                pruned=pruned,
                scores_by_flops=seen,
            )
            if pruned:
                break
        trial.set_user_attr(_RECORD, record.model_dump(mode="json"))
        if record.pruned:
            raise optuna.TrialPruned
        return record.score

    def _steps(self, depth: int) -> int:
        """Updates that cost what `steps_at_depth` updates cost over the recipe's own depth (equation A3)."""
        settings, vocabulary = self.recipe.adaptation, len(self.rows.bias_V)
        reference, own = (
            step_flops(self.recipe, self.recipe.steps_over(bottom)[Stage.ADAPT], settings, vocabulary)
            for bottom in (settings.depth, depth)
        )
        return max(1, round(self.search.steps_at_depth * reference / own))

    def _score(self, mini: Encoder) -> float:
        """Masked accuracy of the primary with what the mini-model has learned so far."""
        encoder = self.source.encoder
        swap(encoder, mini.vocabulary)
        top = encoder.shape.layers
        score = masked_lm.accuracy(encoder.to(precision.device()), self.dev_NT, (top,))[top]
        encoder.train()
        return score
