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
from lingraft.artifacts.files import sha256_of
from lingraft.artifacts.manifest import Kind
from lingraft.config.recipe import Recipe
from lingraft.console import PlannedStep, TotalProgress, say
from lingraft.data.documents import text_files
from lingraft.data.splits import SplitName
from lingraft.data.tokenizer.tokenizer import Tokenizer, TooManyPiecesError, train_tokenizer
from lingraft.errors import RecipeError
from lingraft.huggingface import require_transformers
from lingraft.jobs.data import BlocksJob, TextJob, TokenizerJob
from lingraft.jobs.evaluation import LanguageEvaluationJob
from lingraft.jobs.training import AdaptationJob, InitialisationJob
from lingraft.model.loading import load_mini, load_primary
from lingraft.new_language.exports import CHECKPOINT, Exports
from lingraft.new_language.recipe import Basis, LanguageRecipe, Wanted, shown
from lingraft.new_language.stage import run_stage
from lingraft.new_language.summary import AddedLanguage
from lingraft.new_language.tasks import LanguageTask, NotJudgedError, open_tasks
from lingraft.stages.alignment_probe import Reference
from lingraft.stages.results import load_language
from lingraft.training.schedule import MetricsCallback, ignore_metrics

PathLike = Path | str
NOTHING_WANTED = Wanted()
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
) -> AddedLanguage:
    """Teach a primary one more language, judge it, and export it (paper section 2, steps 2 and 4).

    Args:
        primary: artifact from `lingraft pretrain` or `lingraft import`. Embeddings are learned over its shallowest
            mini-model; if it has one MLM head only, and no `mini` is given, over all its layers.
        text: files of the language, or folders of files: plain text or JSONL, optionally .gz, .xz or .zst.
        language: BCP 47 tag of the language of the text.
        out: folder of all results; stages whose results it holds are skipped.
        tasks: finetunings of the primary, one artifact a task and seed.
        recipe: recipe of the primary, or its TOML file; brings the settings that `wanted` does not name, and the test
            examples of its tasks.
        vectors: static vectors of the source language (`lingraft vectors`), for a recipe with initialisation 'aligned'.
        source_evaluation: artifact from `lingraft evaluate-source`; absent: alignment with the source is not measured.

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
    settled = LanguageRecipe.of(language, paths, Basis.of(Path(primary), source, fresh), wanted, base)
    run = _AddedLanguageRun(
        primary=Path(primary),
        mini=Path(mini) if mini else None,
        vectors=_vectors_for(settled.recipe, vectors),
        source_evaluation=evaluation,
        paths=paths,
        language=language,
        out=Path(out),
        settled=settled,
        tasks=open_tasks([Path(task) for task in tasks], source.fingerprint, base.tasks if base else ()),
    )
    run.require_ready()
    with TotalProgress(run.plan()).shown():
        return run.run()


class _FilesPreparation(TextJob, frozen=True):
    """Reads text whose provenance is the content of its files, wherever they lie."""

    paths: tuple[Path, ...]

    @property
    @override
    def settings(self) -> Mapping[str, Any]:
        files = {
            f"{place + 1}-{number + 1} {file.name}": sha256_of(file)
            for place, path in enumerate(self.paths)
            for number, file in enumerate(text_files(path))
        }
        cleaning = self.recipe.text.cleaning
        cleaned = {"cleaning": cleaning.model_dump()} if cleaning else {}
        return {"language": self.tag, "files": files, "split": self.recipe.split.model_dump(), **cleaned}


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
    """Static vectors of the source; None where rows are drawn by a seed."""
    source_evaluation: Path | None
    paths: Sequence[Path]
    language: str
    out: Path
    settled: LanguageRecipe
    tasks: dict[str, LanguageTask]

    @property
    def has_head(self) -> bool:
        """Whether the primary has an MLM head, and so is exported without a task, too."""
        return bool(self.settled.recipe.encoder.mlm_heads)

    def plan(self) -> list[PlannedStep]:
        """Return all stages for their progress; the time of the training follows from text that is not read yet."""
        light: list[str] = [Kind.TEXT, Kind.TOKENIZER, Kind.BLOCKS, Kind.EVALUATION, *len(self.tasks) * [Kind.BUNDLE]]
        light += [_INITIAL] if self.vectors else []
        checkpoints = (self.has_head + len(self.tasks)) * [CHECKPOINT]
        return [PlannedStep(Kind.EMBEDDINGS, flops=None), *map(PlannedStep, light), *map(PlannedStep, checkpoints)]

    def require_ready(self) -> None:
        """Check text, labels and outputs, all at once, before anything is computed."""
        tasks = [task.settings.model_copy(update={"labels": tuple(task.labels)}) for task in self.tasks.values()]
        smaller = self.settled.may_shrink_vocabulary
        preflight.require_addable(self.settled.recipe, self.language, tasks, self.out, smaller)

    def run(self) -> AddedLanguage:
        text, pieces, packed = self._prepared()
        tokenizer = Tokenizer.from_artifact(pieces)
        examples, left_out = self._examine_tasks(text, tokenizer)
        tokens = packed.manifest.detail("tokens", dict[SplitName, int])
        train_blocks = tokens.get("train", 0) // packed.manifest.detail("block_tokens", PositiveInt)
        recipe = self.settled.for_blocks(train_blocks)
        say(f"{self.language!r} is added by these settings:\n{shown(recipe, train_blocks, len(tokenizer))}")
        initial = self._initial(recipe, pieces, packed)
        learned = run_stage(
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
        scores = run_stage(
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
            data=(text.folder, packed.folder),
            out=self.out,
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
        )

    def _prepared(self) -> tuple[Artifact, Artifact, Artifact]:
        common: dict[str, Any] = {"recipe": self.settled.recipe, "language": self.language}
        text = run_stage(_FilesPreparation(paths=tuple(self.paths), out=self.out / "text", **common))
        pieces = run_stage(
            _FittingTokenizer(
                text=text.folder,
                source=self.primary if self.settled.recipe.tokenizer.borrow else None,
                may_shrink=self.settled.may_shrink_vocabulary,
                out=self.out / "tokenizer",
                **common,
            )
        )
        blocks = BlocksJob(text=text.folder, tokenizer=pieces.folder, out=self.out / "blocks", **common)
        return text, pieces, run_stage(blocks)

    def _examine_tasks(self, text: Artifact, tokenizer: Tokenizer) -> tuple[dict[str, str], dict[str, str]]:
        """Hashes of the test examples of tasks that can be judged, and the reasons why others cannot."""
        digests = {}
        reasons = {}
        for name, task in self.tasks.items():
            try:
                digests[name] = task.examine(self.language, text, tokenizer)
            except NotJudgedError as error:
                reasons[f"judged on task {name!r}"] = str(error)
                say(f"task {name!r} will not be judged: {error}")
        return digests, reasons

    def _initial(self, recipe: Recipe, pieces: Artifact, packed: Artifact) -> Path | None:
        if self.vectors is None:
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
        return run_stage(job, _INITIAL).folder


def _vectors_for(recipe: Recipe, vectors: PathLike | None) -> Path | None:
    how = recipe.adaptation.initialisation
    if not how.needs_text:
        return None
    if vectors is None:
        raise RecipeError(
            f"the recipe's adaptation.initialisation is '{how}', which compares the language with the source's static "
            "vectors. Give the results that have them (--results), or compute them (`lingraft vectors`, from the "
            "source's blocks) and give their folder (--vectors)."
        )
    return Path(vectors)
