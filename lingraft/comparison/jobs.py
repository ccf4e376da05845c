"""The jobs of a comparison, each after those that it depends on, and the folders that they fill."""

from collections.abc import Iterator
from pathlib import Path

from lingraft.comparison.evaluate import ArmEvaluation, FinetunedModels, PrimaryEvaluation
from lingraft.comparison.plan import MASKED, TRANSLATIONS, Arm, Comparison, FinetuningRun, PlannedPrimary
from lingraft.jobs.data import LanguageDirs, language_jobs
from lingraft.jobs.job import Job
from lingraft.jobs.training import (
    AdaptationJob,
    FinetuningJob,
    InitialisationJob,
    MiniBuildingJob,
    PretrainingJob,
    VectorsJob,
)


def comparison_jobs(comparison: Comparison, out: Path) -> Iterator[Job]:
    """Yield all jobs.

    Text comes first, where most can be missing; then, by pretraining seed, all embeddings and their scores on what
    needs no labels; then one task at a time, so that an interrupted run leaves whole tasks.
    """
    return _Jobs(comparison, out).all_of_them()


class _Jobs:
    def __init__(self, comparison: Comparison, out: Path) -> None:
        self.recipe, self.comparison, self.out = comparison.recipe, comparison, out
        self.source = self.recipe.source.language

    def all_of_them(self) -> Iterator[Job]:
        first: dict[Path, Job] = {}
        for arm in self.comparison.arms:
            for language in self.recipe.languages:
                first |= {job.made: job for job in self._language_jobs(arm, language) if job.made not in first}
        yield from first.values()
        if any(_needs_text(arm) for arm in self.comparison.arms):
            its = self._dirs(None, self.source)
            yield VectorsJob(
                recipe=self.recipe,
                language=self.source,
                blocks=its.blocks,
                tokenizer=its.tokenizer,
                out=self._vectors,
            )
        for seed in dict.fromkeys(primary.seed for primary in self.comparison.primaries):
            primaries = [primary for primary in self.comparison.primaries if primary.seed == seed]
            for primary in primaries:
                yield from self._pretraining_jobs(primary)
            for language in self.recipe.targets:
                for primary in primaries:
                    yield from self._adaptation_jobs(primary, language)
            for task in self.recipe.tasks:
                for primary in primaries:
                    yield from self._task_jobs(primary, task.name)

    def _dirs(self, arm: Arm | None, language: str) -> LanguageDirs:
        """Folders of a language, whose tokenizer an arm's start may change; the source has one for all."""
        own = LanguageDirs.under(self.out, language)
        if arm is None or language == self.source or arm.recipe.tokenizer == self.recipe.tokenizer:
            return own
        return LanguageDirs.under(self.out / f"from-{arm.start}", language)._replace(text=own.text)

    def _language_jobs(self, arm: Arm, language: str) -> list[Job]:
        recipe = self.recipe if language == self.source else arm.recipe
        borrows = recipe.tokenizer.borrow and language != self.source
        lender = self._dirs(None, self.source).tokenizer if borrows else None
        return language_jobs(recipe, language, self._dirs(arm, language), lender)

    def _pretraining_jobs(self, primary: PlannedPrimary) -> Iterator[Job]:
        source = self._dirs(None, self.source)
        yield PretrainingJob(
            recipe=primary.recipe,
            blocks=source.blocks,
            tokenizer=source.tokenizer,
            out=self._primary(primary.name),
            own_name=f"pretrain-{primary.name}",
            own_title=f"pretraining of {primary.title}",
        )
        yield self._source_evaluation(primary, MASKED)
        minis = {self._mini(arm): arm for arm in primary.arms if arm.recipe.builds_mini}
        for folder, arm in minis.items():
            yield MiniBuildingJob(
                recipe=arm.recipe,
                primary=self._primary(primary.name),
                blocks=source.blocks,
                out=folder,
                own_name=f"build-mini-{folder.name}",
                own_title=f"mini-model of {arm.title}",
            )

    def _adaptation_jobs(self, primary: PlannedPrimary, language: str) -> Iterator[Job]:
        starts = {arm.start: arm for arm in primary.arms if _needs_text(arm)}
        for arm in starts.values():
            yield self._initialisation(arm, language)
        for arm in primary.arms:
            yield self._adaptation(arm, language)
            for task in arm.tasks_in(language):
                if task in (MASKED, TRANSLATIONS):
                    yield self._evaluation(primary, arm, language, task)

    def _task_jobs(self, primary: PlannedPrimary, task: str) -> Iterator[Job]:
        """Finetuning of a primary on one task, and all evaluations on it."""
        for wanted in primary.finetunings(task):
            yield self._finetuning(primary, wanted)
        if task in primary.arms[0].tasks_in(self.source):
            yield self._source_evaluation(primary, task)
        for language in self.recipe.targets:
            for arm in primary.arms:
                if task in arm.tasks_in(language):
                    yield self._evaluation(primary, arm, language, task)

    def _finetuning(self, primary: PlannedPrimary, wanted: FinetuningRun) -> Job:
        models = self._models(primary, wanted.task)
        return FinetuningJob(
            recipe=primary.recipe,
            task=wanted.task,
            seed=wanted.seed,
            primary=models.primary,
            text=self._dirs(None, self.source).text,
            layers=None if wanted.layers == primary.layers else wanted.layers,
            out=wanted.path_in(models.tasks),
            own_name=f"finetune-{primary.name}-{wanted.task}-{wanted.layers}-layers-seed-{wanted.seed}",
            own_title=f"finetuning of {primary.title}, {wanted.layers} layers, on {wanted.task!r}, seed {wanted.seed}",
        )

    def _initialisation(self, arm: Arm, language: str) -> Job:
        """Initial rows, for all arms of a primary with the same start."""
        dirs = self._dirs(arm, language)
        start = f" from {arm.start}" if arm.start else ""
        return InitialisationJob(
            recipe=arm.recipe,
            language=language,
            primary=self._primary(arm.primary),
            tokenizer=dirs.tokenizer,
            blocks=dirs.blocks,
            source_vectors=self._vectors,
            out=self._initial(arm, language),
            own_name=f"initialise-{language}-{arm.primary}{start.replace(' ', '-')}",
            own_title=f"initial embeddings of {language!r}{start} for {arm.primary}",
        )

    def _adaptation(self, arm: Arm, language: str) -> Job:
        dirs = self._dirs(arm, language)
        return AdaptationJob(
            recipe=arm.recipe,
            depth=arm.depth,
            language=language,
            primary=self._primary(arm.primary),
            blocks=dirs.blocks,
            tokenizer=dirs.tokenizer,
            mini=self._mini(arm) if arm.recipe.builds_mini else None,
            initial=self._initial(arm, language) if _needs_text(arm) else None,
            out=self._adapted(arm, language),
            has_curve=True,
            own_name=f"adapt-{language}-{arm.name}",
            own_title=f"adaptation of {language!r} by {arm.title}",
        )

    def _evaluation(self, primary: PlannedPrimary, arm: Arm, language: str, task: str) -> Job:
        paper = self.recipe.paper
        return ArmEvaluation(
            recipe=arm.recipe,
            arm=arm,
            models=self._models(primary, task),
            dirs=self._dirs(arm, language),
            curve=self._adapted(arm, language),
            language=language,
            start=(self._initial(arm, language), self._vectors) if _needs_text(arm) else (),
            only_ends=paper is not None and task in paper.without_curves,
            out=self.out / "evaluated" / arm.name / language / task,
        )

    def _source_evaluation(self, primary: PlannedPrimary, task: str) -> Job:
        return PrimaryEvaluation(
            recipe=primary.recipe,
            models=self._models(primary, task),
            dirs=self._dirs(None, self.source),
            language=self.source,
            out=self.out / "evaluated" / primary.name / task,
        )

    def _models(self, primary: PlannedPrimary, task: str) -> FinetunedModels:
        return FinetunedModels(primary, task, self._primary(primary.name), self.out / "task" / primary.name)

    @property
    def _vectors(self) -> Path:
        return self.out / "vectors"

    def _primary(self, name: str) -> Path:
        return self.out / "primary" / name

    def _initial(self, arm: Arm, language: str) -> Path:
        return self.out / "initial" / (f"{arm.primary}-{arm.start}" if arm.start else arm.primary) / language

    def _adapted(self, arm: Arm, language: str) -> Path:
        return self.out / "adaptation" / arm.name / language

    def _mini(self, arm: Arm) -> Path:
        """Folder of an arm's mini-model, which does not depend on the start."""
        return self.out / "mini" / arm.name.removesuffix(f"-{arm.start}" if arm.start else "")


def _needs_text(arm: Arm) -> bool:
    return arm.recipe.adaptation.initialisation.needs_text
