"""Adding a language as one call: text, tokenizer, blocks, embeddings, evaluation, exported models.

Each stage leaves an artifact under one folder, beside its provenance. A call that was interrupted resumes after the
last finished stage; a stage that would now be made from something else is refused.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import PositiveInt
from typing_extensions import override

from lingraft import preflight
from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.config.recipe import Recipe
from lingraft.config.tasks import Retrieval
from lingraft.console import PlannedStep, TotalProgress, never_silent, say
from lingraft.data.splits import SplitName
from lingraft.data.text import content_hashes
from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.data.tokenizer.training import train_tokenizer
from lingraft.data.tokenizer.unigram import TooManyPiecesError
from lingraft.errors import RecipeError
from lingraft.huggingface import require_transformers
from lingraft.jobs.data import BlocksJob, TextJob, TokenizerJob
from lingraft.jobs.evaluation import LanguageEvaluationJob
from lingraft.jobs.training import AdaptationJob, InitialisationJob
from lingraft.model.loading import load_mini, load_primary
from lingraft.new_language.exports import CHECKPOINT, Exports
from lingraft.new_language.recipe import Basis, LanguageRecipe, Resources, Wanted, shown
from lingraft.new_language.stage import Stages
from lingraft.new_language.summary import AddedLanguage
from lingraft.new_language.tasks import LanguageTask, NotJudgedError, open_tasks
from lingraft.stages.alignment_probe import Reference
from lingraft.stages.results import load_language
from lingraft.stages.sentence_pairs import has_pairs, learned_pairs
from lingraft.training.schedule import MetricsCallback, ignore_metrics

PathLike = Path | str
NOTHING_WANTED, NO_RESOURCES = Wanted(), Resources()
_INITIAL = "initial embeddings"
"""Name of a stage."""


def add_language(
    primary: PathLike,
    text: PathLike | Sequence[PathLike],
    language: str,
    out: PathLike,
    tasks: Sequence[PathLike] = (),
    mini: PathLike | None = None,
    recipe: PathLike | Recipe | None = None,
    wanted: Wanted = NOTHING_WANTED,
    vectors: PathLike | None = None,
    source_evaluation: PathLike | None = None,
    resources: Resources = NO_RESOURCES,
) -> AddedLanguage:
    """Teach a primary one more language, judge it, and export it (paper section 2, steps 2 and 4).

    Args:
        primary: artifact from `lingraft pretrain` or `lingraft import`. Embeddings are learned over its shallowest
            mini-model; if it has one MLM head only, and no `mini` is given, over all its layers. With none, as in an
            embedding model, they are learned over all its layers by sentence pairs.
        text: files of the language, or folders of files: plain text, pages or records, see `documents_or_errors`.
        language: BCP 47 tag of the language of the text.
        out: folder of all results; stages whose results it holds are skipped.
        tasks: finetunings of the primary, one artifact a task and seed.
        recipe: recipe of the primary, or its TOML file; brings the settings that `wanted` does not name, and the test
            examples of its tasks.
        vectors: static vectors of the source language (`lingraft vectors`), for a recipe with initialisation 'aligned'.
        source_evaluation: artifact from `lingraft evaluate-source`; absent: alignment with the source is not measured.
        resources: sentence pairs, a dictionary, or text of the source to mine pairs from; sentence pairs that are held
            out test an embedding model.

    Raises:
        NotReadyError: the text or the output cannot be used; the message lists everything that is wrong.
        RecipeError: a setting is impossible, or the recipe is not one for this primary, mini-model or language.
        DepthError: the primary has no MLM head at the depth asked for.
        AlignmentError: a task, the mini-model or the source's evaluation belongs to another primary.
        TextError: the text is missing, damaged or too little.
        TrainingError: the loss is not finite.
        ProvenanceMismatchError: `out` holds results of other inputs or settings.
        MissingExtraError: the extra 'huggingface' is not installed.
        ArtifactError: an input is not what it should be, or `out` cannot be written.
    """
    require_transformers()
    paths = [Path(path) for path in ([text] if isinstance(text, Path | str) else text)]
    source = load_primary(Path(primary))
    fresh = load_mini(Path(mini)) if mini else None
    if fresh:
        fresh.build_model(source)
    evaluation = Path(source_evaluation) if source_evaluation else None
    if evaluation:
        Reference.load(evaluation, source)  # refuses that of another primary
    base = Recipe.load(Path(recipe)) if isinstance(recipe, Path | str) else recipe
    judged = open_tasks([Path(task) for task in tasks], source.fingerprint, base.tasks if base else (), resources.pairs)
    searches = (task.settings.retrieval or Retrieval() for task in judged.values() if task.settings.kind == "retrieval")
    settled = LanguageRecipe.of(
        language=language,
        text=paths,
        basis=Basis.of(Path(primary), source, fresh),
        wanted=wanted,
        recipe=base,
        resources=resources,
        retrieval=next(searches, None),
    )
    settled.recipe.require_vectors(vectors)
    if vectors and not settled.recipe.needs_vectors:
        raise RecipeError(
            f"{vectors} (--vectors) is not read: rows of {language!r} are not aligned by it. Leave it out."
        )
    run = _AddedLanguageRun(
        primary=Path(primary),
        mini=Path(mini) if mini else None,
        vectors=Path(vectors) if vectors else None,
        source_evaluation=evaluation,
        language=language,
        out=Path(out),
        settled=settled,
        tasks=judged,
        stages=Stages(),
    )
    with never_silent("check the text"):
        run.require_ready()
    with TotalProgress(run.plan()).shown():
        return run.run()


class _FilesPreparation(TextJob, frozen=True):
    """Reads text whose provenance is the content of its files, wherever they lie."""

    @property
    @override
    def settings(self) -> Mapping[str, Any]:
        found = self.recipe.model_dump(mode="json", include={"text", "split"}, exclude={"text": {"paths"}})
        return {"language": self.tag, "files": content_hashes(self.recipe.text, self.tag), **found}


class _FittingTokenizer(TokenizerJob, frozen=True):
    """Trains a tokenizer whose vocabulary may shrink to what the text supports."""

    may_shrink: bool

    @property
    @override
    def settings(self) -> Mapping[str, Any]:
        return {**super().settings, "fewer_pieces_if_the_text_supports_no_more": self.may_shrink}

    @override
    def make(self, watch: MetricsCallback = ignore_metrics) -> Artifact:
        recipe = self.recipe
        while True:
            try:
                return train_tokenizer(recipe, self.text, self.out, self.source)
            except TooManyPiecesError as error:
                if not self.may_shrink:
                    raise
                say(
                    f"the text supports {error.supported} pieces at most, so it gets so many instead of "
                    f"{recipe.tokenizer.vocabulary}"
                )
                fewer = recipe.tokenizer.model_copy(update={"vocabulary": error.supported})
                recipe = recipe.model_copy(update={"tokenizer": fewer})


class _ExamplesEvaluation(LanguageEvaluationJob, frozen=True):
    examples: dict[str, str]
    """Hash of the test examples by task."""

    @property
    @override
    def settings(self) -> Mapping[str, Any]:
        return {"examples": self.examples, **self.recipe.model_dump(mode="json", include={"test_blocks"})}


@dataclass(frozen=True)
class _AddedLanguageRun:
    primary: Path
    mini: Path | None
    vectors: Path | None
    """Static vectors of the source; None where rows need none."""
    source_evaluation: Path | None
    language: str
    out: Path
    settled: LanguageRecipe
    tasks: dict[str, LanguageTask]
    stages: Stages

    @property
    def has_head(self) -> bool:
        """Whether the primary has an MLM head, and so is exported without a task, too."""
        return bool(self.settled.recipe.encoder.mlm_heads)

    def plan(self) -> list[PlannedStep]:
        """Return all stages for their progress; the time of the training follows from text that is not read yet."""
        light: list[str] = [Kind.TEXT, Kind.TOKENIZER, Kind.BLOCKS, Kind.EVALUATION, *len(self.tasks) * [Kind.BUNDLE]]
        light += [_INITIAL] if self.settled.recipe.adaptation.initialisation.needs_text else []
        checkpoints = (self.has_head + len(self.tasks)) * [CHECKPOINT]
        return [PlannedStep(Kind.EMBEDDINGS), *map(PlannedStep, light), *map(PlannedStep, checkpoints)]

    def require_ready(self) -> None:
        """Check text, labels and outputs, all at once, before anything is computed."""
        tasks = [task.settings.model_copy(update={"labels": tuple(task.labels)}) for task in self.tasks.values()]
        preflight.require_addable(self.settled.recipe, self.language, tasks, self.out)

    def run(self) -> AddedLanguage:
        text, pieces, packed = self._prepared()
        tokenizer = Tokenizer.from_artifact(pieces)
        examples, left_out = self._examine_tasks(text, tokenizer)
        tokens = packed.manifest.detail("tokens", dict[SplitName, int])
        train_blocks = tokens.get("train", 0) // packed.manifest.detail("block_tokens", PositiveInt)
        initial = self._initial(self.settled.recipe, pieces, packed)
        pair_tokens = self._pair_tokens(tokenizer, initial)
        recipe = self.settled.for_text(train_blocks, pair_tokens)
        if pair_tokens or not recipe.adaptation.pairs:
            settings = shown(recipe, train_blocks, len(tokenizer.own), pair_tokens)
            say(f"{self.language!r} is added by these settings:\n{settings}")
        learned = self.stages.run(
            AdaptationJob(
                recipe=recipe,
                depth=recipe.adaptation.depth,
                language=self.language,
                primary=self.primary,
                blocks=packed.folder,
                tokenizer=pieces.folder,
                mini=self.mini,
                initial=initial,
                out=self.out / "embeddings",
            )
        )
        tasks = tuple(self.tasks[name].in_recipe(self.language) for name in examples)
        scores = self.stages.run(
            _ExamplesEvaluation(
                recipe=recipe.model_copy(update={"tasks": tasks}),
                language=self.language,
                primary=self.primary,
                embeddings=learned.folder,
                tasks=tuple(folder for name in examples for folder in self.tasks[name].folders.values()),
                text=text.folder,
                blocks=packed.folder,
                mini=self.mini,
                initial=initial,
                source_evaluation=self.source_evaluation,
                examples=examples,
                out=self.out / "evaluation",
            )
        )
        exports = Exports(
            recipe=recipe,
            primary=self.primary,
            tasks=self.tasks,
            has_head=self.has_head,
            learned=learned,
            scores=scores,
            out=self.out,
            stages=self.stages,
        )
        bundles, unbundled = exports.bundles()
        checkpoints = exports.checkpoints()
        return AddedLanguage(
            language=self.language,
            embeddings=learned.folder,
            scores=load_language(scores.folder),
            hf=checkpoints,
            loaders={
                name: self.tasks[name].loader if name in self.tasks else "AutoModelForMaskedLM" for name in checkpoints
            },
            bundles=bundles,
            left_out=left_out | unbundled,
            seconds=self.stages.seconds,
        )

    def _prepared(self) -> tuple[Artifact, Artifact, Artifact]:
        common: dict[str, Any] = {"recipe": self.settled.recipe, "language": self.language}
        text = self.stages.run(_FilesPreparation(out=self.out / "text", **common))
        pieces = self.stages.run(
            _FittingTokenizer(
                text=text.folder,
                source=self.primary if self.settled.recipe.tokenizer.borrow else None,
                may_shrink=self.settled.may_shrink_vocabulary,
                out=self.out / "tokenizer",
                **common,
            )
        )
        blocks = BlocksJob(text=text.folder, tokenizer=pieces.folder, out=self.out / "blocks", **common)
        return text, pieces, self.stages.run(blocks)

    def _examine_tasks(self, text: Artifact, tokenizer: Tokenizer) -> tuple[dict[str, str], dict[str, str]]:
        """Hashes of the test examples of tasks that can be judged, and the reasons why others cannot."""
        digests = {}
        reasons = {}
        for name, task in self.tasks.items():
            try:
                digests[name] = task.examine(self.language, self.settled.recipe.source.language, text, tokenizer)
            except NotJudgedError as error:
                reasons[f"judged on task {name!r}"] = str(error)
                say(f"task {name!r} will not be judged: {error}")
        return digests, reasons

    def _pair_tokens(self, tokenizer: Tokenizer, initial: Path | None) -> int:
        """Tokens of the sentence pairs that the language learns by; 0 without pairs."""
        recipe = self.settled.recipe
        if not recipe.adaptation.pairs or not has_pairs(recipe, self.language, initial):
            return 0
        pairs = learned_pairs(recipe, self.language, initial)
        return sum(map(len, tokenizer.encode_all([pair.target for pair in pairs])))

    def _initial(self, recipe: Recipe, pieces: Artifact, packed: Artifact) -> Path | None:
        if not recipe.adaptation.initialisation.needs_text:
            return None
        job = InitialisationJob(
            recipe=recipe,
            language=self.language,
            primary=self.primary,
            tokenizer=pieces.folder,
            blocks=packed.folder,
            source_vectors=self.vectors,
            out=self.out / "initial",
        )
        return self.stages.run(job, _INITIAL).folder
