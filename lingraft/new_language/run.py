"""The whole language lane as one call: text, tokenizer, blocks, embeddings, evaluation, exported models.

Each stage leaves an artifact under one folder, beside what it was made from. Called again, the lane goes on after the
last stage that was finished; a stage that would now be made from something else is refused.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pydantic import PositiveInt

from lingraft import preflight
from lingraft.artifacts.artifact import Artifact, Kind
from lingraft.artifacts.cache import artifact_fingerprint
from lingraft.artifacts.files import sha256_of
from lingraft.config.recipe import Recipe
from lingraft.console import PlannedStep, TotalProgress, say
from lingraft.data.bilingual_dictionary import translation_hashes
from lingraft.data.blocks import build
from lingraft.data.documents import text_files
from lingraft.data.splits import SplitName
from lingraft.data.text import prepare
from lingraft.data.tokenizer.tokenizer import Tokenizer, TooManyPiecesError, train_tokenizer
from lingraft.errors import MissingExtraError, RecipeError
from lingraft.model.loading import load_mini, load_primary
from lingraft.new_language.exports import CHECKPOINT, Exports
from lingraft.new_language.recipe import Basis, LaneRecipe, Wanted, shown
from lingraft.new_language.stage import run_stage
from lingraft.new_language.summary import MASKED_LM, AddedLanguage
from lingraft.new_language.tasks import LanguageTask, NotJudgedError, open_tasks
from lingraft.stages.adapt import adapt
from lingraft.stages.alignment_probe import Reference
from lingraft.stages.evaluate import evaluate_language
from lingraft.stages.initialise import initialise, mark_of
from lingraft.stages.results import ALIGNMENT, load_language
from lingraft.training.schedule import ignore_metrics

PathLike = Path | str
NOTHING_BY_NAME = Wanted()
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
    wanted: Wanted = NOTHING_BY_NAME,
    vectors: PathLike | None = None,
    source_evaluation: PathLike | None = None,
) -> AddedLanguage:
    """Teach a primary one more language, judge it, and export it (paper section 2, steps 2 and 4).

    Args:
        primary: from `lingraft pretrain` or `lingraft import`. Embeddings are learned over its shallowest mini-model;
            if it has one MLM head only, and no `mini` is given, over all its layers.
        text: files of the language, or folders of files: plain text or JSONL, optionally .gz, .xz or .zst.
        language: BCP 47 tag of what they are written in.
        out: folder of all results. What is there from an earlier call is kept, and not made again.
        tasks: finetuned from the primary, one artifact a task and seed.
        mini: MINIPOST's mini-model of the primary.
        recipe: of the primary, or its TOML file; brings the settings that `wanted` does not name.
        wanted: settings by name.
        vectors: static vectors of the source language (`lingraft vectors`), for a recipe with initialisation 'aligned'.
        source_evaluation: from `lingraft evaluate-source`; absent: alignment with the source is not measured.

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
    _require_transformers()
    paths = [Path(path) for path in ([text] if isinstance(text, Path | str) else text)]
    source, fresh = load_primary(Path(primary)), load_mini(Path(mini)) if mini else None
    if fresh:
        fresh.build_model(source)
    evaluation = Path(source_evaluation) if source_evaluation else None
    reference = Reference.load(evaluation, source) if evaluation else None
    base = Recipe.load(Path(recipe)) if isinstance(recipe, Path | str) else recipe
    settled = LaneRecipe.of(language, paths, Basis.of(source, fresh), wanted, base)
    lane = _Lane(
        primary=Path(primary),
        mini=Path(mini) if mini else None,
        vectors=_vectors_for(settled.recipe, vectors),
        source_evaluation=evaluation,
        paths=paths,
        language=language,
        out=Path(out),
        settled=settled,
        tasks=open_tasks([Path(task) for task in tasks], source.fingerprint),
        marks={"primary": source.fingerprint} | ({"mini": fresh.fingerprint} if fresh else {}),
        compared_with={ALIGNMENT: reference.mark} if reference else {},
    )
    lane.require_ready()
    with TotalProgress(lane.plan()).shown():
        return lane.run()


