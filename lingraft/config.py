"""Recipes: typed, validated, frozen. TOML in, JSON between components; every field says its unit.

One recipe describes a whole project: `Recipe.load("recipes/demo.toml")`. Unknown keys and impossible values are
refused with the key's path and what is allowed.
"""

import hashlib
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import pydantic
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from lingraft.errors import RecipeError
from lingraft.section import Section, explain

Share = Annotated[float, Field(gt=0.0, lt=1.0)]
Language = Annotated[str, Field(pattern=r"^[a-z]{2,3}(-[A-Za-z0-9]{2,8})*$", description="BCP 47 tag, such as 'de'.")]
Name = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")]
Precision = Literal["auto", "fp32", "bf16"]


class Split(Section):
    """How documents are divided, by a hash of their name, alike in all languages."""

    dev_share: Share = Field(0.1, description="Share of documents for choices made on the way.")
    test_share: Share = Field(0.2, description="Share of documents for reported scores only.")

    @pydantic.model_validator(mode="after")
    def _leaves_text_to_train_on(self) -> Self:
        if self.dev_share + self.test_share >= 0.9:
            raise ValueError("dev_share + test_share must stay below 0.9, or too little is left to train on")
        return self


class LibreOfficeHelp(Section):
    """LibreOffice's help pages from Debian's packages: parallel pages, labelled by the part of the product."""

    kind: Literal["libreoffice-help"]


class Folder(Section):
    """Files of one's own: plain text or JSONL, optionally .gz, .xz or .zst, one file or folder a language."""

    kind: Literal["folder"]
    path: str = Field(description="Folder that holds <language>.txt, <language>.jsonl(.gz|.xz|.zst) or <language>/.")


class HuggingFace(Section):
    """A dataset by its Hugging Face id (or a local dataset folder)."""

    kind: Literal["huggingface"]
    dataset: str = Field(description="Dataset id or local folder; '{language}' in it is replaced by the language.")
    configuration: str | None = Field(None, description="Configuration; '{language}' is replaced by the language.")
    split: str = "train"
    text_column: str = "text"
    label_column: str | None = None
    name_column: str | None = Field(None, description="Column that names a document alike in all languages.")


TextSource = Annotated[LibreOfficeHelp | Folder | HuggingFace, Field(discriminator="kind")]


class TokenizerSettings(Section):
    """One SentencePiece unigram model a language."""

    vocabulary: PositiveInt = Field(description="Pieces, special tokens included.")
    character_coverage: Annotated[float, Field(gt=0.9, le=1.0)] = 0.9995
    sample_lines: PositiveInt = Field(500_000, description="Lines of text that the tokenizer is trained on, at most.")


class EncoderShape(Section):
    """RoBERTa architecture (paper section 3) with MLM heads at any layers."""

    width: PositiveInt = Field(description="Hidden size, D.")
    layers: PositiveInt = Field(description="Transformer layers of the primary, L.")
    attention_heads: PositiveInt
    mlm_heads: tuple[PositiveInt, ...] = Field(
        description="Layers that carry an MLM head. The last layer must; each other one is a mini-model's depth."
    )
    block_tokens: PositiveInt = Field(description="Tokens of a block, T; also the longest input.")
    feedforward: PositiveInt | None = Field(None, description="Width of the feed-forward layer; 4 x width if absent.")
    dropout: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0

    @pydantic.model_validator(mode="after")
    def _is_possible(self) -> Self:
        if self.width % self.attention_heads:
            raise ValueError(f"width {self.width} is not divisible by attention_heads {self.attention_heads}")
        if list(self.mlm_heads) != sorted(set(self.mlm_heads)) or self.mlm_heads[-1:] != (self.layers,):
            raise ValueError(f"mlm_heads {self.mlm_heads} must rise, without repeats, to the last layer, {self.layers}")
        return self


class Training(Section):
    """One run of the training loop."""

    steps: PositiveInt = Field(description="Optimizer updates.")
    batch_blocks: PositiveInt = Field(description="Blocks of block_tokens tokens in one update.")
    learning_rate: PositiveFloat = Field(description="Peak of the schedule: linear warm-up, then linear decay to 0.")
    warmup_steps: NonNegativeInt = 0
    mask_rate: Share = Field(0.15, description="Share of tokens that are predicted; of these 80/10/10 as in BERT.")
    weight_decay: NonNegativeFloat = 0.01
    clip_norm: PositiveFloat = Field(1.0, description="Largest gradient norm; larger ones are scaled down to it.")
    seed: int = 1
    log_every_steps: PositiveInt = 20

    @pydantic.model_validator(mode="after")
    def _warms_up_in_time(self) -> Self:
        if self.warmup_steps >= self.steps:
            raise ValueError(f"warmup_steps {self.warmup_steps} must be fewer than steps {self.steps}")
        return self


class Adaptation(Training):
    """Learning one language's embeddings over a frozen body (paper section 2, step 2)."""

    depth: PositiveInt = Field(description="Layers of the mini-model; the primary must have an MLM head there.")
    initialisation: Literal["overlap", "random"] = Field(
        "overlap",
        description="overlap: rows of pieces that the source vocabulary also has are copied (footnote 1).",
    )


class Finetuning(Section):
    """Finetuning the body on the task in the source language, token embeddings frozen (section 2, step 3)."""

    epochs: PositiveFloat = 3
    batch_documents: PositiveInt = 32
    learning_rate: PositiveFloat = 1e-5
    warmup_ratio: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.06
    weight_decay: NonNegativeFloat = 0.01
    clip_norm: PositiveFloat = 1.0
    seeds: tuple[int, ...] = Field((1, 2, 3), min_length=1)
    log_every_steps: PositiveInt = 20


