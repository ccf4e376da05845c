"""The library from Python: a pretrained model, and the languages that it learns."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind
from lingraft.config.source import Source
from lingraft.config.tasks import Task
from lingraft.errors import RecipeError
from lingraft.new_language.recipe import Resources, Wanted
from lingraft.new_language.run import NOTHING_WANTED, PathLike, add_language
from lingraft.new_language.summary import AddedLanguage
from lingraft.source_model import open_model

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from torch import Tensor


@dataclass(frozen=True)
class Primary:
    """A pretrained model that learns languages, and is never changed."""

    folder: Path
    """Artifact of the primary."""
    tasks: tuple[Path, ...]
    """Its tasks, one artifact a task and seed; that of kind 'retrieval', of an embedding model."""

    @classmethod
    def from_pretrained(
        cls, model: PathLike, language: str = "en", revision: str | None = None, tasks: Sequence[PathLike] = ()
    ) -> Self:
        """Open a model; one that is not ours is imported once, and kept in the user's cache.

        Args:
            model: hub id such as 'sentence-transformers/all-MiniLM-L6-v2', folder of its files, artifact of a primary,
                or a registered primary ('models:/NAME@champion').
            language: BCP 47 tag of the language that it knows.
            revision: branch, tag or commit on the hub.
            tasks: finetunings of the primary, beside the retrieval of an embedding model.

        Raises:
            CheckpointError: the model cannot be had, or is none that a primary can be made from.
            TokenizerError: its tokenizer cannot be kept exactly.
            NotRegisteredError: there is no such registered model, or it is no primary.
            MissingExtraError: the extra 'huggingface' is not installed.
        """
        found = open_model(Source(language=language, model=str(model), revision=revision))
        own = (found.task,) if found.task else ()
        return cls(found.primary, (*own, *map(Path, tasks)))

    @property
    def language(self) -> str:
        """BCP 47 tag of the language that the model knows."""
        return str(Artifact.load(self.folder, Kind.PRIMARY).manifest.language)

    def learn_language(
        self,
        text: PathLike | Sequence[PathLike],
        language: str,
        out: PathLike,
        pairs: PathLike | Sequence[PathLike] | None = None,
        dictionary: PathLike | None = None,
        source_text: PathLike | Sequence[PathLike] = (),
        mini: PathLike | None = None,
        wanted: Wanted = NOTHING_WANTED,
    ) -> "Language":
        """Learn a language, judge it, and export it; `out` keeps every stage, so that an interrupted call goes on.

        Args:
            text: files or folders of text in the language.
            language: BCP 47 tag of the language.
            out: folder of all results.
            pairs: sentences with their translations: a file of source<TAB>target, or two files, the source's first.
            dictionary: words with their translations.
            source_text: text of the source language, such as the documents that are searched; without `pairs`, sentence
                pairs are mined from it.
            mini: mini-model with an MLM head (`lingraft mini`), over which masked tokens are learned.
            wanted: settings that are not to follow from the model and the text.

        Raises:
            NotReadyError: the text, the pairs or the output cannot be used; the message lists everything that is wrong.
            RecipeError: a setting is impossible.
            TextError: the text is missing, damaged or too little.
            ProvenanceMismatchError: `out` holds results of other inputs or settings.
        """
        added = add_language(
            primary=self.folder,
            text=text,
            language=language,
            out=out,
            tasks=self.tasks,
            mini=mini,
            wanted=wanted,
            resources=Resources.of(pairs, dictionary, source_text),
        )
        return Language(self, added)


@dataclass(frozen=True)
class Language:
    """A language that a primary has learned."""

    primary: Primary
    added: AddedLanguage
    """Its scores, and the models that were exported with it."""

    def similarity(self, texts: Sequence[str], source_texts: Sequence[str]) -> "Tensor":
        """Return cosines (N, M) of N queries in the language and M passages in the source's, by the embedding model.

        The model's prefixes of queries and of passages stand before them.

        Raises:
            RecipeError: the primary is no embedding model.
        """
        import torch

        from lingraft.model.loading import Embeddings, LoadedPrimary, load_embeddings, load_primary
        from lingraft.tasks.finetuned import load_task
        from lingraft.tasks.retrieval import TokenizedTexts, embed

        task = load_task(self._embedding_task()[1])
        source, learned = load_primary(self.primary.folder), load_embeddings(self.added.embeddings)
        source.lend_to(learned)

        def vectors(given: Sequence[str], prefix: str, vocabulary: "LoadedPrimary | Embeddings") -> "Tensor":
            task.swap_in(vocabulary)
            tokens = TokenizedTexts.of(given, prefix, vocabulary.tokenizer, task.shape)
            return torch.nn.functional.normalize(embed(task.net, tokens))

        settings = task.net.settings
        known = vectors(source_texts, settings.passage_prefix, source)
        return vectors(texts, settings.query_prefix, learned) @ known.T

    def to_sentence_transformer(self) -> "SentenceTransformer":
        """Return the embedding model in this language, as sentence-transformers loads it.

        Raises:
            RecipeError: the primary is no embedding model.
        """
        from sentence_transformers import SentenceTransformer

        name, _ = self._embedding_task()
        return SentenceTransformer(str(self.added.hf[name]), device="cpu")

    def _embedding_task(self) -> tuple[str, Path]:
        """Name and folder of the primary's task of kind 'retrieval'."""
        for folder in self.primary.tasks:
            settings: Task = Artifact.load(folder, Kind.TASK).manifest.detail("settings", Task)
            if settings.kind == "retrieval":
                return settings.name, folder
        found = [*map(str, self.added.hf.values())]
        raise RecipeError(f"{self.primary.folder} is no embedding model. Load one of {found} with transformers.")
