"""Text that the tests make themselves: a small grammar with topics, and the same text in made-up languages."""

import json
import random
from pathlib import Path

TOPICS = ("garden", "kitchen", "harbour")
_WORDS_PER_TOPIC, _COMMON_WORDS = 30, 40
_SYLLABLES = ("ba", "de", "ki", "lo", "mu", "na", "pe", "ri", "so", "tu", "va", "ze")


def _lexicon(language: str) -> dict[str, list[str]]:
    """Words by topic; every language has its own, except for a few names that all share."""
    draw = random.Random(f"lexicon {language}")
    names = random.Random("names shared by all languages")
    word = lambda source: "".join(source.choices(_SYLLABLES, k=source.randint(2, 4)))  # noqa: E731
    lexicon = {topic: [word(draw) for _ in range(_WORDS_PER_TOPIC)] for topic in TOPICS}
    return lexicon | {"common": [word(draw) for _ in range(_COMMON_WORDS)] + [word(names) for _ in range(10)]}


def documents(language: str, count: int) -> list[dict[str, str]]:
    """Parallel documents: number n has the same name, topic and choice of words in every language."""
    lexicon = _lexicon(language)
    made = []
    for number in range(count):
        draw = random.Random(f"document {number}")
        topic = draw.choice(TOPICS)
        lines = [
            " ".join(draw.choice(lexicon[draw.choice((topic, "common"))]) for _ in range(draw.randint(6, 12)))
            for _ in range(draw.randint(3, 6))
        ]
        made.append({"name": f"page-{number}", "text": "\n".join(lines), "label": topic})
    return made


def write(folder: Path, languages: tuple[str, ...], count: int = 300) -> Path:
    """Write one JSONL file a language, as `--text` takes it."""
    folder.mkdir(parents=True, exist_ok=True)
    for language in languages:
        lines = "".join(json.dumps(document) + "\n" for document in documents(language, count))
        (folder / f"{language}.jsonl").write_text(lines, encoding="utf-8")
    return folder
