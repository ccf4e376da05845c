"""Recipes: typed, validated, frozen. TOML in, JSON between components; every field says its unit.

One recipe describes a whole project: `Recipe.load("recipes/demo.toml")`. Unknown keys and impossible values are
refused with the key's path and what is allowed.
"""

import hashlib
import itertools
import json
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Self

import pydantic
from pydantic import Field, PositiveInt

from lingraft.config.cluster import Cluster, StageName
from lingraft.config.encoder import EncoderShape, TokenizerSettings
from lingraft.config.gate import ALIGNMENT_METRIC, MASKED_METRIC, Gate
from lingraft.config.search import Metric, Search
from lingraft.config.section import Language, Name, Section, explain_problem
from lingraft.config.source import Source
from lingraft.config.systems import Stage, Step, Steps, System, steps_of
from lingraft.config.tasks import PRIMARY, ParallelLines, Task
from lingraft.config.text import Folder, Split, TextSource
from lingraft.config.training import Adaptation, MiniBuilding, Paper, Training, blocks_per_process
from lingraft.config.translations import Alignment, ParallelText
from lingraft.console import say
from lingraft.errors import DepthError, RecipeError

Precision = Literal["auto", "fp32", "bf16"]
_NO_MINI_MODEL = (
    "system MINIPOST needs a section [mini], which says how many fresh layers its mini-model has and how they are "
    "trained, or sentence pairs ([adaptation.pairs]), which are learned over the bottom layers as they are"
)


