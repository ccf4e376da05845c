import pytest

from lingraft.data.languages import is_variety, language_name, name_and_tag, names_of, warn_of_unknown_codes


@pytest.mark.parametrize(
    ("tag", "name"),
    [
        ("de", "German"),
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


@pytest.mark.parametrize(
    ("tag", "meant"),
    [("itt", "'it' (Italian)"), ("jp", "'ja' (Japanese)"), ("gr", "'el' (Greek)"), ("xq", "")],
)
def test_a_code_of_no_language_is_told_with_the_one_that_may_be_meant(
    tag: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    warn_of_unknown_codes(["de", tag])
    said = capsys.readouterr().err
    assert said.startswith(f"{tag!r} is no code of a language")
    assert (f"Is {meant} meant?" if meant else "") in said
    assert ("meant?" in said) == bool(meant)


def test_known_and_private_codes_pass_in_silence(capsys: pytest.CaptureFixture[str]) -> None:
    warn_of_unknown_codes(["de", "deu", "pt-BR", "zh-Hant", "swh", "quc", "qaa", "qtz-Latn", "zzz-x-own"])
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("tag", "language", "is_one"),
    [
        ("de", "de", True),
        ("DE_at", "de", True),
        ("deu", "de-AT", True),
        ("pt", "pt-BR", True),
        ("pt-PT", "pt-BR", False),
        ("zh-Hant", "zh-Hans", False),
        ("nl", "de", False),
        ("", "de", False),
        ("xx", "xx", True),
    ],
)
def test_a_tag_is_that_of_a_language_with_fewer_or_more_subtags(tag: str, language: str, is_one: bool) -> None:
    assert is_variety(tag, language) == is_one


def test_names_of_a_language_are_english_and_those_of_other_languages() -> None:
    assert names_of("en-GB", ("de", "xx")) == {"english", "englisch"}
    assert names_of("xx", ("xx",)) == set()
