"""Sentence pairs and dictionaries for `aligned` initialisation: parallel paragraphs, and FreeDict's packages."""

import shutil
import subprocess
from pathlib import Path

from lingraft.artifacts.artifact import Artifact
from lingraft.artifacts.files import write_text
from lingraft.config.tasks import Task
from lingraft.console import say
from lingraft.errors import TextError
from lingraft.stages.alignment_probe import FEWEST_PIECES, paragraphs
from lingraft.tasks.examples import load_examples

FREEDICT = {
    "ar": "ara",
    "bg": "bul",
    "de": "deu",
    "el": "ell",
    "es": "spa",
    "fr": "fra",
    "hi": "hin",
    "it": "ita",
    "nl": "nld",
    "pl": "pol",
    "pt": "por",
    "ru": "rus",
    "sv": "swe",
    "sw": "swh",
    "tr": "tur",
}
"""Codes by which Debian's packages `dict-freedict-eng-*` name languages."""
_FREEDICT_SOURCE = "en"
_FEWEST_PAIRS = 100


def write_pairs(source: Artifact, target: Artifact, out: Path) -> bool:
    """Write paragraphs of the training split that are translations of each other, one pair a line, source first.

    Args:
        source: text of the source language.
        target: text of the target language. Documents of the same name with equally many paragraphs are parallel.
        out: TSV file; left as it is if it is there.

    Returns:
        Whether there are enough pairs; nothing is written if not.
    """
    if out.exists():
        return True
    ours = {each.key: each for document in paragraphs(source, "train") for each in document}
    pairs = [
        f"{ours[each.key].text}\t{each.text}"
        for document in paragraphs(target, "train")
        for each in document
        if each.key in ours and each.digest != ours[each.key].digest and _plain(each.text, ours[each.key].text)
    ]
    if len(pairs) < _FEWEST_PAIRS:
        return False
    out.parent.mkdir(parents=True, exist_ok=True)
    write_text(out, "\n".join(pairs) + "\n")
    return True


def write_lines(task: Task, source: str, language: str, out: Path) -> None:
    """Write the first texts of a task's test examples that are translations of each other row by row, as XNLI's are.

    Args:
        task: task of kind 'pairs' or 'texts', with test examples in files.
        source: source language.
        language: target language.
        out: TSV file, each line a text of the source and its translation, each once; left as it is if it is there.

    Raises:
        TextError: the task is of another kind, examples cannot be read, or the two languages have not equally many.
    """
    if out.exists():
        return
    if task.kind not in ("pairs", "texts"):
        raise TextError(
            f"task {task.name!r} is of kind {task.kind!r}, and --lines takes one of kind 'pairs' or 'texts'."
        )
    ours, theirs = ([each.texts[0] for each in load_examples(task, "test", tag, None)] for tag in (source, language))
    if len(ours) != len(theirs):
        raise TextError(
            f"task {task.name!r} has {len(ours):,} test examples in {source!r} and {len(theirs):,} in {language!r}, so "
            "they are no translations row by row. Give another task as --lines."
        )
    pairs = dict.fromkeys(pair for pair in zip(ours, theirs, strict=True) if _plain(*pair))
    out.parent.mkdir(parents=True, exist_ok=True)
    write_text(out, "".join(f"{first}\t{second}\n" for first, second in pairs))


def _plain(*texts: str) -> bool:
    return all("\t" not in text and len(text) >= FEWEST_PIECES for text in texts)


def dictionary(source: str, language: str, folder: Path) -> Path | None:
    """Find a language's FreeDict dictionary in a folder, and download it with apt-get if it is not there.

    Args:
        source: language of the headwords.
        language: of the translations.
        folder: with unpacked packages, at any depth; downloads are unpacked there, too.

    Returns:
        The dictionary's .index; None where Debian has no such package or there is no apt-get.
    """
    if source != _FREEDICT_SOURCE or language not in FREEDICT:
        return None
    name = f"eng-{FREEDICT[language]}"
    if not _found(name, folder):
        _download(f"dict-freedict-{name}", folder)
    return _found(name, folder)


def _found(name: str, folder: Path) -> Path | None:
    return next(iter(sorted(folder.rglob(f"freedict-{name}.index"))), None)


def _download(package: str, folder: Path) -> None:
    if not (shutil.which("apt-get") and shutil.which("dpkg")):
        say(f"{package} is not downloaded: there is no apt-get here. Unpack it elsewhere, and give --dictionaries")
        return
    folder.mkdir(parents=True, exist_ok=True)
    fetched = subprocess.run(
        ["apt-get", "download", package], cwd=folder, capture_output=True, text=True, check=False, timeout=600
    )
    if fetched.returncode:
        say(f"{package} is not downloaded: {fetched.stderr.strip()}")
        return
    for archive in folder.glob(f"{package}_*.deb"):
        subprocess.run(["dpkg", "-x", archive.name, package], cwd=folder, check=True)
