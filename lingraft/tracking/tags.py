"""Tags and model card of a registered version, derived from its artifact: the contract of the registry."""

import contextlib
from collections.abc import Mapping

import pydantic

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind, Manifest
from lingraft.bundle.format import bundle_languages
from lingraft.bundle.language_part import language_fingerprint
from lingraft.huggingface.card_data import cost_table
from lingraft.model.flops import V100_FLOPS_PER_S
from lingraft.tables import markdown_table

PARITY = "parity."
"""Prefix of the tags for parity, the largest difference of a logit between ONNX Runtime and PyTorch: by language for
bundles, by task for embeddings."""
ORIGIN = "origin."
"""Prefix of the tags for the model that a primary was made from: name, revision, package, hash (`sha`) and licence."""
CARD_CHARACTERS = 5000
"""Largest number of characters of a description in MLflow's database."""
_FIRST_SCORES = 4
"""Number of scores in the first line of a run's description."""
_NOT_ON_CARD = ("data.", "cost_", "fingerprint.")
"""Prefixes of tags that a model card does not list among its facts."""
_TRUNCATED = "\n\nThe rest is in the artifact's manifest.json."
_NOUNS = {
    "primary": "The model that all languages and tasks of `{project}` are put into",
    "mini": "The mini-model over which languages of `{project}` learn their embeddings",
    "embeddings": "Token embeddings of one language, to be put into the primary and the tasks of `{project}`",
    "task": "A body finetuned on one task in the source language of `{project}`",
    "bundle": "A body in ONNX with the tables of several languages, as the endpoint of `{project}` serves it",
}

_EMBEDDINGS_SCORES = (
    "`mini`, `primary`: share of masked tokens that are found over the mini-model and over the primary, at 15%; "
    "`alignment_top`, `alignment_bottom`: how often hidden states of the primary find their counterparts in the source "
    "language among `alignment_pairs`, after the top layer and after the mini-model's; `_mutual_cosine`: mean cosine "
    "of pairs that are each other's nearest; `zero_shot_<task>`: the task's own score; `_initial`: the same before "
    "anything was learned; `_macro_F1`: mean of the classes' F1; `parity.<task>`: the largest difference of a logit "
    "between ONNX Runtime and PyTorch; `overlap`: pieces that the source has too."
)


def mlflow_tags(made: Artifact) -> dict[str, str]:
    """Return the tags of a version that follow from its artifact; docs/guides/registry.md explains each."""
    manifest = made.manifest
    settings = manifest.details.get("settings")
    languages = bundle_languages(manifest) if manifest.kind is Kind.BUNDLE else []
    facts: dict[str, object] = {
        "kind": manifest.kind,
        "fingerprint": made.fingerprint,
        "aligned_with": manifest.aligned_with,
        "tokenizer_hash": manifest.tokenizer_hash,
        "language": manifest.language,
        **{name: manifest.details.get(name) for name in ("system", "depth", "task")},
        "task_kind": settings.get("kind") if isinstance(settings, dict) else None,
        **{f"data.{name}": mark for name, mark in manifest.data_hashes.items()},
        **{f"fingerprint.{language}": language_fingerprint(manifest, language) for language in languages},
    }
    return {name: str(value) for name, value in facts.items() if value is not None} | recorded_tags(manifest)


def recorded_tags(manifest: Manifest) -> dict[str, str]:
    """Return the tags that the fingerprint does not cover: library version, cost, parity and origin of this copy."""
    parity = parity_of(manifest) if manifest.kind is Kind.BUNDLE else {}
    origin = manifest.record.get("origin", {}) if manifest.kind is Kind.PRIMARY else {}
    facts = {
        "library_version": manifest.library_version,
        **{f"{ORIGIN}{name}": value for name, value in origin.items() if value is not None},
        **cost_tags(manifest),
        **{f"{PARITY}{language}": difference for language, difference in parity.items()},
    }
    return {name: str(value) for name, value in facts.items()}


def surplus_tags(tags: Mapping[str, str], made: Artifact) -> set[str]:
    """Return the names of tags that are derived from an artifact, but not from this one."""
    families = ("data.", "fingerprint.", *((PARITY,) if made.manifest.kind is Kind.BUNDLE else ()))
    claims = {name for name in tags if name.startswith(families) or name in {"tokenizer_hash", "aligned_with"}}
    return claims - set(mlflow_tags(made))


