"""Dictionaries in a made-up language, in the layouts that real ones are published in."""

import gzip
import string
from pathlib import Path

_DIGITS = string.ascii_uppercase + string.ascii_lowercase + "0123456789+/"
_ABOUT = "00-database-short\n     Made-up dictionary\n"


def freedict(folder: Path, entries: dict[str, str], name: str = "freedict-xxa-xxb") -> Path:
    """Write a dictionary as dictd has it; entries are the text behind the line of the headword."""
    folder.mkdir(parents=True, exist_ok=True)
    text, index = _ABOUT.encode(), [f"00databaseshort\t{_number(0)}\t{_number(len(_ABOUT))}\n"]
    for head, body in entries.items():
        entry = f"{head}\n{body}\n".encode()
        word = head.split(" /")[0].lower()
        index.append(f"{word}\t{_number(len(text))}\t{_number(len(entry))}\n")
        text += entry
    (folder / f"{name}.dict.dz").write_bytes(gzip.compress(text))
    (folder / f"{name}.index").write_text("".join(index), encoding="utf-8")
    return folder


def _number(value: int) -> str:
    digits = _DIGITS[value % 64]
    while value := value // 64:
        digits = _DIGITS[value % 64] + digits
    return digits
