"""The comparison's jobs: each makes one artifact from folders, and says what that depends on.

They are the same whether `lingraft.comparison.runner` runs them one after another or a pipeline runs them as steps.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from lingraft import stages
from lingraft.adaptation import adapt
from lingraft.artifact import Artifact, Kind
from lingraft.blocks import build as build_blocks
from lingraft.comparison.failures import recorded, require_made, why
from lingraft.comparison.plan import Arm, Finetuning, PlannedPrimary
from lingraft.config import Recipe
from lingraft.resumed import mark
from lingraft.runs import Watch
from lingraft.systems import Stage
from lingraft.text import prepare as prepare_text
from lingraft.tokenizer import train as train_tokenizer
from lingraft.training_config import Training

CHECKPOINTS, EMBEDDINGS = "checkpoints", "embeddings"
"""In the folder of an adaptation: the embeddings along the way, and those at the end."""


class Lane(NamedTuple):
    """Folders of one language's text, tokenizer and blocks."""

    text: Path
    tokenizer: Path
    blocks: Path

    @classmethod
    def under(cls, folder: Path, language: str) -> "Lane":
        """Where a language's are among those of others."""
        return cls(*(folder / noun / language for noun in cls._fields))


@dataclass(frozen=True)
class Job:
    """One artifact that is yet to be made."""

    name: str
    """One word, for tracking."""
    title: str
    """For people."""
    kind: Kind
    out: Path
    inputs: Mapping[str, Path]
    """Folders by what they are."""
    settings: Mapping[str, Any]
    """All of the recipe that the artifact depends on, as JSON can hold it."""
    make: Callable[[Watch], Artifact]
    """Writes it to `out`; training tells its progress."""
    work: float = 1.0
    """How much there is to do, to be compared with jobs of the same kind only."""
    bears_failed_inputs: bool = False
    """Whether it has something to say even of inputs that failed."""

    @property
    def made_from(self) -> dict[str, Any]:
        """What its artifact depends on: settings, and a mark of each input.

        Raises:
            ArtifactError: an input is not there.
        """
        inputs = {name: f"failed: {reason}" if (reason := why(at)) else mark(at) for name, at in self.inputs.items()}
        return {"settings": dict(self.settings), "inputs": inputs}

    def attempt(self, make: Callable[[], object]) -> None:
        """Make the artifact by way of `make`, or leave in its place why it could not be made.

        Raises:
            MadeDifferentlyError: it is there, but was made from something else.
            ArtifactError: nothing can be written.
        """
        with recorded(self.out, self.title):
            if not self.bears_failed_inputs:
                require_made(self.inputs.values())
            make()


def lane(recipe: Recipe, language: str, folders: Lane) -> tuple[Job, Job, Job]:
    """Reading a language's text, training its tokenizer, and packing it into blocks."""
    its_text, its_tokenizer = {"text": folders.text}, {"tokenizer": folders.tokenizer}
    return (
        Job(
            f"text-{language}",
            f"text of {language!r}",
            Kind.TEXT,
            folders.text,
            {},
            {"language": language, **_parts(recipe, "text", "split")},
            lambda _: prepare_text(recipe, language, folders.text),
        ),
        Job(
            f"tokenizer-{language}",
            f"tokenizer of {language!r}",
            Kind.TOKENIZER,
            folders.tokenizer,
            its_text,
            _parts(recipe, "tokenizer"),
            lambda _: train_tokenizer(recipe, folders.text, folders.tokenizer),
        ),
        Job(
            f"blocks-{language}",
            f"blocks of {language!r}",
            Kind.BLOCKS,
            folders.blocks,
            its_text | its_tokenizer,
            {"block_tokens": recipe.encoder.block_tokens},
            lambda _: build_blocks(recipe, folders.text, folders.tokenizer, folders.blocks),
        ),
    )


