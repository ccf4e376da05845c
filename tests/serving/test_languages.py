import pytest

from lingraft.data.language_detection import DetectedLanguage, LanguageDetector
from lingraft.errors import RequestError
from lingraft.serving.languages import resolve_languages

GERMAN = "Die alte Mühle am Fluss mahlt im Herbst Weizen und im Winter Roggen."
ENGLISH = "The old mill by the river grinds wheat in autumn and rye in winter."


@pytest.fixture(scope="module")
def detector() -> LanguageDetector:
    return LanguageDetector.load()


def test_auto_is_found_out_and_a_named_language_is_left_alone(detector: LanguageDetector) -> None:
    found = resolve_languages(["auto", "tr", "auto"], [GERMAN, ENGLISH, ENGLISH], ["de", "en", "tr"], detector)
    assert [each.language for each in found] == ["de", "tr", "en"]
    assert found[1].confidence == 1.0
    assert all(0.5 < each.confidence <= 1 for each in found)


def test_a_regional_form_is_found_where_it_is_the_only_one(detector: LanguageDetector) -> None:
    assert resolve_languages(["auto"], [GERMAN], ["de-AT", "en"], detector)[0].language == "de-AT"
    with pytest.raises(RequestError, match=r"seems to be in 'de' .* name it"):
        resolve_languages(["auto"], [GERMAN], ["de-AT", "de-CH"], detector)


def test_a_language_that_is_not_served_is_refused_with_what_it_seems_to_be(detector: LanguageDetector) -> None:
    with pytest.raises(RequestError, match=r"text 1 seems to be in 'de' \(confidence [01]\.\d\d\); .* \['en', 'tr'\]"):
        resolve_languages(["auto", "auto"], [ENGLISH, GERMAN], ["en", "tr"], detector)
    with pytest.raises(RequestError, match="text 0 is in language 'xx'"):
        resolve_languages(["xx"], [GERMAN], ["en"], detector)


def test_without_a_detector_languages_must_be_named() -> None:
    assert resolve_languages(["en"], ["a"], ["en"], None) == [DetectedLanguage("en", 1.0)]
    with pytest.raises(RequestError, match="started without detection"):
        resolve_languages(["auto"], ["a"], ["en"], None)
