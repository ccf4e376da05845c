"""The model card of an exported model: facts from manifests and evaluations, and "not stated" where they are silent."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from lingraft.artifacts.artifact import Artifact, require_aligned
from lingraft.artifacts.manifest import Cost, Kind
from lingraft.data.tokenizer.pieces import SpecialPieces
from lingraft.errors import AlignmentError
from lingraft.huggingface.fast_tokenizer import special_pieces
from lingraft.huggingface.model import HfClass
from lingraft.model.loading import Embeddings, LoadedPrimary
from lingraft.stages import results
from lingraft.stages.results import LanguageResult, SourceResult, TaskScores, metric_label
from lingraft.tables import markdown_table
from lingraft.tasks.finetuned import TaskModel

_NOT_STATED = "not stated"
_SIMILARITY = "sentence-similarity"
_TASK_WORDS = {
    "fill-mask": "masked language model",
    "text-classification": "text classification",
    "question-answering": "extractive question answering",
    "token-classification": "token classification",
    _SIMILARITY: "text embedding",
}
_EMBEDDING = """from sentence_transformers import SentenceTransformer

model = SentenceTransformer("path/to/this/folder")
print(model.similarity(model.encode_query(["..."]), model.encode_document(["...", "..."])))"""

_ANSWERING = """import torch
from transformers import AutoModelForQuestionAnswering, AutoTokenizer

folder, question, context = "path/to/this/folder", "...", "..."
tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForQuestionAnswering.from_pretrained(folder)
inputs = tokenizer(question, context, return_tensors="pt", return_offsets_mapping=True)
inside = torch.tensor([part == 1 for part in inputs.sequence_ids()])
places = inputs.pop("offset_mapping")[0]
found = model(**inputs)
start = found.start_logits[0].where(inside, -torch.inf).argmax()
behind = inside & (torch.arange(len(inside)) >= start)
end = found.end_logits[0].where(behind, -torch.inf).argmax()
print(context[places[start][0] : places[end][1]])"""


_FLOPS = "FLOPs are by the paper's equations A1, A3 and A4; an update of sentence pairs counts as three passes."
_IMPORTED = f"{_FLOPS} What the training of the imported primary cost is {_NOT_STATED}."


@dataclass(frozen=True)
class CardSubject:
    """The model that a card describes."""

    source: LoadedPrimary
    vocabulary_source: LoadedPrimary | Embeddings
    """The primary or the embeddings that the vocabulary is from."""
    task: TaskModel | None
    form: HfClass
    model_type: str

    @property
    def language(self) -> str:
        """Language that the model reads."""
        return self.vocabulary_source.tokenizer.language

    @property
    def origin(self) -> dict[str, str | None] | None:
        """Origin of an imported primary; None if the primary was pretrained here."""
        found: dict[str, str | None] | None = self.source.manifest.record.get("origin")
        return found

    @property
    def special(self) -> SpecialPieces[str]:
        """Special pieces of the vocabulary."""
        return special_pieces(self.vocabulary_source.tokenizer)

    @property
    def parts(self) -> "dict[str, LoadedPrimary | Embeddings | TaskModel]":
        """Primary, embeddings and task, by their names on the card."""
        found: dict[str, LoadedPrimary | Embeddings | TaskModel] = {"primary": self.source}
        if isinstance(self.vocabulary_source, Embeddings):
            found["embeddings"] = self.vocabulary_source
        return found | ({f"task {self.task.name}": self.task} if self.task else {})


def model_card(model: CardSubject, evaluation: Path | None = None) -> str:
    """Return the card's text, with the scores of an evaluation of the model."""
    judged = _evaluation(model, evaluation) if evaluation else None
    trained = {name: part.manifest.cost for name, part in model.parts.items() if not part.manifest.record.get("origin")}
    sections = {
        "How to use it": f"```python\n{_usage(model)}\n```\n\n"
        f"Inputs have {model.source.encoder.shape.block_tokens} tokens at most. A text that spells out a special token,"
        f" such as `{model.special.end}`, is read as that token.",
        "Scores": _scores(model, judged),
        "Cost": "\n\n".join([*([cost_table(trained)] if trained else ()), _IMPORTED if model.origin else _FLOPS]),
        "What it is not for": "\n".join(f"- {limit}" for limit in _limits(model)),
        "Provenance": _provenance(model),
    }
    title = f"# {_title(model)} in {model.language}"
    body = [title, _summary(model), _system(model), *(f"## {name}\n\n{text}" for name, text in sections.items())]
    return f"---\n{_front_matter(model)}\n---\n" + "\n\n".join(body) + "\n"