@dataclass(frozen=True)
class _Lane:
    """Inputs that fit together, and the stages on them."""

    primary: Path
    mini: Path | None
    vectors: Path | None
    """Of the source; only where rows are not drawn by a seed."""
    source_evaluation: Path | None
    paths: Sequence[Path]
    language: str
    out: Path
    settled: LaneRecipe
    tasks: dict[str, LanguageTask]
    marks: dict[str, str]
    """Fingerprints of primary and mini-model."""
    compared_with: dict[str, str]
    """Fingerprint of the source's hidden states, where its evaluation was given."""

    def plan(self) -> list[PlannedStep]:
        """All stages, for their progress; how long the training takes follows from the text, which is not read yet."""
        light: list[str] = [Kind.TEXT, Kind.TOKENIZER, Kind.BLOCKS, Kind.EVALUATION, *len(self.tasks) * [Kind.BUNDLE]]
        light += [_INITIAL] if self.vectors else []
        checkpoints = (1 + len(self.tasks)) * [CHECKPOINT]
        return [PlannedStep(Kind.EMBEDDINGS, flops=None), *map(PlannedStep, light), *map(PlannedStep, checkpoints)]

    def require_ready(self) -> None:
        """Check text, labels and outputs, all at once, before anything is computed."""
        tasks = [task.settings.model_copy(update={"labels": tuple(task.labels)}) for task in self.tasks.values()]
        smaller = self.settled.largest_vocabulary
        preflight.require_addable(self.settled.recipe, self.language, tasks, self.out, smaller)

    def run(self) -> AddedLanguage:
        """All stages in order."""
        text = self._text()
        pieces = self._tokenizer(text)
        packed = self._blocks(text, pieces)
        tokenizer = Tokenizer.from_artifact(pieces)
        digests, left_out = self._examined(text, tokenizer)
        tokens = packed.manifest.detail("tokens", dict[SplitName, int])
        train_blocks = tokens.get("train", 0) // packed.manifest.detail("block_tokens", PositiveInt)
        recipe = self.settled.for_blocks(train_blocks)
        say(f"{self.language!r} is added by these settings:\n{shown(recipe, train_blocks, len(tokenizer))}")
        initial = self._initial(recipe, pieces, packed)
        learned = self._embeddings(recipe, pieces, packed, initial)
        judged = recipe.model_copy(
            update={"tasks": tuple(self.tasks[name].in_recipe(self.language) for name in digests)}
        )
        scores = self._evaluation(judged, digests, text, packed, learned, initial)
        exports = Exports(self.primary, self.tasks, learned, scores, (text.folder, packed.folder), self.out)
        bundles, unbundled = exports.bundles()
        return AddedLanguage(
            language=self.language,
            embeddings=learned.folder,
            scores=load_language(scores.folder),
            hf=exports.checkpoints(),
            loaders={MASKED_LM: "AutoModelForMaskedLM"} | {name: task.auto_class for name, task in self.tasks.items()},
            bundles=bundles,
            left_out=left_out | unbundled,
        )

    def _text(self) -> Artifact:
        recipe = self.settled.recipe
        files = {
            f"{place + 1}-{number + 1} {file.name}": sha256_of(file)
            for place, path in enumerate(self.paths)
            for number, file in enumerate(text_files(path))
        }
        made_from = {"language": self.language, "files": files, "split": recipe.split.model_dump()}
        if recipe.text.cleaning:
            made_from["cleaning"] = recipe.text.cleaning.model_dump()
        return run_stage(self.out / "text", Kind.TEXT, made_from, lambda out: prepare(recipe, self.language, out))

    def _tokenizer(self, text: Artifact) -> Artifact:
        settings = self.settled.recipe.tokenizer
        made_from: dict[str, Any] = {"text": text.fingerprint, "settings": settings.model_dump()}
        made_from |= {"fewer_pieces_if_the_text_supports_no_more": self.settled.largest_vocabulary}
        return run_stage(
            self.out / "tokenizer", Kind.TOKENIZER, made_from, lambda out: self._train_tokenizer(text, out)
        )

    def _train_tokenizer(self, text: Artifact, out: Path) -> Artifact:
        recipe = self.settled.recipe
        while True:
            try:
                return train_tokenizer(recipe, text.folder, out)
            except TooManyPiecesError as error:
                if not self.settled.largest_vocabulary:
                    raise
                say(
                    f"the text supports {error.supported} pieces at most, so it gets so many instead of "
                    f"{recipe.tokenizer.vocabulary}"
                )
                fewer = recipe.tokenizer.model_copy(update={"vocabulary": error.supported})
                recipe = recipe.model_copy(update={"tokenizer": fewer})

    def _blocks(self, text: Artifact, pieces: Artifact) -> Artifact:
        recipe = self.settled.recipe
        made_from = {"text": text.fingerprint, "tokenizer": pieces.fingerprint}
        made_from |= {"block_tokens": str(recipe.encoder.block_tokens)}
        return run_stage(
            self.out / "blocks", Kind.BLOCKS, made_from, lambda out: build(recipe, text.folder, pieces.folder, out)
        )

    def _examined(self, text: Artifact, tokenizer: Tokenizer) -> tuple[dict[str, str], dict[str, str]]:
        """Hashes of the test examples of tasks that can be judged, and why the others cannot."""
        digests, reasons = {}, {}
        for name, task in self.tasks.items():
            try:
                digests[name] = task.examine(self.language, text, tokenizer)
            except NotJudgedError as error:
                reasons[f"judged on task {name!r}"] = str(error)
                say(f"task {name!r} will not be judged: {error}")
        return digests, reasons

    def _initial(self, recipe: Recipe, pieces: Artifact, packed: Artifact) -> Path | None:
        """Embeddings at update 0, where adaptation cannot draw them itself."""
        if self.vectors is None:
            return None
        settings, vectors = recipe.adaptation, self.vectors
        made_from = self.marks | {"tokenizer": pieces.fingerprint, "blocks": packed.fingerprint}
        made_from |= {
            "vectors": artifact_fingerprint(vectors),
            "initialisation": settings.initialisation,
            "seed": str(settings.seed),
        }
        made_from |= translation_hashes(recipe, self.language)
        folders = self.primary, pieces.folder
        return run_stage(
            self.out / "initial",
            Kind.EMBEDDINGS,
            made_from,
            lambda out: initialise(recipe, *folders, out, packed.folder, vectors),
            _INITIAL,
        ).folder

    def _embeddings(self, recipe: Recipe, pieces: Artifact, packed: Artifact, initial: Path | None) -> Artifact:
        settings = recipe.adaptation
        made_from = self.marks | {"tokenizer": pieces.fingerprint, "blocks": packed.fingerprint}
        made_from |= {"system": recipe.system, "precision": recipe.precision, **mark_of(initial)}
        folders = self.primary, packed.folder, pieces.folder
        return run_stage(
            self.out / "embeddings",
            Kind.EMBEDDINGS,
            made_from | {"adaptation": settings.model_dump(mode="json")},
            lambda out: adapt(recipe, *folders, settings.depth, out, ignore_metrics, mini=self.mini, initial=initial),
        )

    def _evaluation(
        self,
        recipe: Recipe,
        digests: Mapping[str, str],
        text: Artifact,
        packed: Artifact,
        learned: Artifact,
        initial: Path | None,
    ) -> Artifact:
        judged = {name: self.tasks[name] for name in digests}
        folders = [folder for task in judged.values() for folder in task.folders.values()]
        made_from = self.marks | {"embeddings": learned.fingerprint, "blocks": packed.fingerprint}
        made_from |= self.compared_with
        marks = {name: {str(seed): mark for seed, mark in task.marks.items()} for name, task in judged.items()}
        inputs = folders, text.folder, packed.folder
        return run_stage(
            self.out / "evaluation",
            Kind.EVALUATION,
            made_from | {"tasks": marks, "examples": dict(digests)},
            lambda out: evaluate_language(
                recipe, self.primary, learned.folder, *inputs, out, self.mini, initial, self.source_evaluation
            ),
        )


def _vectors_for(recipe: Recipe, vectors: PathLike | None) -> Path | None:
    """The source's static vectors if the recipe needs them."""
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


def _require_transformers() -> None:
    """It is better known before the training than after it."""
    if find_spec("transformers") is None:
        raise MissingExtraError("transformers", "huggingface")