def mismatched_tag(tags: Mapping[str, str], made: Artifact) -> str | None:
    """Describe the first tag that differs from the artifact, is missing, or is surplus; None if there is none.

    Cost and library version are not compared, since nothing depends on them.
    """
    ignored = {"library_version", *cost_tags(made.manifest)}
    facts = {name: value for name, value in mlflow_tags(made).items() if name not in ignored}
    for name in sorted({*facts, *surplus_tags(tags, made)}):
        if tags.get(name) != facts.get(name):
            tagged = tags.get(name, "nothing")
            actual = facts.get(name, "nothing")
            return f"its tag {name!r} says {tagged}, and the artifact {actual}: the tag was changed or removed."
    return None


class _Parity(pydantic.BaseModel, frozen=True):
    difference: float


def parity_of(manifest: Manifest) -> dict[str, float]:
    """Return, by language, the largest difference between a bundle's logits and PyTorch's in float32.

    Raises:
        ArtifactError: the manifest has no valid record.
    """
    parity: dict[str, dict[str, _Parity]] = manifest.recorded("parity", dict[str, dict[str, _Parity]])
    return {language: found.difference for language, found in parity.get("fp32", {}).items()}


def cost_tags(manifest: Manifest) -> dict[str, object]:
    """Return the cost of training an artifact; nothing if it was not trained.

    GPU-hours are those of the paper's V100 at 30 TFLOP/s (appendix A.1), whatever hardware was used.
    """
    if not manifest.cost.steps:
        return {}
    hours = manifest.cost.flops / V100_FLOPS_PER_S / 3600
    return {
        "cost_flops": manifest.cost.flops,
        "cost_gpu_hours": f"{hours:.6g}",
        "cost_elapsed_s": manifest.cost.elapsed_s,
    }


def numeric_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Return the tags whose values are numbers, such as scores."""
    numeric = {}
    for name, value in tags.items():
        with contextlib.suppress(ValueError):
            float(value)
            numeric[name] = value
    return numeric


def model_description(kind: str, project: str) -> str:
    """Return the description of a registered model, in a sentence."""
    noun = _NOUNS.get(kind, f"Artifacts of kind {kind} of `{{project}}`").format(project=project)
    return f"{noun}. Every version is a verified artifact; see its card."


def model_card(made: Artifact, title: str, scores: Mapping[str, str]) -> str:
    """Return the model card of a version in Markdown, from its manifest and scores."""
    use = f"## Use\n\n`lingraft registry pull {title} --out DIR` brings and verifies it."
    return truncate(
        "\n\n".join([f"# {title}", _facts_section(made), *_scores_section(made, scores), *_origin_sections(made), use])
    )


def run_description(made: Artifact, scores: Mapping[str, str]) -> str:
    """Return the description of the run that made an artifact, in Markdown, with its result in the first line."""
    manifest = made.manifest
    title = str(manifest.kind).capitalize() + (f" in `{manifest.language}`" if manifest.language else "")
    results = [", ".join(f"{name} {value}" for name, value in list(scores.items())[:_FIRST_SCORES])]
    results += [f"{manifest.cost.elapsed_s:,.0f} s, {manifest.cost.flops:.3g} FLOP"] if manifest.cost.steps else []
    result = "; ".join(filter(None, results))
    opening = f"**{title}**" + (f": {result}." if result else ".")
    return truncate(
        "\n\n".join([opening, *_scores_section(made, scores), _facts_section(made), *_origin_sections(made)])
    )


def _facts_section(made: Artifact) -> str:
    facts = {name: value for name, value in mlflow_tags(made).items() if not name.startswith(_NOT_ON_CARD)}
    return markdown_table(("what", "is"), [(name, f"`{value}`") for name, value in facts.items()], left=2)


def _scores_section(made: Artifact, scores: Mapping[str, str]) -> list[str]:
    if not scores:
        return []
    legend = [_EMBEDDINGS_SCORES] if made.manifest.kind is Kind.EMBEDDINGS else []
    return ["## Scores", markdown_table(("score", "value"), [*scores.items()]), *legend]


def _origin_sections(made: Artifact) -> list[str]:
    manifest = made.manifest
    hashes = [(name, f"`{fingerprint}`") for name, fingerprint in manifest.data_hashes.items()]
    parts = ["## Made from", markdown_table(("input", "fingerprint"), hashes, left=2)] if hashes else []
    return parts + (["## Cost", cost_table({manifest.kind: manifest.cost})] if manifest.cost.steps else [])


def truncate(card: str) -> str:
    """Shorten a card to MLflow's limit by whole lines; the card then says so."""
    if len(card) <= CARD_CHARACTERS:
        return card
    room = CARD_CHARACTERS - len(_TRUNCATED)
    return card[:room].rsplit("\n", 1)[0] + _TRUNCATED
