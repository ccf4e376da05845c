"""Labelled texts and pairs of texts: XNLI, PAWS-X, and files and datasets of one's own.

Formats:
    XNLI's own files (xnli.dev.tsv, xnli.test.tsv: all languages in one; multinli.train.<language>.tsv);
    the XTREME layout (premise TAB hypothesis TAB label, no header), also of PAWS-X;
    PAWS-X's own files (id, sentence1, sentence2, label); pairs marked "NS" there, not translated and labelled 0, stay,
    as in XTREME and in the Hugging Face dataset, so that scores compare;
    text TAB label, with a header, as of GLUE's SST-2, or without; JSONL with the same names as keys; rows of a Hugging
    Face dataset.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lingraft.data.documents import Document
from lingraft.errors import LingraftError, TextError
from lingraft.tasks.rows import Layouts, Row, class_of, find_column, rows_or_errors, text_of

LABEL_COLUMNS = ("gold_label", "label")
"""Columns that hold labels."""
_UNDECIDED = "-"
"""SNLI's and MultiNLI's gold_label where the annotators did not agree."""
_TEXTS = Layouts((("text", "sentence"), LABEL_COLUMNS), (("text", "label"),))
_PAIRS = Layouts(
    (("premise", "sentence1", "text1"), ("hypothesis", "hypo", "sentence2", "text2"), LABEL_COLUMNS),
    (("sentence1", "sentence2", "label"), ("id", "sentence1", "sentence2", "label")),
)


@dataclass(frozen=True, slots=True)
class Example:
    """A text, or a pair of texts, with its class."""

    place: str = field(repr=False)
    """Name in errors; no part of its `repr`, which does not depend on where the file lies."""
    texts: tuple[str, ...]
    label: str


def examples_or_errors(path: Path, language: str, pairs: bool) -> Iterator[Example | LingraftError]:
    """Yield a file's labelled texts, or pairs, in a language, and an error in place of each line that is none."""
    layouts = _PAIRS if pairs else _TEXTS
    for row in rows_or_errors(path, language, layouts):
        try:
            found = row if isinstance(row, LingraftError) else _example(row, layouts, ())
        except TextError as error:
            found = error
        yield found


def examples_of_rows(
    rows: Iterable[Mapping[str, Any]], origin: str, names: Sequence[str], pairs: bool
) -> Iterator[Example]:
    """Yield labelled texts, or pairs, from a dataset's rows; `names` are those of its class numbers, if it has any."""
    for number, cells in enumerate(rows):
        yield _example(Row(f"{origin}, row {number}", cells), _PAIRS if pairs else _TEXTS, names)


def documents_as_examples(documents: Iterable[Document]) -> list[Example]:
    """Return labelled documents as examples of one text."""
    examples = []
    for document in documents:
        place = f"document {document.name!r}"
        examples.append(Example(place, (document.text,), class_of(document.label, place, ())))
    return examples


def _example(row: Row, layouts: Layouts, names: Sequence[str]) -> Example:
    *texts, label = (find_column(row, alternatives) for alternatives in layouts.required)
    return Example(row.place, tuple(text_of(row, text) for text in texts), _label(row, label, names))


def _label(row: Row, name: str, names: Sequence[str]) -> str:
    label = class_of(row.cells[name], row.place, names)
    if name == "gold_label" and label == _UNDECIDED:
        raise TextError(
            f"{row.place}: gold_label is '-', which says that its annotators did not agree. "
            "Remove such rows, as is the custom."
        )
    # XNLI's translated MultiNLI (the only one with a column 'hypo') calls the class otherwise than its dev and test.
    return "contradiction" if "hypo" in row.cells and label == "contradictory" else label