class Task(Section):
    """Classification of labelled documents."""

    name: Name = Field(description="Name of the task in the registry and at the endpoint.")
    finetuning: Finetuning = Finetuning()
    examples: dict[Language, str] = Field({}, description="A text per language to ask a new endpoint about.")


class Search(Section):
    """Optuna's search of a language's mini-model depth among the primary's heads (section 5.2)."""

    language: Language
    steps_at_depth: PositiveInt = Field(
        description="Updates that a trial of adaptation.depth layers gets; other depths get the same FLOPs."
    )
    depths: tuple[PositiveInt, ...] = Field((), description="Depths to try; every head of the primary if empty.")


class Toleration(Section):
    """A Kubernetes toleration."""

    key: str
    operator: Literal["Equal", "Exists"] = "Exists"
    value: str = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = "NoSchedule"


class Profile(Section):
    """What a step asks of the cluster; ignored by local runs."""

    cpu: str = "2"
    memory: str = "4Gi"
    accelerator: str | None = Field(None, description="Resource name, such as 'nvidia.com/gpu'.")
    accelerator_count: PositiveInt = 1
    node_selector: dict[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()
    shared_memory: str | None = Field(None, description="Size of /dev/shm; Kubernetes' own 64 MB if absent.")


class Cluster(Section):
    """Where the pipelines run on Kubernetes."""

    image: str = Field("ghcr.io/lingraft/train:0.1.0", description="Image of every step.")
    tracking_secret: str = Field("lingraft-mlflow", description="Secret whose keys become MLFLOW_* variables.")
    storage_claim: str = Field("lingraft-data", description="PersistentVolumeClaim mounted at storage_path.")
    storage_path: str = "/data"
    light: Profile = Field(Profile(), description="Steps that only move or read data.")
    training: Profile = Field(Profile(), description="Steps that train.")
    parallel_languages: PositiveInt = Field(8, description="Languages adapted at the same time.")


class Recipe(Section):
    """A whole project: one source language, its primary, and the languages to add."""

    name: Name = Field(description="Prefix of every registered model, and the MLflow experiment.")
    source: Language
    targets: tuple[Language, ...] = Field(min_length=1)
    text: TextSource
    split: Split = Split()
    tokenizer: TokenizerSettings
    encoder: EncoderShape
    precision: Precision = Field("auto", description="auto: bf16 only where a two-second probe finds it faster.")
    threads: NonNegativeInt = Field(0, description="CPU threads of a training step; 0 leaves it to PyTorch.")
    pretraining: Training
    adaptation: Adaptation
    task: Task | None = Field(None, description="Absent: embeddings only, no zero-shot scores and no endpoint.")
    search: Search | None = None
    cluster: Cluster = Cluster()

    @pydantic.model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.source in self.targets or len(set(self.targets)) < len(self.targets):
            raise ValueError(f"targets {list(self.targets)} must be distinct and without the source, {self.source!r}")
        self._require_heads("adaptation.depth", (self.adaptation.depth,))
        if self.search:
            self._require_heads("search.depths", self.search.depths)
            if self.search.language not in self.targets:
                raise ValueError(f"search.language {self.search.language!r} must be one of {list(self.targets)}")
        return self

    def _require_heads(self, key: str, depths: tuple[int, ...]) -> None:
        heads = self.encoder.mlm_heads
        if not set(depths) <= set(heads):
            raise ValueError(f"{key} {list(depths)} must be among encoder.mlm_heads {list(heads)}")

    @property
    def languages(self) -> tuple[str, ...]:
        """Source first, then targets."""
        return (self.source, *self.targets)

    def require_language(self, language: str) -> None:
        """Refuse a language that the recipe does not name.

        Raises:
            RecipeError: the message lists the languages that it does name.
        """
        if language not in self.languages:
            raise RecipeError(
                f"language {language!r} is not in the recipe, which has {list(self.languages)}. Add it to 'targets'."
            )

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a TOML recipe.

        Raises:
            RecipeError: no such file, not TOML, an unknown key or an impossible value.
        """
        try:
            raw = tomllib.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise RecipeError(f"there is no recipe {path}. The ones we ship are in recipes/.") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise RecipeError(f"{path} is not valid TOML: {error}.") from error
        return cls.parse(raw, str(path))

    @classmethod
    def parse(cls, raw: dict[str, Any] | str, origin: str = "recipe") -> Self:
        """Validate a recipe given as a dictionary or as JSON.

        Raises:
            RecipeError: an unknown key or an impossible value; every one is listed with its path.
        """
        try:
            return cls.model_validate_json(raw) if isinstance(raw, str) else cls.model_validate(raw)
        except pydantic.ValidationError as error:
            lines = [explain(cls, problem) for problem in error.errors()]
            raise RecipeError(f"{origin} is not usable:\n  " + "\n  ".join(lines)) from error

    def to_json(self) -> str:
        """The recipe in one canonical line: what components are given, and what is hashed."""
        return self.model_dump_json()

    def digest(self) -> str:
        """SHA-256 of the recipe: equal settings, equal digest."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def require_search(self) -> Search:
        """The depth search.

        Raises:
            RecipeError: the recipe has none.
        """
        if self.search is None:
            raise RecipeError("the recipe has no [search], which this needs. Add one, with the language to search for.")
        return self.search

    def require_task(self) -> Task:
        """The task.

        Raises:
            RecipeError: the recipe has none.
        """
        if self.task is None:
            raise RecipeError("the recipe has no [task], which this needs. Add one, with the name of the task.")
        return self.task

    def with_folder(self, path: Path) -> Self:
        """The same recipe on text of one's own (`--text DIR`)."""
        return self.model_copy(update={"text": Folder(kind="folder", path=str(path.resolve()))})
