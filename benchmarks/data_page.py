"""Page of `benchmarks.data` in Markdown."""

import os
from importlib.metadata import version
from typing import Any

from lingraft.tables import markdown_table

_MB, _GIB = 1e6, 2**30


def page(found: dict[str, Any], vocabulary: int, sample_lines: int, block_tokens: int) -> str:
    """A page: seconds, megabytes a second, memory and the ratio, by language and for all of them."""
    languages = {name: one for name, one in found.items() if name != "flatness"}
    packages = ", ".join(f"{name} {version(name)}" for name in ("sentencepiece", "datasets", "tokenizers"))
    parts = [
        "# Text to blocks",
        f"`python -m benchmarks.data --data DIR` on {len(os.sched_getaffinity(0))} cores; {packages}; tokenizers of "
        f"{vocabulary:,} pieces, or as many as the text supports, trained on {sample_lines:,} lines at most; blocks of "
        f"{block_tokens} tokens. Each side runs from the compressed file to blocks on disk, in processes of its own.",
        "lingraft reads, normalises, filters and deduplicates, splits into train, dev and test, tokenises and packs. "
        "The peer is `datasets.map` (batched, a process a core) with lingraft's export of the same tokenizer as a fast "
        "one, and run_mlm's `group_texts`, saved to disk; it does not clean, so the columns *as is* leave cleaning out "
        "on our side too. Sides run in turns; times are medians over the rounds, memory is the peak of all rounds over "
        "all processes of a side, shared pages counted once. Where the text does not support the vocabulary, training "
        "the tokenizer counts both the attempt that said so and the one with as many pieces as the text supports.",
        _languages(languages),
        _sums(languages),
    ]
    if "flatness" in found:
        parts += ["## Memory as a corpus grows", _flatness(found["flatness"])]
    return "\n\n".join(parts) + "\n"


def _languages(languages: dict[str, Any]) -> str:
    head = [
        "language",
        "rounds",
        "text MB",
        "tokens M",
        "tokenizer s",
        "tokenizer GiB",
        "cleaned s",
        "as is s",
        "peer s",
    ]
    head += ["ratio as is", "MB/s", "GiB", "peer GiB", "cut alike"]
    rows = [
        [
            name,
            str(one["rounds"]),
            f"{one['text_bytes'] / _MB:.1f}",
            f"{one['tokens'] / _MB:.1f}",
            f"{one['tokenizer']['elapsed_s']:.0f}",
            f"{_peak(one, 'tokenizer'):.2f}",
            *(f"{seconds:.1f}" for seconds in (_cleaned_s(one), _plain_s(one), one["peer"]["elapsed_s"])),
            f"**{one['peer']['elapsed_s'] / _plain_s(one):.2f}**",
            f"{one['text_bytes'] / _MB / _cleaned_s(one):.1f}",
            f"{_peak(one, 'text', 'blocks'):.2f}",
            f"{_peak(one, 'peer'):.2f}",
            f"{one['equal_lines']:.2%}",
        ]
        for name, one in languages.items()
    ]
    return markdown_table(head, rows)


def _sums(languages: dict[str, Any]) -> str:
    ones = languages.values()
    cleaned_s, plain_s = sum(map(_cleaned_s, ones)), sum(map(_plain_s, ones))
    peer_s = sum(one["peer"]["elapsed_s"] for one in ones)
    text = sum(one["text_bytes"] for one in ones) / _MB
    return (
        f"All {len(languages)}: {text:,.0f} MB of text in **{cleaned_s:,.0f} s** ({text / cleaned_s:.1f} MB/s); as is "
        f"{plain_s:,.0f} s, the peer {peer_s:,.0f} s, **{peer_s / plain_s:.2f} times** ours. Training tokenizers took "
        f"{sum(one['tokenizer']['elapsed_s'] for one in ones):,.0f} s. Most memory: "
        f"**{max(_peak(one, 'text', 'blocks') for one in ones):.2f} GiB**, the peer "
        f"{max(_peak(one, 'peer') for one in ones):.2f} GiB, training tokenizers "
        f"{max(_peak(one, 'tokenizer') for one in ones):.2f} GiB."
    )


def _flatness(found: dict[str, Any]) -> str:
    copies = found["copies"]
    rows = [
        [
            part,
            *(f"{_peak(found[times], part):.3f}" for times in ("once", "copied")),
            *(f"{_seconds(found[times], part):.1f}" for times in ("once", "copied")),
        ]
        for part in ("text", "blocks")
    ]
    longer = f"{copies} times the text"
    return markdown_table([found["language"], "GiB", f"GiB, {longer}", "s", f"s, {longer}"], rows)


def _cleaned_s(one: dict[str, Any]) -> float:
    return _seconds(one, "text", "blocks")


def _plain_s(one: dict[str, Any]) -> float:
    return _seconds(one, "plain_text", "plain_blocks")


def _seconds(one: dict[str, Any], *parts: str) -> float:
    return sum(one[part]["elapsed_s"] for part in parts)


def _peak(one: dict[str, Any], *parts: str) -> float:
    return max(one[part]["peak_bytes"] for part in parts) / _GIB
