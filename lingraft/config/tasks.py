"""Downstream tasks in a recipe: their data, how the body is finetuned, and how they are asked about."""

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Annotated, Literal, Self

import pydantic
from pydantic import Field, PositiveFloat, PositiveInt

from lingraft.config.section import Language, Name, Section
from lingraft.config.training import Pace, Pooling
from lingraft.config.translations import ParallelText

TaskKindName = Literal["documents", "texts", "pairs", "questions", "tags", "retrieval"]
PRIMARY: Literal["primary"] = "primary"
"""Name and kind of the bundle of a primary itself, for fill-mask and embeddings."""
INPUTS: dict[TaskKindName, tuple[str, ...]] = {
    "documents": ("text",),
    "texts": ("text",),
    "pairs": ("text", "text_pair"),
    "questions": ("question", "context"),
    "tags": ("text",),
    "retrieval": ("text",),
}
"""Texts that a task is asked about at once, by the names that the endpoint has for them."""
IMPORTED_SEED = 1
"""Seed of a task that comes with a model, and is not finetuned."""


class Finetuning(Pace):
    """Finetuning the body on a task in the source language, token embeddings frozen (section 2, step 3)."""

    epochs: PositiveFloat = Field(3, description="Times that every training example is seen.")
    batch_examples: PositiveInt = Field(32, description="Examples in one update (windows, for long contexts).")
    group_by_length: bool = Field(
        False,
        description="Draw examples of like length for an update, so that little of it is padding: less time where "
        "lengths differ. Batches are no longer wholly at random.",
    )
    frozen_body: bool = Field(
        False,
        description="Train the task's head alone, over the body as it is: a third of the time, for lower scores.",
    )
    learning_rate: PositiveFloat = Field(1e-5, description="Peak of the schedule: linear warm-up, then decay to 0.")
    seeds: tuple[int, ...] = Field(
        (1, 2, 3, 4, 5), description="Seeds; the task is finetuned once with each, and scores are their mean."
    )

    @pydantic.model_validator(mode="after")
    def _seeds_differ(self) -> Self:
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"seeds {list(self.seeds)} must be one or more, all different")
        return self


class DenseLayer(Section):
    """A dense layer above the pooled states."""

    kind: Literal["dense"] = Field(description="Says that the layer is dense.")
    width: PositiveInt = Field(description="Width of the vectors behind it.")
    activation: Literal["tanh", "gelu", "relu", "sigmoid", "identity"] = Field(
        "identity", description="Function behind the product; identity is none."
    )
    bias: bool = Field(True, description="Whether it has a bias.")


class NormaliseLayer(Section):
    """Division of a vector by its Euclidean length."""

    kind: Literal["normalise"] = Field(description="Says that vectors are divided by their length.")


VectorLayer = Annotated[DenseLayer | NormaliseLayer, Field(discriminator="kind")]


class Retrieval(Section):
    """Pooling and layers that turn a text's hidden states into its vector, for tasks of kind 'retrieval'."""

    pooling: Pooling = Field(
        "mean", description="Mean of the tokens' states, special ones included, or the first or last token's state."
    )
    layers: tuple[VectorLayer, ...] = Field(
        (NormaliseLayer(kind="normalise"),),
        description='Layers above the pooled state, in order: { kind = "normalise" }, or { kind = "dense", width = 256 '
        "}, which may have an activation.",
    )
    query_prefix: str = Field("", description="Text before every query, such as 'query: '.")
    passage_prefix: str = Field("", description="Text before every passage, such as 'passage: '.")
    prompts: dict[str, str] = Field(
        {},
        description="Further texts to stand before a text, by name, for default_prompt and for exported folders. "
        "'query' and 'document' are the two prefixes.",
    )
    default_prompt: str | None = Field(
        None,
        description="Name of the prompt before a text that is embedded as neither query nor passage; none if absent.",
    )
    similarity: Literal["dot", "euclidean"] | None = Field(
        None,
        description="Similarity that exported folders compute, of vectors of length 1, which it ranks as their cosine "
        "does; the cosine if absent.",
    )

    @pydantic.model_validator(mode="after")
    def _prompts_are_named(self) -> Self:
        if taken := sorted({"query", "document"} & set(self.prompts)):
            raise ValueError(f"prompts cannot have {taken}; set query_prefix and passage_prefix")
        if self.default_prompt is not None and self.default_prompt not in self.named_prompts:
            raise ValueError(f"default_prompt is {self.default_prompt!r}, but prompts are {sorted(self.named_prompts)}")
        return self

    @pydantic.model_validator(mode="after")
    def _vectors_are_ranked_by_cosine(self) -> Self:
        if self.similarity and not (self.layers and isinstance(self.layers[-1], NormaliseLayer)):
            raise ValueError(
                f"similarity {self.similarity!r} ranks as the cosine does, by which tasks are judged, only where the "
                "last layer normalises; add such a layer"
            )
        return self

    @property
    def named_prompts(self) -> dict[str, str]:
        """All prompts by name, as sentence-transformers has them."""
        passage = self.passage_prefix
        return {"query": self.query_prefix, "document": passage, "passage": passage, **self.prompts}

    @property
    def default_prefix(self) -> str:
        """Text before a text that is embedded as neither query nor passage."""
        return "" if self.default_prompt is None else self.named_prompts[self.default_prompt]

    def vector_width(self, body_width: int) -> int:
        """Return the width of vectors above a body."""
        widths = [layer.width for layer in self.layers if isinstance(layer, DenseLayer)]
        return widths[-1] if widths else body_width