def pretraining(primary: PlannedPrimary, blocks: Path, tokenizer: Path, out: Path) -> Job:
    """Training a primary from nothing, in the source language."""
    recipe = primary.recipe
    return Job(
        f"pretrain-{primary.name}",
        f"pretraining of {primary.title}",
        Kind.PRIMARY,
        out,
        {"blocks": blocks, "tokenizer": tokenizer},
        _trained(recipe, "pretraining"),
        lambda watch: stages.pretrain(recipe, blocks, tokenizer, out, watch),
        _work(primary.layers, recipe.pretraining),
    )


def mini_building(arm: Arm, primary: Path, blocks: Path, out: Path) -> Job:
    """Step 1b of an arm that has one."""
    recipe = arm.recipe
    settings, step = recipe.require_mini(), recipe.steps_over(arm.depth)[Stage.BUILD_MINI]
    return Job(
        f"build-mini-{arm.name}",
        f"mini-model of {arm.title}",
        Kind.MINI,
        out,
        {"primary": primary, "blocks": blocks},
        _trained(recipe, "mini") | {"depth": arm.depth},
        lambda watch: stages.build_mini(recipe, primary, blocks, out, watch),
        _work(step.layers, settings),
    )


def finetuning(planned: PlannedPrimary, wanted: Finetuning, primary: Path, text: Path, out: Path) -> Job:
    """Learning a task in the source language, by a whole primary or by its mini-model."""
    recipe, task = planned.recipe, planned.recipe.task(wanted.task)
    inputs = {"primary": primary} | ({"text": text} if task.kind == "documents" else {})
    layers = None if wanted.layers == planned.layers else wanted.layers
    no_matter: Any = {"examples": True, "languages": True, "test": True, "finetuning": {"seeds"}}
    return Job(
        f"finetune-{planned.name}-{wanted.word.replace('/', '-')}",
        f"finetuning of {planned.title}, {wanted.layers} layers, on {wanted.task!r} with seed {wanted.seed}",
        Kind.TASK,
        out,
        inputs,
        {"task": task.model_dump(mode="json", exclude=no_matter), **asdict(wanted), **_parts(recipe, "precision")},
        lambda watch: stages.finetune(
            recipe, wanted.task, primary, inputs.get("text"), wanted.seed, out, watch, layers=layers
        ),
        wanted.layers * task.finetuning.epochs,
    )


def adaptation(
    arm: Arm, language: str, primary: Path, mini: Path | None, blocks: Path, tokenizer: Path, out: Path
) -> Job:
    """Learning a language's embeddings; its artifact is those at the end, with its checkpoints beside it.

    Args:
        arm: by which system.
        language: which.
        primary: of the arm.
        mini: fresh layers of the arm, if it has a step 1b.
        blocks: of the language.
        tokenizer: that they were made with.
        out: folder for checkpoints and embeddings.
    """
    recipe, last, checkpoints = arm.recipe, out / EMBEDDINGS, out / CHECKPOINTS
    inputs = {"primary": primary, "blocks": blocks, "tokenizer": tokenizer} | ({"mini": mini} if mini else {})

    def make(watch: Watch) -> Artifact:
        folders = primary, blocks, tokenizer
        return adapt(recipe, *folders, arm.depth, last, watch, mini=mini, checkpoints=checkpoints)

    return Job(
        f"adapt-{language}-{arm.name}",
        f"adaptation of {language!r} by {arm.title}",
        Kind.EMBEDDINGS,
        last,
        inputs,
        {"system": recipe.system, **_trained(recipe, "adaptation")},
        make,
        _work(recipe.steps_over(arm.depth)[Stage.ADAPT].layers, recipe.adaptation),
    )


def _parts(recipe: Recipe, *names: str) -> dict[str, Any]:
    return recipe.model_dump(mode="json", include=set(names))


def _trained(recipe: Recipe, stage: str) -> dict[str, Any]:
    """What all masked language modelling depends on, with the settings of one stage."""
    return _parts(recipe, "source", "encoder", "precision", stage)


def _work(layers: int, settings: Training) -> float:
    """Proportional to compute, apart from the head's."""
    return layers * settings.steps * settings.batch_blocks