def cost_table(costs: Mapping[str, Cost]) -> str:
    """Format the costs of trainings, by what was trained, as a table in Markdown."""
    return markdown_table(
        ("trained", "updates", "tokens", "FLOPs", "seconds"), [(name, *_cells(c)) for name, c in costs.items()]
    )


def _cells(cost: Cost) -> tuple[str, ...]:
    if not cost.steps:
        return (_NOT_STATED,) * 4
    return f"{cost.steps:,}", f"{cost.tokens:,}", f"{cost.flops:.3g}", f"{cost.elapsed_s:,.0f}"


def _evaluation(model: CardSubject, folder: Path) -> SourceResult | LanguageResult:
    subject = Artifact.load(folder, Kind.EVALUATION).manifest.detail("of", str)
    judged = results.load_language(folder) if subject == "language" else results.load_source(folder)
    require_aligned("the evaluation", judged.primary, model.source.fingerprint, "Evaluate again")
    vocabulary = judged.embeddings if isinstance(judged, LanguageResult) else judged.primary
    if vocabulary != model.vocabulary_source.fingerprint:
        raise AlignmentError(
            f"{folder} judges the embeddings {vocabulary} in {judged.language!r}; what is exported has the embeddings "
            f"{model.vocabulary_source.fingerprint} in {model.language!r}. Give their evaluation."
        )
    return judged


def _front_matter(model: CardSubject) -> str:
    from huggingface_hub import ModelCardData

    origin = model.origin
    base = origin["name"] if origin and (origin["revision"] or origin["package"]) else None  # a folder is no hub id
    return ModelCardData(
        language=model.language,
        license=(origin and origin["licence"]) or "unknown",
        library_name="sentence-transformers" if model.form.pipeline == _SIMILARITY else "transformers",
        pipeline_tag=model.form.pipeline,
        base_model=base,
        tags=["lingraft", "mini-model-adaptation"],
    ).to_yaml()


def _title(model: CardSubject) -> str:
    words = _TASK_WORDS[model.form.pipeline]
    return f"{model.task.name}: {words}" if model.task else words.capitalize()


def _summary(model: CardSubject) -> str:
    shape = model.source.encoder.shape
    vocabulary = len(model.vocabulary_source.tokenizer)
    parts = [
        f"An encoder of {shape.layers} layers, width {shape.width} (`{model.model_type}`), with a vocabulary of "
        f"{vocabulary} pieces for the language `{model.language}`."
    ]
    if model.task and not model.task.manifest.record.get("origin"):
        parts.append(f"Its body was finetuned on the task `{model.task.name}` in `{model.task.manifest.language}`.")
    if model.form.pipeline == _SIMILARITY and model.task and model.language != model.task.manifest.language:
        parts.append(f"Its vectors are compared with those of the same task in `{model.task.manifest.language}`.")
    if model.task and model.task.labels:
        parts.append("Labels: " + ", ".join(f"`{label}`" for label in model.task.labels) + ".")
    return " ".join(parts)


def _system(model: CardSubject) -> str:
    if not isinstance(model.vocabulary_source, Embeddings):
        return f"The vocabulary is that of the primary itself, whose source language is `{model.language}`."
    details, layers = model.vocabulary_source.manifest.details, model.source.encoder.shape.layers
    pairs, fresh = details.get("pairs") or {}, details.get("fresh_layers")
    by = "sentence pairs (arXiv 2004.09813)" if pairs else "masked tokens (arXiv 2212.10503)"
    depth = layers if pairs.get("layers") == "all" else details.get("depth", _NOT_STATED)
    added = f" and {fresh} fresh layer{'s' if fresh > 1 else ''}" if fresh else ""
    return (
        f"The token embeddings were learned by {by} over the bottom {depth} of {layers} layers{added}, system "
        f"{details.get('system', _NOT_STATED)}, with the body frozen. The primary's source language is "
        f"`{model.source.tokenizer.language}`."
    )


