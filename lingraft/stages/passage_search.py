"""Search for passages by queries in a language: by a task's vectors, and by baselines that learn nothing of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.model.encoder import Vocabulary
from lingraft.model.initialisation.initial_rows import shared_pieces
from lingraft.model.loading import LoadedPrimary
from lingraft.model.swap import swap
from lingraft.stages.results import BM25, SOURCE_TOKENIZER
from lingraft.stages.source_passages import SourcePassages, retrieval_of
from lingraft.tasks.bm25 import Bm25
from lingraft.tasks.finetuned import TaskModel
from lingraft.tasks.ranking import Answers, evaluate_ranking, evaluate_vectors
from lingraft.tasks.retrieval import TokenizedTexts, embed
from lingraft.tasks.task_kind import TaskEvaluation
from lingraft.training import precision


class _Texts(NamedTuple):
    """Texts as pieces of the language's tokenizer, and as pieces of the source's."""

    own: TokenizedTexts
    by_source: TokenizedTexts


@dataclass(frozen=True, eq=False)
class PassageSearch:
    """Queries in a language, and passages in it or in the source language."""

    seeds: Sequence[TaskModel]
    source: Vocabulary
    """The source's own vocabulary, whatever its primary has later."""
    queries: _Texts
    passages: _Texts | SourcePassages
    answers: Answers
    by_shared_pieces: Callable[[], TaskEvaluation]
    """Ranks passages by BM25."""

    @classmethod
    def of(
        cls,
        seeds: Sequence[TaskModel],
        source: LoadedPrimary,
        tokenizer: Tokenizer,
        queries: Sequence[str],
        passages: Sequence[str] | SourcePassages,
        answers: Answers,
    ) -> Self:
        """Tokenize texts behind the prefixes of a task."""
        kind, shape = retrieval_of(seeds), seeds[0].shape

        def tokenized(texts: Sequence[str], prefix: str) -> _Texts:
            return _Texts(*(TokenizedTexts.of(texts, prefix, each, shape) for each in (tokenizer, source.tokenizer)))

        def by_shared_pieces() -> TaskEvaluation:
            asked = tokenizer.encode_all(queries)
            if isinstance(passages, SourcePassages):
                shared = shared_pieces(source.tokenizer, tokenizer)
                index = Bm25(passages.pieces)
                asked = [[shared[piece] for piece in ids if piece in shared] for ids in asked]
            else:
                index = Bm25(tokenizer.encode_all(passages))
            return evaluate_ranking(lambda rows_B: index.scores([asked[row] for row in rows_B.tolist()]), answers)

        return cls(
            seeds=seeds,
            source=source.encoder.vocabulary,
            queries=tokenized(queries, kind.settings.query_prefix),
            passages=(
                passages if isinstance(passages, SourcePassages) else tokenized(passages, kind.settings.passage_prefix)
            ),
            answers=answers,
            by_shared_pieces=by_shared_pieces,
        )

    @property
    def truncated(self) -> int:
        """Number of queries of which only a part fits a block."""
        return self.queries.own.encoded.truncated

    @property
    def truncated_passages(self) -> int:
        """Number of passages of which only a part fits a block."""
        passages = self.passages
        return passages.own.encoded.truncated if isinstance(passages, _Texts) else passages.truncated

    def judge(self, model: TaskModel) -> TaskEvaluation:
        """Rank passages by the vectors of one of the seeds, with the embeddings that its body has."""
        passages = self.passages
        return self._evaluate(model, self.queries.own, passages.own if isinstance(passages, _Texts) else passages)

    def baselines(self) -> dict[str, dict[int, TaskEvaluation]]:
        """Return evaluations by the name of the baseline and by seed; the bodies then have the source's embeddings."""
        passages, found = self.passages, {}
        for model in self.seeds:
            swap(model.net.encoder, self.source)
            known = passages.by_source if isinstance(passages, _Texts) else passages
            found[model.seed] = self._evaluate(model, self.queries.by_source, known)
        return {BM25: dict.fromkeys(found, self.by_shared_pieces()), SOURCE_TOKENIZER: found}

    def _evaluate(
        self, model: TaskModel, queries: TokenizedTexts, passages: TokenizedTexts | SourcePassages
    ) -> TaskEvaluation:
        net = model.net.to(precision.device())
        known = passages.vectors[model.seed] if isinstance(passages, SourcePassages) else embed(net, passages)
        return evaluate_vectors(embed(net, queries), known, self.answers)
