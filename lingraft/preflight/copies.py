"""Documents of a target that stand in the source's text word for word: untranslated text, or the wrong file."""

from collections.abc import Iterator, Mapping

from lingraft.preflight.samples import TextSample

_SHARE = 0.1
"""Share of a target's characters from which copies are worth a warning; names and commands are alike everywhere."""


def warnings(taken: Mapping[str, TextSample], source: str) -> Iterator[str]:
    """Say of each target how much of its text is a copy of the source's.

    Such text teaches the target nothing, and makes its zero-shot scores better than they are.

    Args:
        taken: samples by language; nothing is said where the source is not among them.
        source: the source language.
    """
    if source not in taken:
        return
    original = set(_texts(taken[source]))
    for language, sample in taken.items():
        texts = [*_texts(sample)]
        copies = [text for text in texts if text in original]
        share = sum(map(len, copies)) / max(sum(map(len, texts)), 1)
        if language != source and share >= _SHARE:
            yield (
                f"{language}: {len(copies):,} of {len(texts):,} documents, {share:.0%} of the text, are in {source!r} "
                "word for word. Scores are too good if they stay: check that the file is the right one, and remove "
                "documents that are not translated."
            )


def _texts(sample: TextSample) -> Iterator[str]:
    return (" ".join(text.split()) for texts in sample.texts.values() for text in texts)