class Recipe(Section):
    """A whole project: one source language, its primary, and the languages to add."""

    name: Name = Field(description="Prefix of every registered model, and the MLflow experiment.")
    source: Source = Field(
        description="Language of the primary and of the task's training documents, as a tag; or a section that names a "
        "pretrained model."
    )
    targets: tuple[Language, ...] = Field(description="Languages to add.")
    text: TextSource = Field(description="Source of the text, in all languages.")
    split: Split = Field(Split(), description="Shares of documents for training, dev and test.")
    system: System = Field(System.MINIJOINT, description="System of the paper; see lingraft/config/systems.py.")
    tokenizer: TokenizerSettings = Field(description="Tokenizer of each language.")
    encoder: EncoderShape = Field(description="Shape of the primary.")
    precision: Precision = Field(
        "auto",
        description="auto: bf16 on a GPU with units for it, and on a CPU where a short probe finds it faster. "
        "In fp32 a GPU trains with TF32 products.",
    )
    test_blocks: PositiveInt | None = Field(
        None,
        description="Test blocks in which evaluations predict masked tokens, spread evenly over all; absent: all. The "
        "source's evaluation prepares the measure of alignment by as much text.",
    )
    pretraining: Training | None = Field(
        None,
        description="Step 1: the primary with its MLM heads, from nothing, in the source language; absent where "
        "source.model names one.",
    )
    mini: MiniBuilding | None = Field(None, description="Building of MINIPOST's mini-model; no other system has it.")
    adaptation: Adaptation = Field(description="Training of each language's embeddings.")
    alignment: Alignment = Field(
        Alignment(),
        description="Parallel text and dictionaries that adaptation.initialisation 'aligned' learns from.",
    )
    tasks: tuple[Task, ...] = Field(
        (), description="Tasks to finetune; without any, there are embeddings only, and no zero-shot scores."
    )
    serve_primary: bool = Field(False, description="Bundle the primary itself, too, for fill-mask and embeddings.")
    search: Search | None = Field(
        None, description="Search for each language's depth. Absent: every language uses adaptation.depth."
    )
    paper: Paper | None = Field(None, description="Comparison of systems. Absent: there is one system.")
    gate: Gate = Field(Gate(), description="Gate that new embeddings must pass before they are served.")
    cluster: Cluster = Field(Cluster(), description="Settings of pipelines on Kubernetes; ignored elsewhere.")

    @pydantic.model_validator(mode="after")
    def _fits_together(self) -> Self:
        distinct = set(self.targets) - {self.source.language}
        if not distinct or len(distinct) < len(self.targets):
            raise ValueError(
                f"targets {list(self.targets)} must be one or more, all different, without the source, "
                f"{self.source.language!r}"
            )
        self._require_one_origin()
        self._require_blocks()
        self._require_divisible()
        self._require_tasks()
        self._require_depths()
        self._require_pairs()
        self._require_whole_batches()
        self._require_unlearned_tests()
        return self

    @property
    def _on_blocks(self) -> dict[StageName, Training]:
        stages: tuple[StageName, ...] = ("pretraining", "mini", "adaptation")
        return {stage: settings for stage in stages if (settings := getattr(self, stage))}

    def _require_one_origin(self) -> None:
        """A primary is either made from a model or pretrained."""
        if (self.pretraining is None) == (self.source.model is None):
            both = "both" if self.pretraining else "neither"
            raise ValueError(
                f"source.model and pretraining: there is {both}. Name a pretrained model ([source] model = "
                "'sentence-transformers/all-MiniLM-L6-v2', a folder, or 'models:/NAME@champion'), or give [encoder] "
                "and [pretraining] to pretrain one"
            )

    def _require_blocks(self) -> None:
        for stage, settings in self._on_blocks.items():
            tokens = settings.blocks_at_once * self.encoder.block_tokens
            if not round(settings.mask_rate * tokens):
                raise ValueError(f"{stage}.mask_rate {settings.mask_rate} masks none of the {tokens} tokens at once")

    def _require_divisible(self) -> None:
        """A cluster's processes divide batches, which is known before they are started."""
        for stage, settings in self._on_blocks.items():
            processes = self.cluster.profile_of(stage).processes
            if processes == 1:
                continue
            if blocks_per_process(settings.batch_blocks, settings.micro_batch_blocks, processes) is None:
                raise ValueError(
                    f"{stage}.batch_blocks {settings.batch_blocks} must be a multiple of micro_batch_blocks "
                    f"({settings.micro_batch_blocks or 'absent'}) x the {processes} processes of the stage's profile"
                )

    def _require_whole_batches(self) -> None:
        """Retrieval is learned against the other passages of a batch, which must not be divided."""
        processes = self.cluster.profile_of("finetuning").processes
        for task in self.tasks:
            if task.kind == "retrieval" and processes > 1:
                raise ValueError(
                    f"task {task.name!r} of kind 'retrieval' is finetuned by one process, whose batch has all passages "
                    f"to choose from, and the profile of finetuning has {processes}: give the stage a profile with one"
                )

    def _require_tasks(self) -> None:
        names = [task.name for task in self.tasks]
        if len(set(names)) < len(names):
            raise ValueError(f"tasks {names} must have different names")
        if self.serve_primary and PRIMARY in names:
            raise ValueError(f"a task cannot be named {PRIMARY!r} where serve_primary is true: their bundles are alike")
        for task in self.tasks:
            if not any(map(task.covers, self.languages)):
                raise ValueError(
                    f"task {task.name!r} has test examples in {list(task.languages)} only ('languages'), none of which "
                    f"is among the recipe's languages {list(self.languages)}"
                )
        if unknown := sorted({*self.gate.tolerances} - {*names}):
            raise ValueError(f"gate.tolerances: {unknown} are no tasks of the recipe, which has {names}")
        if self.gate.metric not in (metrics := [MASKED_METRIC, ALIGNMENT_METRIC, *names]):
            raise ValueError(f"gate.metric: {self.gate.metric!r} must be one of {metrics}")

    def _require_pairs(self) -> None:
        without = [language for language in self.targets if language not in self.alignment.parallel]
        # An encoder without a head has nothing else to learn by: a language without pairs keeps its initial rows.
        if self.adaptation.pairs and without and self.has_masked_tokens and not self.mines(without[0]):
            raise ValueError(
                f"adaptation.pairs needs sentences with their translations, of which {without} have none. Add them to "
                "[alignment] parallel, mine them (mined = true, with adaptation.initialisation = 'aligned'), or leave "
                "adaptation.pairs out"
            )
        by_masked = {
            "search.metric": self.search and self.search.metric is Metric.MASKED,
            "gate.metric": self.gate.metric == MASKED_METRIC,
        }
        names = [name for name, is_masked in by_masked.items() if is_masked]
        if names and self.adaptation.pairs:
            raise ValueError(
                f"{' and '.join(names)} 'masked' is not what adaptation.pairs learns: set it to 'alignment', or leave "
                "adaptation.pairs out"
            )

    def _require_unlearned_tests(self) -> None:
        """Refuse tests on the sentence pairs that a language learns from, not those that only measure alignment."""
        for task, language in itertools.product(self.tasks, self.targets):
            if not isinstance(task.test, ParallelLines) or not self.judges(task, language):
                continue
            tested = task.test.in_language(language)
            if tested == self.learned_pairs(language) and not task.test.held_out:
                raise ValueError(
                    f"task {task.name!r} has test.files {tested!r} in {language!r}, from which the language learns "
                    "([alignment] parallel). Give other pairs for one of the two"
                )

    def _require_depths(self) -> None:
        for system in {self.system, *(self.paper.systems if self.paper else ())}:
            if self._lacks_mini_model(system):
                raise ValueError(_NO_MINI_MODEL)
            try:
                self.steps_over(self.adaptation.depth, system)
            except DepthError as error:
                raise ValueError(f"adaptation.depth: {error}") from error
            if system is not System.MINIPOST and not self.encoder.mlm_heads:
                raise ValueError(
                    f"encoder.mlm_heads is empty, so that system {system} has no head to learn embeddings with. Set "
                    "system = 'MINIPOST', whose mini-model gets one (`lingraft mini`)"
                )
            if self.system is System.BL_BASE and self.adaptation.depth != self.encoder.layers:
                raise ValueError(f"adaptation.depth must be {self.encoder.layers}, all layers, where system is BL_BASE")
            if system is System.MINIJOINT:
                self._require_heads("adaptation.depth", (self.adaptation.depth,))
        self._require_heads("paper.depths", self.paper.depths if self.paper else ())
        if self.search:
            self._require_search(self.search)

    def _require_search(self, search: Search) -> None:
        if self.system not in (System.MINIJOINT, System.MINIPOST):
            raise ValueError(f"search needs a system with mini-models, MINIJOINT or MINIPOST; system is {self.system}")
        if self.system is System.MINIJOINT:
            self._require_heads("search.depths", search.depths)
        elif not search.depths:
            raise ValueError("search.depths must name the depths at which MINIPOST's mini-models are to be built")
        for depth in search.depths:
            try:
                self.steps_over(depth)
            except DepthError as error:
                raise ValueError(f"search.depths: {error}") from error

    @property
    def searched_depths(self) -> tuple[int, ...]:
        """Depths that the search tries, from shallow to deep; none without a search."""
        return tuple(sorted(self.search.depths or self.encoder.mlm_heads)) if self.search else ()

    def over(self, depth: int) -> Self:
        """Return the recipe with its mini-model at another depth."""
        return self.model_copy(update={"adaptation": self.adaptation.model_copy(update={"depth": depth})})

    def _require_heads(self, key: str, depths: tuple[int, ...]) -> None:
        heads = self.encoder.mlm_heads
        if not set(depths) <= set(heads):
            raise ValueError(f"{key} {list(depths)} must be among encoder.mlm_heads {list(heads)}")

    def steps_over(self, depth: int, system: System | None = None) -> Steps:
        """The training steps of a system, by default the recipe's own, with a mini-model of the depth given.

        Raises:
            DepthError: the system cannot have that depth, or has no mini-model to learn over.
        """
        fresh = self.mini.fresh_layers if self.mini else 0
        if self._lacks_mini_model(system or self.system):
            raise DepthError(f"{_NO_MINI_MODEL}.")
        return steps_of(system or self.system, self.encoder.layers, depth, fresh, self.encoder.mlm_heads)

    def _lacks_mini_model(self, system: System) -> bool:
        return system is System.MINIPOST and self.mini is None and self.adaptation.pairs is None

    @property
    def primary_shape(self) -> EncoderShape:
        """Shape of the primary that the recipe's system pretrains."""
        return self._pretrained_shape(self.steps_over(self.adaptation.depth)[Stage.PRETRAIN])

    def _pretrained_shape(self, step: Step) -> EncoderShape:
        return self.encoder.cut(step.layers, step.heads) if self.encoder.mlm_heads else self.encoder

    def for_system(self, system: System, depth: int | None = None) -> Self:
        """Return the recipe under another system, with the shape of its primary and its depth of adaptation.

        It has no comparison, since it is of one system, and a search only where that system has one.
        """
        steps = self.steps_over(depth or self.adaptation.depth, system)
        adapted = steps[Stage.ADAPT]
        changes: dict[str, Any] = {"depth": adapted.layers - adapted.fresh_layers}
        if self.paper and system in self.paper.checkpoint_every_steps:
            changes["checkpoint_every_steps"] = self.paper.checkpoint_every_steps[system]
        bottom = self.adaptation.model_copy(update=changes)
        shape = self._pretrained_shape(steps[Stage.PRETRAIN])
        one_system = {"system": system, "search": self.search if system is self.system else None, "paper": None}
        return self.model_copy(update=one_system | {"encoder": shape, "adaptation": bottom})

    def by_start(self) -> dict[str, Self]:
        """Return the recipe with the changes of each start of [paper.starts], by name; itself where there is none.

        Raises:
            RecipeError: a change does not fit.
        """
        found = {}
        raw = self.model_dump(mode="json")
        for name, changes in (self.paper.starts if self.paper else {}).items():
            sections = {section: raw.get(section, {}) | values for section, values in changes.items()}
            start = type(self).parse(raw | sections | {"paper": None}, f"the recipe from paper.starts.{name}")
            found[name] = start.model_copy(update={"paper": self.paper})
        return found or {"": self}

    @property
    def languages(self) -> tuple[str, ...]:
        """Source first, then targets."""
        return (self.source.language, *self.targets)

    def require_language(self, language: str) -> None:
        """Refuse a language that the recipe does not name."""
        if language not in self.languages:
            raise RecipeError(
                f"language {language!r} is not in the recipe, which has {list(self.languages)}. Add it to 'targets'."
            )

    @classmethod
    def load(cls, path: Path, complete: Callable[[dict[str, Any]], dict[str, Any]] = dict) -> Self:
        """Read a TOML recipe.

        `complete` adds to the values of the file those that follow from a model that it names
        (`lingraft.source_model.load_recipe`). What names a language that is neither the source nor a target is ignored,
        with a note on standard error, so
        that `targets` can be changed alone.
        """
        try:
            raw = tomllib.loads(path.read_text(encoding="utf-8-sig"))
        except OSError as error:
            raise RecipeError(f"cannot read recipe {path}: {error.strerror}. We ship some in recipes/.") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise RecipeError(f"{path} is not valid TOML: {error}.") from error
        recipe = cls.parse(complete(raw), str(path))
        for note in recipe._notes(raw):
            say(f"{path}: {note}")
        return recipe

    @classmethod
    def parse(cls, raw: dict[str, Any] | str, origin: str = "recipe", options: Mapping[str, str] = {}) -> Self:
        """Validate a recipe given as a dictionary or as JSON; a number in quotes is no number.

        Errors name `options`, which are given by the key that they set, such as "adaptation.steps".
        Examples in [tasks.examples] of other languages than the recipe's are left out, and a search for a language that
        is no target is for the first one.
        """
        try:
            text = raw if isinstance(raw, str) else json.dumps(raw, default=str)
            return cls.model_validate_json(text, strict=True)._following_targets()
        except pydantic.ValidationError as error:
            lines = [explain_problem(cls, problem, options) for problem in error.errors()]
            raise RecipeError(f"{origin} is not usable:\n  " + "\n  ".join(lines)) from error

    def _following_targets(self) -> Self:
        """The recipe without settings that name languages which it does not have."""
        changes: dict[str, Any] = {
            "tasks": tuple(task.only_in(self.languages) for task in self.tasks),
            "alignment": self.alignment.only_in(self.targets),
        }
        if self.search and self.search.language not in self.targets:
            changes["search"] = self.search.model_copy(update={"language": self.targets[0]})
        return self.model_copy(update=changes)

    def _notes(self, raw: dict[str, Any]) -> Iterator[str]:
        """Yield notes on settings that name languages which the recipe does not have."""
        for given in raw.get("tasks", ()):
            for key in ("examples", "languages"):
                if surplus := sorted({*given.get(key, ())} - {*self.languages}):
                    yield (
                        f"task {given['name']!r} names {surplus} in '{key}', which are not among "
                        f"{list(self.languages)}: ignored. Add them to 'targets', or remove them there."
                    )
        by_language = ((key, given) for key, given in raw.get("alignment", {}).items() if isinstance(given, dict))
        for key, given in by_language:
            if surplus := sorted({*given} - {*self.targets}):
                yield (
                    f"alignment.{key} names {surplus}, which are not among the targets {list(self.targets)}: ignored. "
                    "Add them to 'targets', or remove them there."
                )
        yield from self._unused_dictionaries()
        if self.search and (asked := raw["search"]["language"]) != self.search.language:
            yield (
                f"search.language {asked!r} is not among the targets {list(self.targets)}: the search is for "
                f"{self.search.language!r}, the first of them. Set search.language to choose another one."
            )

    def _unused_dictionaries(self) -> Iterator[str]:
        given = self.alignment.dictionary
        if given and not self._aligns_rows:
            yield f"alignment.dictionary is not used: adaptation.initialisation is {self.adaptation.initialisation}."
        elif both := sorted({*given} & {*self.alignment.parallel}):
            yield f"alignment.dictionary of {both} is not used: these languages have parallel text, which is better."

    @property
    def _aligns_rows(self) -> bool:
        return self.adaptation.initialisation.needs_text

    def learned_pairs(self, language: str) -> ParallelText | None:
        """Files of the sentence pairs that a language learns from; pairs that only measure alignment do not count."""
        learns = self._aligns_rows or self.adaptation.pairs
        return self.alignment.parallel.get(language) if learns else None

    def layers_through(self, step: Step) -> int:
        """Layers that an adaptation runs through: pairs may take their vectors above all, and never from fresh ones."""
        pairs = self.adaptation.pairs
        if pairs is None:
            return step.layers
        return self.encoder.layers if pairs.layers == "all" else step.layers - step.fresh_layers

    def mines(self, language: str) -> bool:
        """Whether pairs are mined for a language's rows: it has no parallel text, and rows are aligned."""
        return self.alignment.mined and self._aligns_rows and language not in self.alignment.parallel

    def keeps_tokenizer(self, language: str) -> bool:
        """Whether a language is read as the source reads it, since nothing shows what pieces of its own would mean."""
        shown = self.mines(language) or language in {*self.alignment.parallel, *self.alignment.dictionary}
        return self._aligns_rows and self.tokenizer.borrow and not (shown or self.has_masked_tokens)

    @property
    def needs_vectors(self) -> bool:
        """Whether initial rows are aligned by static vectors, which takes the primary's MLM head to judge them."""
        return self.adaptation.initialisation.needs_text and bool(self.encoder.mlm_heads)

    def require_vectors(self, given: object) -> None:
        """Refuse to go on without static vectors where rows need them."""
        if self.needs_vectors and not given:
            raise RecipeError(
                "adaptation.initialisation 'aligned' compares blocks of the language (--blocks) with the source's "
                "static vectors. Give the results that have them (--results), or compute them (`lingraft vectors`) and "
                "give their folder (--vectors)."
            )

    def to_json(self) -> str:
        """Return the recipe as one canonical line of JSON, which components get, and which is hashed."""
        return self.model_dump_json()

    def digest(self) -> str:
        """Return the SHA-256 of the recipe: equal settings, equal digest."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def require_search(self) -> Search:
        """The depth search."""
        if self.search is None:
            raise RecipeError("the recipe has no [search], which this needs. Add one, with the language to search for.")
        return self.search

    @property
    def has_masked_tokens(self) -> bool:
        """Whether there is an MLM head to predict masked tokens with: a primary's, or a mini-model's."""
        return bool(self.encoder.mlm_heads or self.mini)

    @property
    def builds_mini(self) -> bool:
        """Whether the recipe's system has a step 1b."""
        return Stage.BUILD_MINI in self.steps_over(self.adaptation.depth)

    def require_pretraining(self) -> Training:
        """Return the settings by which the primary is pretrained."""
        if self.pretraining is None:
            raise RecipeError(
                f"the recipe's primary is made from {self.source.model} (source.model), and is not pretrained. Give "
                "[encoder] and [pretraining] in place of source.model to pretrain one."
            )
        return self.pretraining

    def require_mini(self) -> MiniBuilding:
        """Return the settings by which MINIPOST's mini-model is built."""
        if self.mini is None or self.system is not System.MINIPOST:
            raise RecipeError(f"step 1b is MINIPOST's; the recipe's system is {self.system}. Set system = 'MINIPOST'.")
        return self.mini

    def task(self, name: str | None = None) -> Task:
        """A task by its name, which may be left out where there is only one."""
        found = {task.name: task for task in self.tasks}
        if name is None and len(found) == 1:
            return self.tasks[0]
        if name not in found:
            wanted = "one task to name" if name is None else f"a task {name!r}"
            raise RecipeError(f"the recipe does not have {wanted}: its [[tasks]] are {sorted(found)}. Add or name one.")
        return found[name]

    def tasks_in(self, language: str) -> list[Task]:
        """Tasks of the recipe that are judged in a language."""
        return [task for task in self.tasks if self.judges(task, language)]

    def judges(self, task: Task, language: str) -> bool:
        """Whether a task, of the recipe or to be added to it, is judged in a language."""
        has_test = task.reads_text or task.test is not None
        return has_test and task.covers(language) and not (task.tests_translation and language == self.source.language)

    def with_folder(self, path: Path) -> Self:
        """Return the recipe with the user's own text (`--text DIR`), cleaned in the same way."""
        folder = Folder(kind="folder", path=str(path.resolve()), cleaning=self.text.cleaning)
        return self.model_copy(update={"text": folder})
