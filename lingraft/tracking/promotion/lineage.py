"""The lineage of versions, drawn as a tree from primaries to bundles."""

from collections.abc import Iterator, Sequence

from lingraft.tracking.versions import Version

_DATA = "data."
_TEXT = f"{_DATA}text"
_LANGUAGE = "fingerprint."
"""Prefix of a bundle's tags with the fingerprint of each language; the language follows."""


def parents_of(version: Version) -> set[str]:
    """Return the fingerprints of the artifacts that a version needs: its primary, and the parts of a bundle."""
    marks = {value for key, value in version.tags.items() if key.startswith(_DATA)}
    return {mark for mark in (*marks, version.tags.get("aligned_with")) if mark}


def lineage_tree(found: Sequence[Version]) -> str:
    """Draw the lineage of a project's versions: each primary with its descendants, then versions without a primary."""
    primaries = [each for each in found if each.kind == "primary"]
    lines = [line for primary in primaries for line in _tree(primary, found)]
    known = {primary.fingerprint for primary in primaries}
    orphans = [each for each in found if each.kind != "primary" and each.tags.get("aligned_with") not in known]
    if orphans:
        lines += ["(primary that is not registered)", *_indent(*([_label(each)] for each in orphans))]
    return "\n".join(lines)


def _tree(primary: Version, found: Sequence[Version]) -> Iterator[str]:
    """Draw a primary's tree: bundles below their task, embeddings below the primary or their mini-model."""
    yield _label(primary)
    ours = [each for each in found if each.tags.get("aligned_with") == primary.fingerprint]
    minis, embeddings, tasks, bundles = (
        [each for each in ours if each.kind == kind] for kind in ("mini", "embeddings", "task", "bundle")
    )
    placed: list[Version] = []
    branches = []
    for mini in minis:
        learned = [each for each in embeddings if _learned_over(mini, each)]
        branches.append([_label(mini), *_indent(*([_label(each)] for each in learned))])
        placed += learned
    branches += [[_label(each)] for each in embeddings if each not in placed]
    branches += [[_label(task), *_indent(*_bundles(task.fingerprint, bundles, primary, embeddings))] for task in tasks]
    branches += _bundles(None, bundles, primary, embeddings)
    yield from _indent(*branches)


def _learned_over(mini: Version, embeddings: Version) -> bool:
    return all(embeddings.tags.get(key) == mini.tags.get(key) for key in ("system", "depth"))


def _bundles(
    task: str | None, bundles: Sequence[Version], primary: Version, embeddings: Sequence[Version]
) -> Iterator[list[str]]:
    """Draw the bundles of a task by its fingerprint, or of the primary itself if None: each with its languages."""
    for bundle in bundles:
        if bundle.tags.get(f"{_DATA}task") == task:
            languages = [_language(bundle, language, primary, embeddings) for language in _languages(bundle)]
            yield [_label(bundle), *_indent(*([each] for each in languages))]


def _languages(bundle: Version) -> list[str]:
    found = [tag.removeprefix(_LANGUAGE) for tag in bundle.tags if tag.startswith(_LANGUAGE)]
    return sorted(found, key=lambda language: (language != bundle.tags.get("language"), language))


def _language(bundle: Version, language: str, primary: Version, embeddings: Sequence[Version]) -> str:
    """Describe a language of a bundle: the version of its embeddings, and the text they were learned from."""
    head = f"{language} [{bundle.tags[f'{_LANGUAGE}{language}'][:12]}]"
    is_source = language == bundle.tags.get("language")
    mark = primary.fingerprint if is_source else bundle.tags.get(f"{_DATA}embeddings-{language}", "")
    learned = next((each for each in (primary, *embeddings) if each.fingerprint == mark), None)
    if learned is None:
        return f"{head} of embeddings {mark[:12] or 'that no tag names'}, not registered"
    inputs = {name: learned.tags.get(f"{_DATA}{name}") for name in ("text", "documents")}
    hashes = [f"{name} {each[:12]}" for name, each in inputs.items() if each]
    return " ".join([head, "of", learned.name, f"{learned.number}", f"[{mark[:12]}]", *hashes])


def _label(version: Version) -> str:
    """Describe a version: number, fingerprint, languages, system, depth, text and aliases."""
    tags = version.tags
    facts = [
        ", ".join(_languages(version)) or tags.get("language"),
        tags.get("system") if version.kind != "task" else None,
        f"depth {tags['depth']}" if "depth" in tags and version.kind != "primary" else None,
        f"text {tags[_TEXT][:12]}" if _TEXT in tags else None,
        *(f"@{alias}" for alias in version.aliases),
    ]
    return " ".join([version.name, str(version.number), f"[{version.fingerprint[:12]}]", *filter(None, facts)])


def _indent(*branches: Sequence[str]) -> list[str]:
    lines = []
    for number, (head, *rest) in enumerate(branches):
        last = number == len(branches) - 1
        lines.append(f"{'└── ' if last else '├── '}{head}")
        lines += [f"{'    ' if last else '│   '}{line}" for line in rest]
    return lines
