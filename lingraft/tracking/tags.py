"""Tags and description of a registered version, derived from its artifact: the contract of the registry."""

import json
from collections.abc import Mapping

import pydantic

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.manifest import Kind, Manifest
from lingraft.bundle.format import bundle_examples, bundle_languages
from lingraft.bundle.language_part import language_fingerprint
from lingraft.model.flops import V100_FLOPS_PER_S
from lingraft.tables import markdown_table

PARITY = "parity."
"""Prefix of the tags for parity, the largest difference of a logit between ONNX Runtime and PyTorch: by language for
bundles, by task for embeddings."""
LANGUAGES, ANSWERS, EXAMPLES = "languages", "answers", "examples"
"""Tags of a bundle: languages in their order; kind of task and labels, and example texts by language, as JSON."""
DESCRIPTION_CHARACTERS = 5000
"""Largest number of characters of a description in MLflow's database."""
_FIRST_SCORES = 4
"""Number of scores in the first line of a description."""
_TRUNCATED = "\n\nThe rest is in the artifact's manifest.json."


def mlflow_tags(made: Artifact) -> dict[str, str]:
    """Return the tags of a version that follow from its artifact; docs/guides/registry.md explains each."""
    manifest = made.manifest
    settings = manifest.details.get("settings")
    origin = manifest.record.get("origin", {}) if manifest.kind is Kind.PRIMARY else {}
    facts: dict[str, object] = {
        "kind": manifest.kind,
        "fingerprint": made.fingerprint,
        "aligned_with": manifest.aligned_with,
        "tokenizer_hash": manifest.tokenizer_hash,
        "language": manifest.language,
        **{name: manifest.details.get(name) for name in ("system", "depth", "task")},
        "task_kind": settings.get("kind") if isinstance(settings, dict) else None,
        **{f"data.{name}": mark for name, mark in manifest.data_hashes.items()},
        "library_version": manifest.library_version,
        **{f"origin.{name}": value for name, value in origin.items()},
        **cost_tags(manifest),
        **(_bundle_tags(manifest) if manifest.kind is Kind.BUNDLE else {}),
    }
    return {name: str(value) for name, value in facts.items() if value is not None}


def _bundle_tags(manifest: Manifest) -> dict[str, object]:
    languages = bundle_languages(manifest)
    return {
        LANGUAGES: ",".join(languages),
        ANSWERS: json.dumps([manifest.detail("kind", str), manifest.detail("labels", list[str])]),
        EXAMPLES: json.dumps(bundle_examples(manifest)),
        **{f"fingerprint.{language}": language_fingerprint(manifest, language) for language in languages},
        **{f"{PARITY}{language}": difference for language, difference in parity_of(manifest).items()},
    }


class _Parity(pydantic.BaseModel, frozen=True):
    difference: float


def parity_of(manifest: Manifest) -> dict[str, float]:
    """Return, by language, the largest difference between a bundle's logits and PyTorch's in float32."""
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


def description_of(made: Artifact, scores: Mapping[str, float]) -> str:
    """Return the description of an artifact's version or run in Markdown, with its result in the first line."""
    manifest = made.manifest
    title = str(manifest.kind).capitalize() + (f" in `{manifest.language}`" if manifest.language else "")
    shown = {name: f"{value:.4g}" for name, value in scores.items()}
    results = [", ".join(f"{name} {value}" for name, value in list(shown.items())[:_FIRST_SCORES])]
    results += [f"{manifest.cost.elapsed_s:,.0f} s, {manifest.cost.flops:.3g} FLOP"] if manifest.cost.steps else []
    result = "; ".join(filter(None, results))
    facts = [(name, f"`{value}`") for name, value in mlflow_tags(made).items() if name not in {ANSWERS, EXAMPLES}]
    tables = [markdown_table(("score", "value"), [*shown.items()])] if shown else []
    tables.append(markdown_table(("what", "is"), facts, left=2))
    return truncate("\n\n".join([f"**{title}**" + (f": {result}." if result else "."), *tables]))


def truncate(text: str) -> str:
    """Shorten a description to MLflow's limit by whole lines; it then says so."""
    if len(text) <= DESCRIPTION_CHARACTERS:
        return text
    return text[: DESCRIPTION_CHARACTERS - len(_TRUNCATED)].rsplit("\n", 1)[0] + _TRUNCATED
