"""Small tasks on pairs, questions and tags, whose examples are files that the tests make."""

import json
from pathlib import Path
from typing import Any

from lingraft.config.tasks import Finetuning, Task, TaskFile, TaskKindName
from tests.comparison.project import write_pairs
from tests.made_up import documents

_SIZES = {"train": 32, "dev": 8, "test": 12}


def tasks(folder: Path, languages: tuple[str, ...]) -> tuple[Task, ...]:
    """Write the examples of all languages under a folder; nothing is asked in the last one."""
    write_pairs(folder, languages)
    for language in languages:
        lines = [document["text"].splitlines()[0] for document in documents(language, sum(_SIZES.values()))]
        for split, count in _SIZES.items():
            (folder / f"{split}.{language}.json").write_text(json.dumps(_questions(lines[:count])), encoding="utf-8")
            (folder / f"{split}.{language}.conll").write_text(_tagged(lines[:count]), encoding="utf-8")
            lines = lines[count:]
    first = {language: documents(language, 1)[0]["text"].splitlines()[0] for language in languages[:-1]}
    pairs = {language: {"text": line, "text_pair": line} for language, line in first.items()}
    reading = {language: {"question": line.split()[0], "context": line} for language, line in first.items()}
    return (
        _task("same-line", "pairs", folder, "tsv", pairs),
        _task("reading", "questions", folder, "json", reading),
        _task("names", "tags", folder, "conll", first),
    )


def _task(name: str, kind: TaskKindName, folder: Path, suffix: str, examples: dict[str, Any]) -> Task:
    files = {split: TaskFile(kind="file", path=f"{folder}/{split}.{{language}}.{suffix}") for split in _SIZES}
    finetuning = Finetuning(epochs=2, batch_examples=8, learning_rate=3e-3, seeds=(1,))
    return Task(name=name, kind=kind, finetuning=finetuning, examples=examples, **files)


def _questions(lines: list[str]) -> dict[str, Any]:
    """What stands behind the first word of each line."""
    paragraphs = []
    for number, line in enumerate(lines):
        first, second, *_ = line.split()
        answers = [{"text": second, "answer_start": len(first) + 1}]
        paragraphs.append({"context": line, "qas": [{"id": str(number), "question": first, "answers": answers}]})
    return {"data": [{"paragraphs": paragraphs}]}


def _tagged(lines: list[str]) -> str:
    """The first two words of each line are a name."""
    tagged = [zip(line.split(), ["B-X", "I-X", *["O"] * len(line.split())], strict=False) for line in lines]
    return "\n\n".join("\n".join(f"{word}\t{tag}" for word, tag in words) for words in tagged) + "\n"