class TaskFile(Section):
    """Examples in a file of one of the standard formats (TSV, JSONL, SQuAD JSON, CoNLL), plain or compressed."""

    kind: Literal["file"] = Field(description="Says that examples come from here.")
    path: str = Field(description="Path of the file; '{language}' in it is replaced by the language.")


class TaskDataset(Section):
    """Examples of a dataset by its Hugging Face id (or a local dataset folder)."""

    kind: Literal["huggingface"] = Field(description="Says that examples come from here.")
    dataset: str = Field(description="Dataset id or local folder; '{language}' in it is replaced by the language.")
    configuration: str | None = Field(None, description="Configuration; '{language}' is replaced by the language.")
    split: str = Field(description="Split of the dataset.")
    revision: str | None = Field(
        None, description="Branch, tag or commit on the hub; 'refs/convert/parquet' where main is a loading script."
    )


TaskData = Annotated[TaskFile | TaskDataset, Field(discriminator="kind")]


class ParallelLines(Section):
    """Lines with their translations, for tasks of kind 'retrieval': a line is the query for the source's line."""

    kind: Literal["parallel"] = Field(description="Says that examples come from here.")
    files: ParallelText = Field(
        description="One file of source<TAB>target a line, such as 'en-{language}.tsv', or two files line by line, the "
        "source's first, such as ['pud.en', 'pud.{language}']; '{language}' is replaced by the target language. None "
        "that [alignment] learns from, unless `held_out`."
    )
    held_out: bool = Field(
        False,
        description="Take only the pairs that are held out of learning, so that the file may be one of [alignment].",
    )

    def in_language(self, language: str) -> ParallelText:
        """Files of a target language."""
        if isinstance(self.files, str):
            return self.files.replace("{language}", language)
        source, target = (name.replace("{language}", language) for name in self.files)
        return source, target


class ParallelDocuments(Section):
    """Parallel documents of the recipe's [text], for tasks of kind 'retrieval': those of the test split."""

    kind: Literal["documents"] = Field(description="Says that examples come from here.")
    queries: Literal["paragraphs", "titles"] = Field(
        "paragraphs",
        description="paragraphs: one is the query for the source's paragraph that it translates; titles: a document's "
        "first line is the query for the source's document of the same name, in the source language, too.",
    )


class BeirFolder(Section):
    """A folder in the layout of BEIR (corpus.jsonl, queries.jsonl, qrels/test.tsv or test.jsonl), for tasks of kind
    'retrieval'."""

    kind: Literal["beir"] = Field(description="Says that examples come from here.")
    path: str = Field(
        description="Folder of a language, such as 'help/{language}'; '{language}' is replaced by the language. "
        "Queries are looked for in its corpus.jsonl, if there is one, and in source_corpus."
    )
    source_corpus: str | None = Field(
        None,
        description="Passages in the source language, such as 'help/en/corpus.jsonl', that every language's queries "
        "are looked for in. The task's score is that of these passages, where given.",
    )

    def in_language(self, language: str) -> Path:
        """Folder of a language."""
        return Path(self.path.replace("{language}", language))


TestData = Annotated[
    TaskFile | TaskDataset | ParallelLines | ParallelDocuments | BeirFolder, Field(discriminator="kind")
]