def _usage(model: CardSubject) -> str:
    if model.form.pipeline == "question-answering":  # transformers has no pipeline for it any more
        return _ANSWERING
    if model.form.pipeline == _SIMILARITY:
        return _EMBEDDING
    example = '"..."'
    if model.form.pipeline == "fill-mask":
        example = f'"{model.special.mask}"'
    elif model.task and model.task.settings.kind == "pairs":
        example = '{"text": "...", "text_pair": "..."}'
    return (
        "from transformers import pipeline\n\n"
        f'model = pipeline("{model.form.pipeline}", model="path/to/this/folder")\nprint(model({example}))'
    )


def _scores(model: CardSubject, judged: SourceResult | LanguageResult | None) -> str:
    if judged is None:
        return "No evaluation was given with this export."
    if model.task is None:
        if isinstance(judged, SourceResult):
            depths = {str(depth): score for depth, score in judged.masked_by_depth.items()}
        else:
            depths = {"all layers": judged.masked.primary} if judged.masked else {}
        rows = [(f"masked tokens found, {where}", f"{score:.1%}") for where, score in depths.items()]
        return markdown_table(("measured on test text", "accuracy"), rows)
    if model.task.name not in judged.task_scores:
        return f"The evaluation has no scores of `{model.task.name}` in `{model.language}`."
    return _task_scores(judged.task_scores[model.task.name], model.task.seed, model.language)


def _task_scores(scores: TaskScores, seed: int, language: str) -> str:
    every, metric = scores.score, metric_label(scores.metric)
    rows = [(f"{metric}, best trivial answer", f"{scores.baseline:.1%}")]
    if seed in every.by_seed:
        rows.insert(0, (f"{metric}, this model (seed {seed})", f"{every.by_seed[seed]:.1%}"))
    if len(every.by_seed) > 1:
        rows.append((f"{metric}, mean of {len(every.by_seed)} seeds", f"{every.mean:.1%} ± {every.deviation:.1%}"))
    rows += [(f"{metric_label(name)}, mean of seeds", f"{found.mean:.1%}") for name, found in scores.others.items()]
    rows += [(f"{metric}, {metric_label(name)}", f"{found.mean:.1%}") for name, found in scores.baselines.items()]
    return markdown_table((f"{scores.examples:,} test examples in `{language}`", "score"), rows)


def _limits(model: CardSubject) -> Iterator[str]:
    yield f"Text in other languages than `{model.language}`: its vocabulary is of this language alone."
    yield "Writing text: it is an encoder."
    if model.task and model.task.manifest.language != model.language:
        yield (
            f"Taking its answers as if it had learned the task in `{model.language}`: it learned it from examples in "
            f"`{model.task.manifest.language}` only (zero-shot transfer)."
        )
    if model.task and model.task.labels:
        yield "Anything that fits none of its labels: it names one of them for every input."


def _provenance(model: CardSubject) -> str:
    rows = [(name, part.manifest.library_version, f"`{part.fingerprint}`") for name, part in model.parts.items()]
    table = markdown_table(("artifact", "made by lingraft", "fingerprint"), rows, left=3)
    if not model.origin:
        return table
    revision, package = model.origin["revision"], model.origin["package"]
    place = f"package `{package}`" if package else "a local folder"
    at = f"revision `{revision}`, commit" if revision else f"{place}, SHA-256 of its weights"
    licence = model.origin["licence"] or _NOT_STATED
    return (
        f"{table}\n\nThe primary was imported from `{model.origin['name']}`, {at} `{model.origin['sha']}`; licence: "
        f"{licence}."
    )
