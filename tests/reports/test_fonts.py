"""What is said of scripts for which a machine has no font."""

from pathlib import Path

import pytest

from lingraft.reports.fonts import missing_fonts

_FC_LIST = """#!/bin/sh
case "$1" in :charset=3b1) echo "DejaVu Sans";; esac
"""
"""Stands for fontconfig on a machine with Greek, and nothing else but Latin."""


@pytest.fixture
def greek_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only fonts with Greek."""
    (tmp_path / "fc-list").write_text(_FC_LIST)
    (tmp_path / "fc-list").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")


@pytest.mark.usefixtures("greek_only")
def test_scripts_without_a_font_are_named_once_with_the_packages_that_have_them() -> None:
    assert missing_fonts("naïve, ααα 12 – ✓") == ""
    said = missing_fonts("ひらがな 漢字 한국 日本語 and ไทย")
    assert said == (
        "No font of this machine has characters of Han, Hangul, Hiragana, Thai, so a browser here draws boxes for "
        "them. On Debian: apt-get install fonts-noto-cjk fonts-noto-core"
    )


def test_without_fontconfig_nothing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert missing_fonts("漢字") == ""