class Task(Section):
    """A downstream task: trained in the source language, judged in every language that has examples."""

    name: Name = Field(description="Name of the task in the registry and at the endpoint.")
    kind: TaskKindName = Field(
        description="documents: the recipe's own labelled text; texts or pairs: classification of one text or two "
        "(XNLI, PAWS-X); questions: extractive answers (XQuAD, MLQA); tags: named entities (PAN-X, CoNLL), or parts of "
        "speech (UD); retrieval: queries and their passages, for the vectors of a search."
    )
    evaluation: Literal["squad", "mlqa", "words"] = Field(
        "squad",
        description="Of kind 'questions' the metric: mlqa for MLQA, squad for SQuAD, XQuAD and TyDiQA. Of kind 'tags' "
        "words for the accuracy of every word's tag, as of parts of speech; without it, tags are judged by the F1 of "
        "the named entities that they stand for. The tag is a file's last column; of .conllu files, the UPOS.",
    )
    labels: tuple[str, ...] = Field((), description="The task's labels, in order; those of the training set if empty.")
    label_names: dict[str, str] = Field(
        {},
        description="Names of the labels for people, by label, such as { scalc = 'Calc (spreadsheets)' }; pages and "
        "tables show a label without a name as it is.",
    )
    retrieval: Retrieval | None = Field(
        None, description="Pooling and layers of kind 'retrieval'; the defaults if absent."
    )
    train: TaskData | None = Field(
        None, description="Training examples in the source language; absent for an imported task of kind 'retrieval'."
    )
    dev: TaskData | None = Field(None, description="Examples for choices made on the way.")
    test: TestData | None = Field(None, description="Examples for reported scores only, in every language.")
    languages: tuple[Language, ...] = Field(
        (),
        description="Languages that have test examples (with kind 'documents', labels); all if empty. The task is "
        "judged in these, and exported in every language. Those that are no target do not count.",
    )
    finetuning: Finetuning = Field(Finetuning(), description="Finetuning of the body.")
    examples: dict[Language, str | dict[str, str]] = Field(
        {},
        description="What to ask a new endpoint about, by language: a text; with kind 'pairs' "
        "{ text = ..., text_pair = ... }, with 'questions' { question = ..., context = ... }. Those of languages that "
        "are no target are ignored.",
    )

    @pydantic.model_validator(mode="after")
    def _has_data(self) -> Self:
        given = [name for name in ("train", "dev", "test") if getattr(self, name)]
        if self.reads_text and given:
            raise ValueError(f"{given} cannot be set with kind 'documents', whose examples are the recipe's [text]")
        if not self.reads_text and len(given) < 3 and not self.is_imported:
            raise ValueError(f"kind {self.kind!r} needs train, dev and test, but has only {given}")
        if self.test and not isinstance(self.test, TaskFile | TaskDataset) and self.kind != "retrieval":
            raise ValueError(f"test.kind {self.test.kind!r} is for kind 'retrieval' only, and kind is {self.kind!r}")
        return self

    @pydantic.model_validator(mode="after")
    def _settings_count(self) -> Self:
        labels = list(self.labels)
        if labels and not self.has_labels:
            raise ValueError(f"labels {labels} cannot be set with kind {self.kind!r}, whose answers are no labels")
        if len(set(labels)) < len(labels) or len(labels) == 1:
            raise ValueError(
                f"labels {labels} must be two or more, all different; leave them out to take the training set's"
            )
        if labels and (unknown := sorted(set(self.label_names) - set(labels))):
            raise ValueError(f"label_names has {unknown}, but the labels are {labels}")
        of_kind = {"mlqa": "questions", "words": "tags"}.get(self.evaluation, self.kind)
        if self.kind != of_kind:
            raise ValueError(
                f"evaluation {self.evaluation!r} is for kind {of_kind!r} only, and kind is {self.kind!r}. Leave it out"
            )
        if self.retrieval and self.kind != "retrieval":
            raise ValueError(f"retrieval is for kind 'retrieval' only, and kind is {self.kind!r}. Leave it out")
        return self

    @pydantic.model_validator(mode="after")
    def _examples_can_be_asked(self) -> Self:
        wanted = INPUTS[self.kind]
        for language in self.examples:
            if set(given := self.asked(language)) != set(wanted):
                raise ValueError(
                    f"examples.{language} has {sorted(given)}, but kind {self.kind!r} is asked about {list(wanted)}"
                )
        return self

    @property
    def reads_text(self) -> bool:
        """Whether examples are the labelled documents of a language's text, not files or a dataset of their own."""
        return self.kind == "documents"

    @property
    def is_imported(self) -> bool:
        """Whether the task comes with the model that the primary is made from: nothing to finetune it on is named."""
        return self.kind == "retrieval" and not self.train and not self.dev

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seeds of its bodies: those of finetuning, or the one of an imported task."""
        return (IMPORTED_SEED,) if self.is_imported else self.finetuning.seeds

    @property
    def has_labels(self) -> bool:
        """Whether answers are labels, not parts of a text or passages."""
        return self.kind not in ("questions", "retrieval")

    @property
    def judges_words(self) -> bool:
        """Whether the tag of every word is judged, rather than the named entities that tags stand for."""
        return self.evaluation == "words"

    def asked(self, language: str) -> dict[str, str]:
        """Texts of a language's example by the names of `INPUTS`."""
        example = self.examples[language]
        return {"text": example} if isinstance(example, str) else example

    def only_in(self, languages: Collection[str]) -> Self:
        """Return the task without examples for other languages."""
        kept = {language: asked for language, asked in self.examples.items() if language in languages}
        return self if len(kept) == len(self.examples) else self.model_copy(update={"examples": kept})

    def named(self, label: str) -> str:
        """A label with its name for people, such as "Calc (spreadsheets) [scalc]"; without a name, the label alone."""
        return f"{self.label_names[label]} [{label}]" if label in self.label_names else label

    @property
    def tests_translation(self) -> bool:
        """Whether test examples are translations of the source's, so that there are none in the source language."""
        if isinstance(self.test, ParallelDocuments):
            return self.test.queries == "paragraphs"
        return isinstance(self.test, ParallelLines)

    def covers(self, language: str) -> bool:
        """Whether the task has test examples in a language."""
        return not self.languages or language in self.languages


def finetuning_ids(tasks: Iterable[Task]) -> list[str]:
    """Every task with every seed, as one word each (`<task>/<seed>`), to be finetuned side by side; no imported one."""
    return [f"{task.name}/{seed}" for task in tasks if not task.is_imported for seed in task.seeds]
