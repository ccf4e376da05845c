"""Recipes: typed, validated, frozen. TOML in, JSON between components; every field says its unit.

One recipe describes a whole project: `Recipe.load("recipes/demo.toml")`. Unknown keys and impossible values are
refused with the key's path and what is allowed.
"""

import hashlib
import json
import re
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import pydantic
from pydantic import AfterValidator, Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from lingraft.cluster import Cluster
from lingraft.errors import RecipeError
from lingraft.section import Section, explain


def _matching(pattern: str, allowed: str) -> AfterValidator:
    def check(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise ValueError(f"must be {allowed}")
        return value

    return AfterValidator(check)


Share = Annotated[float, Field(gt=0.0, lt=1.0)]
Language = Annotated[
    str,
    _matching(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8})*", "a BCP 47 tag, such as 'de' or 'pt-BR'"),
    Field(description="BCP 47 tag, such as 'de'."),
]
Name = Annotated[str, _matching(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", "lower-case letters, digits and inner dashes")]
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

    kind: Literal["libreoffice-help"] = Field(description="Says that text comes from here.")


class Folder(Section):
    """Files of one's own: plain text or JSONL, optionally .gz, .xz or .zst, one file or folder a language."""

    kind: Literal["folder"] = Field(description="Says that text comes from here.")
    path: str = Field(description="Folder that holds <language>.txt, <language>.jsonl(.gz|.xz|.zst) or <language>/.")


class HuggingFace(Section):
    """A dataset by its Hugging Face id (or a local dataset folder)."""

    kind: Literal["huggingface"] = Field(description="Says that text comes from here.")
    dataset: str = Field(description="Dataset id or local folder; '{language}' in it is replaced by the language.")
    configuration: str | None = Field(None, description="Configuration; '{language}' is replaced by the language.")
    split: str = Field("train", description="Split of the dataset that is read; ours is made anew, by [split].")
    text_column: str = Field("text", description="Column that holds the text.")
    label_column: str | None = Field(None, description="Column that holds the label; a task needs one.")
    name_column: str | None = Field(None, description="Column that names a document alike in all languages.")


TextSource = Annotated[LibreOfficeHelp | Folder | HuggingFace, Field(discriminator="kind")]


class TokenizerSettings(Section):
    """One SentencePiece unigram model a language."""

    vocabulary: int = Field(gt=5, description="Pieces, the five special tokens included.")
    character_coverage: float = Field(
        0.9995, gt=0.9, le=1.0, description="Share of the text's characters that get a piece; the rest are unknown."
    )
    sample_lines: PositiveInt = Field(500_000, description="Lines of text that the tokenizer is trained on, at most.")


class EncoderShape(Section):
    """RoBERTa architecture (paper section 3) with MLM heads at any layers."""

    width: PositiveInt = Field(description="Hidden size, D.")
    layers: PositiveInt = Field(description="Transformer layers of the primary, L.")
    attention_heads: PositiveInt = Field(description="Attention heads of a layer; they divide the width.")
    mlm_heads: tuple[PositiveInt, ...] = Field(
        description="Layers that carry an MLM head. The last layer must; each other one is a mini-model's depth."
    )
    block_tokens: int = Field(ge=8, description="Tokens of a block, T; also the longest input.")
    feedforward: PositiveInt | None = Field(None, description="Width of the feed-forward layer; 4 x width if absent.")
    dropout: float = Field(0.0, ge=0.0, lt=1.0, description="Share of activations that training sets to 0.")

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
    warmup_steps: NonNegativeInt = Field(0, description="Updates over which the learning rate rises to its peak.")
    mask_rate: Share = Field(0.15, description="Share of tokens that are predicted; of these 80/10/10 as in BERT.")
    weight_decay: NonNegativeFloat = Field(0.01, description="AdamW's decay of matrices; biases and norms have none.")
    clip_norm: PositiveFloat = Field(1.0, description="Largest gradient norm; larger ones are scaled down to it.")
    seed: int = Field(1, description="Decides weights, order of blocks and masks.")
    log_every_steps: PositiveInt = Field(20, description="Updates between two points of the learning curve.")

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

    epochs: PositiveFloat = Field(3, description="Times that every training document is seen.")
    batch_documents: PositiveInt = Field(32, description="Documents in one update.")
    learning_rate: PositiveFloat = Field(1e-5, description="Peak of the schedule: linear warm-up, then decay to 0.")
    warmup_ratio: float = Field(0.06, ge=0.0, lt=1.0, description="Share of the updates that warm up.")
    weight_decay: NonNegativeFloat = Field(0.01, description="AdamW's decay of matrices; biases and norms have none.")
    clip_norm: PositiveFloat = Field(1.0, description="Largest gradient norm; larger ones are scaled down to it.")
    seeds: tuple[int, ...] = Field((1, 2, 3), description="Finetuned once with each; scores are their mean.")
    log_every_steps: PositiveInt = Field(20, description="Updates between two points of the learning curve.")

    @pydantic.model_validator(mode="after")
    def _seeds_differ(self) -> Self:
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"seeds {list(self.seeds)} must be one or more, all different")
        return self


class Task(Section):
    """Classification of labelled documents."""

    name: Name = Field(description="Name of the task in the registry and at the endpoint.")
    finetuning: Finetuning = Field(Finetuning(), description="How the body is finetuned.")
    examples: dict[Language, str] = Field({}, description="A text per language to ask a new endpoint about.")


class Search(Section):
    """Optuna's search of a language's mini-model depth among the primary's heads (section 5.2)."""

    language: Language = Field(description="Target language that the depth is searched for.")
    steps_at_depth: PositiveInt = Field(
        description="Updates that a trial of adaptation.depth layers gets; other depths get the same FLOPs."
    )
    depths: tuple[PositiveInt, ...] = Field((), description="Depths to try; every head of the primary if empty.")


class Recipe(Section):
    """A whole project: one source language, its primary, and the languages to add."""

    name: Name = Field(description="Prefix of every registered model, and the MLflow experiment.")
    source: Language = Field(description="Language of the primary and of the task's training documents.")
    targets: tuple[Language, ...] = Field(description="Languages to add.")
    text: TextSource = Field(description="Where text comes from, in all languages.")
    split: Split = Field(Split(), description="How documents are divided.")
    tokenizer: TokenizerSettings = Field(description="How each language is cut into pieces.")
    encoder: EncoderShape = Field(description="Shape of the primary.")
    precision: Precision = Field("auto", description="auto: bf16 only where a two-second probe finds it faster.")
    threads: NonNegativeInt = Field(0, description="CPU threads of a training step; 0 leaves it to PyTorch.")
    pretraining: Training = Field(description="How the primary is trained.")
    adaptation: Adaptation = Field(description="How each language's embeddings are trained.")
    task: Task | None = Field(None, description="Absent: embeddings only, no zero-shot scores and no endpoint.")
    search: Search | None = Field(None, description="Absent: every language uses adaptation.depth.")
    cluster: Cluster = Field(Cluster(), description="Where the pipelines run on Kubernetes; ignored elsewhere.")

    @pydantic.model_validator(mode="after")
    def _fits_together(self) -> Self:
        distinct = set(self.targets) - {self.source}
        if not distinct or len(distinct) < len(self.targets):
            raise ValueError(
                f"targets {list(self.targets)} must be one or more, all different, without the source, {self.source!r}"
            )
        for stage, settings in (("pretraining", self.pretraining), ("adaptation", self.adaptation)):
            tokens = settings.batch_blocks * self.encoder.block_tokens
            if not round(settings.mask_rate * tokens):
                raise ValueError(f"{stage}.mask_rate {settings.mask_rate} masks none of the {tokens} tokens of a batch")
        if self.task and (surplus := set(self.task.examples) - set(self.languages)):
            raise ValueError(f"task.examples has {sorted(surplus)}, but the languages are {list(self.languages)}")
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
        except OSError as error:
            raise RecipeError(f"cannot read recipe {path}: {error.strerror}. We ship some in recipes/.") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise RecipeError(f"{path} is not valid TOML: {error}.") from error
        return cls.parse(raw, str(path))

    @classmethod
    def parse(cls, raw: dict[str, Any] | str, origin: str = "recipe") -> Self:
        """Validate a recipe given as a dictionary or as JSON; a number in quotes is no number.

        Raises:
            RecipeError: an unknown key or an impossible value; every one is listed with its path.
        """
        try:
            text = raw if isinstance(raw, str) else json.dumps(raw, default=str)
            return cls.model_validate_json(text, strict=True)
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
