"""Fonts that a page's text needs: a browser draws boxes for the characters of which no installed font has any."""

import shutil
import subprocess
import unicodedata
from collections.abc import Iterable

_CJK = {"CJK", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO"}
"""First words of Unicode's names for the characters that `fonts-noto-cjk` has."""
_LATIN = "LATIN"
_NAMES = {"CJK": "Han"}
_WAIT_S = 10


def missing_fonts(text: str) -> str:
    """Return which Debian packages bring fonts for the scripts of a text that no font of this machine has.

    Args:
        text: all that is shown.

    Returns:
        A sentence; empty if nothing is missing, or if fontconfig, which browsers ask on Linux, is not installed.
    """
    if shutil.which("fc-list") is None:
        return ""
    missing = sorted(script for script, character in _one_of_each(text).items() if not _has_font(character))
    if not missing:
        return ""
    packages = sorted({"fonts-noto-cjk" if script in _CJK else "fonts-noto-core" for script in missing})
    scripts = ", ".join(_NAMES.get(script, script.capitalize()) for script in missing)
    return (
        f"No font of this machine has characters of {scripts}, so a browser here draws boxes for them. On Debian: "
        f"apt-get install {' '.join(packages)}"
    )


def _one_of_each(text: Iterable[str]) -> dict[str, str]:
    """A letter of every script but Latin, by the first word of its name."""
    letters = {each for each in set(text) if not each.isascii() and each.isalpha()}
    found = {unicodedata.name(each, _LATIN).split()[0]: each for each in sorted(letters)}
    return {script: letter for script, letter in found.items() if script != _LATIN}


def _has_font(character: str) -> bool:
    asked = ["fc-list", f":charset={ord(character):x}", "family"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=_WAIT_S)
    return done.returncode != 0 or bool(done.stdout.strip())
