"""The model card of an exported model: facts from manifests and evaluations, and "not stated" where they are silent.

The header is what the Hugging Face hub reads; https://huggingface.co/docs/hub/model-cards.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

from lingraft.artifacts.artifact import Artifact, require_aligned
from lingraft.artifacts.manifest import Kind, Manifest
from lingraft.data.tokenizer.pieces import SpecialPieces
from lingraft.errors import AlignmentError
from lingraft.huggingface.card_data import NOT_STATED, TrainingData, TrainingText, cost_table, trace_training_data
from lingraft.huggingface.fast_tokenizer import special_pieces
from lingraft.huggingface.model import HfClass
from lingraft.model.loading import Embeddings, LoadedPrimary
from lingraft.stages import results
from lingraft.stages.results import LanguageResult, SourceResult, TaskScores, metric_label
from lingraft.tables import markdown_table
from lingraft.tasks.class_scores import class_scores
from lingraft.tasks.finetuned import TaskModel

_FILE = "model_card.md"
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

    @property
    def trained_here(self) -> dict[str, Manifest]:
        """Manifests without those of an imported primary and task, which were trained elsewhere."""
        return {name: part.manifest for name, part in self.parts.items() if not part.manifest.record.get("origin")}


def model_card(model: CardSubject, evaluation: Path | None = None, data: Sequence[Path] = ()) -> str:
    """Return the card's text.

    `data` are text artifacts that it was trained on, and blocks that lead to them.
    """
    sources = trace_training_data((part.manifest for part in model.parts.values()), data)
    judged = _evaluation(model, evaluation) if evaluation else None
    page = Template(resources.files("lingraft.huggingface").joinpath(_FILE).read_text(encoding="utf-8"))
    return page.substitute(
        front=_front_matter(model, sources),
        title=f"{_title(model)} in {model.language}",
        summary=_summary(model),
        system=_system(model),
        usage="\n".join(_usage(model)),
        longest=model.source.encoder.shape.block_tokens,
        end_piece=model.special.end,
        data=_data(model, sources.texts),
        cost=_cost(model, judged),
        scores=_scores(model, judged),
        licences="\n".join(_licences(model, sources)),
        limits="\n".join(f"- {limit}" for limit in _limits(model, judged)),
        provenance=_provenance(model),
    )


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


def _front_matter(model: CardSubject, sources: TrainingData) -> str:
    from huggingface_hub import ModelCardData

    origin = model.origin
    base = origin["name"] if origin and (origin["revision"] or origin["package"]) else None  # a folder is no hub id
    return ModelCardData(
        language=model.language,
        license=_licence(model, sources),
        library_name="sentence-transformers" if model.form.pipeline == _SIMILARITY else "transformers",
        pipeline_tag=model.form.pipeline,
        base_model=base,
        tags=["lingraft", "mini-model-adaptation"],
    ).to_yaml()


def _licence(model: CardSubject, sources: TrainingData) -> str:
    """Return the licence that all inputs state; 'unknown' and 'other' are the hub's own words."""
    stated = {text.licence for text in sources.texts}
    stated |= {model.origin["licence"] or NOT_STATED} if model.origin else set()
    if NOT_STATED in stated or not all(map(sources.covers, model.trained_here.values())):
        return "unknown"
    return stated.pop() if len(stated) == 1 else "other"


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
    details = model.vocabulary_source.manifest.details
    layers = model.source.encoder.shape.layers
    return (
        f"The token embeddings were learned by {_learning(details, layers)}, system "
        f"{details.get('system', NOT_STATED)}, with the body frozen. The primary's source language is "
        f"`{model.source.tokenizer.language}`."
    )


def _learning(details: Mapping[str, Any], layers: int) -> str:
    """Describe how embeddings were learned: by masked tokens, or by sentence pairs."""
    pairs = details.get("pairs")
    if not pairs:
        return _adaptation(details, layers)
    depth = layers if pairs["layers"] == "all" else details["depth"]
    over = f"all {layers} layers" if depth == layers else f"the bottom {depth} of {layers} layers"
    return f"sentence pairs (arXiv 2004.09813), whose vectors are taken after {over}"


def _adaptation(details: Mapping[str, Any], layers: int) -> str:
    """Describe learning by masked tokens: over all layers, it is the baseline of mini-models."""
    depth = details.get("depth")
    fresh = details.get("fresh_layers")
    if depth == layers:
        return f"standard adaptation over all {layers} layers (arXiv 1910.11856)"
    over = f"the bottom {depth} of {layers} layers" if depth else f"a depth that is {NOT_STATED}"
    added = f" and {fresh} fresh layer{'s' if fresh > 1 else ''}" if fresh else ""
    return f"mini-model adaptation (arXiv 2212.10503) over {over}{added}, then put into the whole model"


