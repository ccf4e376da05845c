"""Short texts in plain English, German and Turkish on three topics, from a few words of each: for the picture."""

import json
import random
from pathlib import Path
from typing import NamedTuple

LANGUAGES = ("en", "de", "tr")
_DOCUMENTS = 900


class _Topic(NamedTuple):
    """Each line has a subject, a verb with its object, or a time or place, in the languages' order."""

    subjects: str
    deeds: str
    times: str


# A slash stands where German puts the time between a verb and its object.
_TOPICS = {
    "garden": _Topic(
        """The roses|Die Rosen|Güller
        The tulips|Die Tulpen|Laleler
        The tomatoes|Die Tomaten|Domatesler
        The carrots|Die Möhren|Havuçlar
        The apple trees|Die Apfelbäume|Elma ağaçları
        The strawberries|Die Erdbeeren|Çilekler""",
        """grow slowly|wachsen/langsam|yavaş büyüyor
        need water|brauchen/Wasser|su istiyor
        like the sun|mögen/die Sonne|güneşi seviyor
        suffer from the frost|leiden/unter dem Frost|dondan zarar görüyor""",
        """behind the house|hinter dem Haus|evin arkasında
        in May|im Mai|mayısta
        every summer|jeden Sommer|her yaz
        in Versailles|in Versailles|Versailles bahçesinde""",
    ),
    "kitchen": _Topic(
        """The cooks|Die Köche|Aşçılar
        The bakers|Die Bäcker|Fırıncılar
        The children|Die Kinder|Çocuklar
        The neighbours|Die Nachbarn|Komşular""",
        """bake bread|backen/Brot|ekmek pişiriyor
        peel potatoes|schälen/Kartoffeln|patates soyuyor
        wash the dishes|spülen/das Geschirr|bulaşık yıkıyor
        order pizza|bestellen/Pizza|pizza sipariş ediyor
        fry onions|braten/Zwiebeln|soğan kavuruyor""",
        """in the evening|am Abend|akşamları
        before dinner|vor dem Essen|yemekten önce
        on Sundays|sonntags|pazar günleri
        in Napoli|in Napoli|Napoli lokantasında""",
    ),
    "harbour": _Topic(
        """The sailors|Die Matrosen|Denizciler
        The fishermen|Die Fischer|Balıkçılar
        The captains|Die Kapitäne|Kaptanlar
        The dockers|Die Hafenarbeiter|Liman işçileri""",
        """repair the nets|flicken/die Netze|ağları onarıyor
        load the ship|beladen/das Schiff|gemiyi yüklüyor
        wait for the tide|warten/auf die Flut|gelgiti bekliyor
        sell fish|verkaufen/Fisch|balık satıyor
        stack the containers|stapeln/die Container|konteyner istifliyor""",
        """at dawn|im Morgengrauen|şafakta
        on the quay|am Kai|rıhtımda
        after the storm|nach dem Sturm|fırtınadan sonra
        in Rotterdam|in Rotterdam|Rotterdam limanında""",
    ),
}


def sentence(topic: str, language: str, subject: int, deed: int, time: int) -> str:
    """A sentence of a topic; numbers beyond the last choice begin again."""
    place, choices = LANGUAGES.index(language), _TOPICS[topic]
    who, does, when = (
        lines[number % len(lines)].strip().split("|")[place]
        for lines, number in zip(map(str.splitlines, choices), (subject, deed, time), strict=True)
    )
    if language == "tr":
        return f"{who} {when} {does}."
    verb, _, rest = does.partition("/")
    return f"{who} {verb} {when} {rest}." if language == "de" else f"{who} {does} {when}."


def write(folder: Path) -> Path:
    """Write labelled documents as the recipe's text: the same ones, in all languages mixed, for every language.

    Real languages would need hours to be learned one by one. So they have the same pieces, and share what they mean.
    """
    lines = []
    for number in range(_DOCUMENTS):
        draw, language = random.Random(number), LANGUAGES[number % len(LANGUAGES)]
        topic = draw.choice([*_TOPICS])
        text = sentence(topic, language, *(draw.randrange(60) for _ in range(3)))
        lines.append(json.dumps({"name": f"page-{number}", "text": text, "label": topic}) + "\n")
    folder.mkdir(parents=True)
    for language in LANGUAGES:
        (folder / f"{language}.jsonl").write_text("".join(lines), encoding="utf-8")
    return folder
