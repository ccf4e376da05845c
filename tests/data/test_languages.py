import sys

import pytest

from lingraft.data import languages
from lingraft.data.languages import language_name, name_and_tag
from lingraft.errors import MissingExtraError


@pytest.mark.parametrize(
    ("tag", "name"),
    [
        ("de", "German"),
        ("el", "Greek"),
        ("pt-BR", "Portuguese (Brazil)"),
        ("zh-hant", "Chinese (Traditional)"),
        ("quc", "Kʼicheʼ"),
        ("de-x-old", "German (x, old)"),
    ],
)
def test_a_language_has_its_english_name(tag: str, name: str) -> None:
    assert language_name(tag) == name


def test_a_language_without_a_name_keeps_its_tag() -> None:
    assert language_name("qaa") == name_and_tag("qaa") == "qaa"
    assert name_and_tag("sw") == "Swahili (sw)"


def test_a_missing_babel_is_named_with_the_extra_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "babel", None)
    languages._english.cache_clear()
    with pytest.raises(MissingExtraError, match=r"babel is not installed.*lingraft\[report\]"):
        language_name("de")
