"""The package `mteb` judges an exported folder as it judges any model, and finds our scores."""

from pathlib import Path
from typing import Any

import pytest
from sentence_transformers import SentenceTransformer
from typing_extensions import override

from lingraft.config.encoder import EncoderShape
from lingraft.config.tasks import Retrieval
from lingraft.huggingface.export import export_hf
from lingraft.model.loading import load_embeddings
from lingraft.tasks.finetuned import load_task
from lingraft.tasks.ranking import Answers, evaluate_vectors
from lingraft.tasks.retrieval import TokenizedTexts, embed
from tests.huggingface.models import LANGUAGE, write_language, write_own_primary, write_task_of
from tests.huggingface.scripts import lines_of, trained

SHAPE = EncoderShape(width=32, layers=2, attention_heads=4, mlm_heads=(2,), block_tokens=40, feedforward=48)
LINES = lines_of("Greek", 100)
PASSAGES = LINES[:40]
QUERIES = [" ".join(line.split()[:3]) for line in PASSAGES]


def own_search() -> Any:
    """A task of mteb in which the first words of each passage search for it."""
    # Collecting the fast tests shall not wait for these, which take seconds.
    import datasets
    from mteb.abstasks import AbsTaskRetrieval
    from mteb.abstasks.task_metadata import TaskMetadata

    class OwnSearch(AbsTaskRetrieval):
        metadata = TaskMetadata(
            name="OwnSearch",
            description="Passages by their first words.",
            dataset={"path": "none", "revision": "none"},
            type="Retrieval",
            category="t2t",
            eval_langs=["ell-Grek"],
            main_score="ndcg_at_10",
        )

        @override
        def load_data(self, num_proc: int | None = None, **others: Any) -> None:
            rows = range(len(PASSAGES))
            found = {
                "corpus": datasets.Dataset.from_dict({"id": [f"p{row}" for row in rows], "text": PASSAGES}),
                "queries": datasets.Dataset.from_dict({"id": [f"q{row}" for row in rows], "text": QUERIES}),
                "relevant_docs": {f"q{row}": {f"p{row}": 1} for row in rows},
                "top_ranked": None,
            }
            self.dataset = {"default": {"test": found}}
            self.data_loaded = True

    return OwnSearch()


@pytest.mark.integration
@pytest.mark.filterwarnings("ignore::DeprecationWarning:mteb", "ignore::FutureWarning:mteb")
# mteb has another name, 'document', for the prompt of passages, and takes that.
@pytest.mark.filterwarnings("ignore:Task name passage is not valid:UserWarning")
@pytest.mark.filterwarnings("ignore:Some prompts are not in the expected format:UserWarning")
def test_mteb_finds_our_scores_of_an_exported_folder(tmp_path: Path) -> None:
    import mteb

    primary = write_own_primary(
        SHAPE, trained(lines_of("Latin", 100), tmp_path / "en", 120, "en"), tmp_path / "primary"
    )
    settings = Retrieval(query_prefix=f"{LINES[41]} ", passage_prefix=f"{LINES[42]} ")
    task = write_task_of("retrieval", primary, tmp_path / "task", retrieval=settings.model_dump())
    foreign = trained(LINES * 5, tmp_path / LANGUAGE, 160, LANGUAGE)
    embeddings = write_language(primary, foreign, tmp_path / "embeddings")
    export_hf(primary, tmp_path / "out", embeddings, task)
    ours = load_task(task)
    ours.swap_in(load_embeddings(embeddings))
    asked, known = (
        embed(ours.net, TokenizedTexts.of(texts, prefix, foreign, ours.shape))
        for texts, prefix in ((QUERIES, settings.query_prefix), (PASSAGES, settings.passage_prefix))
    )
    expected = evaluate_vectors(asked, known, Answers.of([{row: 1.0} for row in range(len(PASSAGES))]))

    model = SentenceTransformer(str(tmp_path / "out"), device="cpu")
    (found,) = mteb.evaluate(model, own_search(), cache=None, show_progress_bar=False).task_results

    (scores,) = found.scores["test"]
    assert scores["accuracy"] == pytest.approx(expected.score, abs=1e-4)
    assert scores["mrr_at_10"] == pytest.approx(expected.others["MRR_at_10"], abs=1e-4)
    assert scores["ndcg_at_10"] == pytest.approx(expected.others["nDCG_at_10"], abs=1e-4)
    assert expected.baseline < expected.score < 1