def _usage(model: CardSubject) -> Iterator[str]:
    if model.form.pipeline == "question-answering":  # transformers has no pipeline for it any more
        yield _ANSWERING
        return
    if model.form.pipeline == _SIMILARITY:
        yield _EMBEDDING
        return
    yield "from transformers import pipeline"
    yield ""
    yield f'model = pipeline("{model.form.pipeline}", model="path/to/this/folder")'
    if model.form.pipeline == "fill-mask":
        yield f'print(model("{model.special.mask}"))'
    elif model.task and model.task.settings.kind == "pairs":
        yield 'print(model({"text": "...", "text_pair": "..."}))'
    else:
        yield 'print(model("..."))'


def _data(model: CardSubject, texts: Sequence[TrainingText]) -> str:
    trained = [
        (name, manifest.language, manifest.details.get("examples", ""), what, f"`{mark}`")
        for name, manifest in model.trained_here.items()
        for what, mark in manifest.data_hashes.items()
    ]
    parts = [markdown_table(("trained", "language", "examples", "on", "SHA-256"), trained, left=5)] if trained else []
    if texts:
        rows = [(t.language, t.origin, t.documents, t.characters, f"`{t.fingerprint}`") for t in texts]
        parts.append(markdown_table(("text", "source", "training documents", "characters", "SHA-256"), rows, left=5))
    else:
        parts.append(f"Documents of the text: {NOT_STATED}.")
    return "\n\n".join(parts)


def _cost(model: CardSubject, judged: SourceResult | LanguageResult | None) -> str:
    costs = {name: manifest.cost for name, manifest in model.trained_here.items()}
    building = judged.building if isinstance(judged, LanguageResult) else None
    costs |= {"fresh layers (step 1b, once for all languages)": building} if building else {}
    parts = [cost_table(costs)] if costs else []
    if model.origin:
        parts.append(f"The primary was imported; what its training cost is {NOT_STATED}.")
    if model.vocabulary_source.manifest.details.get("fresh_layers") and building is None:
        parts.append(f"What building the mini-model's fresh layers (step 1b) cost is {NOT_STATED}.")
    parts.append("FLOPs are by the paper's equations A1, A3 and A4.")
    if model.vocabulary_source.manifest.details.get("pairs"):
        parts.append("An update of sentence pairs, for which it has none, counts as three passes through the layers.")
    return "\n\n".join(parts)


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


def _licences(model: CardSubject, sources: TrainingData) -> Iterator[str]:
    if model.origin:
        yield f"- weights and tokenizer of `{model.origin['name']}`: {model.origin['licence'] or NOT_STATED}"
    for text in sources.texts:
        yield f"- text in `{text.language}` ({text.origin}): {text.licence}"
    for name, manifest in model.trained_here.items():
        if not sources.covers(manifest):
            yield f"- training text of the {name}: {NOT_STATED}"


def _limits(model: CardSubject, judged: SourceResult | LanguageResult | None) -> Iterator[str]:
    longest = model.source.encoder.shape.block_tokens
    yield f"Text in other languages than `{model.language}`: its vocabulary is of this language alone."
    yield f"More than {longest} tokens at once: it has no positions beyond."
    yield "Writing text: it is an encoder."
    if model.task and model.task.manifest.language != model.language:
        yield (
            f"Taking its answers as if it had learned the task in `{model.language}`: it learned it from examples in "
            f"`{model.task.manifest.language}` only (zero-shot transfer)."
        )
    if model.task and model.task.labels:
        yield "Anything that fits none of its labels: it names one of them for every input."
    if judged and model.task and (scores := judged.task_scores.get(model.task.name)):
        found = zip(scores.labels, class_scores(scores.confusion), strict=False)  # only classes have a confusion matrix
        if never := [f"`{label}`" for label, score in found if score.never_found]:
            yield f"Finding {', '.join(never)}: none of the test examples with these labels is recognised."
    if judged is None or (model.task and model.task.name not in judged.task_scores):
        yield "Decisions that rest on its quality: no score of it is stated above."


def _provenance(model: CardSubject) -> str:
    rows = [(name, part.manifest.library_version, f"`{part.fingerprint}`") for name, part in model.parts.items()]
    table = markdown_table(("artifact", "made by lingraft", "fingerprint"), rows, left=3)
    if not model.origin:
        return table
    revision, package = model.origin["revision"], model.origin["package"]
    place = f"package `{package}`" if package else "a local folder"
    at = f"revision `{revision}`, commit" if revision else f"{place}, SHA-256 of its weights"
    return f"{table}\n\nThe primary was imported from `{model.origin['name']}`, {at} `{model.origin['sha']}`."
