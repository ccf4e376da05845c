"""Texts that show whether two tokenizers cut alike, before one takes the other's place.

All scripts that Unicode knows, words of the vocabulary itself in every case and normal form, added tokens, and what
tokenizers are known to disagree on: digits, spaces, control characters, emoji, long words, code, addresses.
"""

import functools
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from lingraft.data.tokenizer.tokenizer import Tokenizer

_SENTENCES = (
    "The harbour was quiet, and the boats lay still.",
    "She didn't say it's O'Neill's; they've gone (haven't they?)",
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich",
    "Portez ce vieux whisky au juge blond qui fume, déjà à l'été",
    "El pingüino Wenceslao hizo kilómetros bajo exhaustiva lluvia ¿y frío? ¡Sí!",
    "Pijamalı hasta yağız şoföre çabucak güvendi; İstanbul ılık, IĞDIR uzak",
    "Příliš žluťoučký kůň úpěl ďábelské ódy",
    "Zażółć gęślą jaźń, Łódź",
    "Tiếng Việt có nhiều dấu: ở đâu, được rồi, nghiêng ngả",
    "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία, ΑΘΗΝΑ και τέλος",
    "Съешь же ещё этих мягких французских булок, да выпей чаю",
    "Жебракують філософи при ґанку церкви в Гадячі, ще й шатро їхнє п'яне",
    "الميناء هادئ والقوارب ساكنة، ١٢٣ سفينة",
    "صِفْ خَلْقَ خَوْدٍ كَمِثْلِ الشَّمْسِ إِذْ بَزَغَتْ",
    "بر آن شدم که می‌خواهم ۴۵۶",
    "דג סקרן שט בים מאוכזב ולפתע מצא חברה, שָׁלוֹם",
    "ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण का १२३",
    "আমি বাংলায় গান গাই",
    "நான் தமிழ் பேசுகிறேன்",
    "เป็นมนุษย์สุดประเสริฐเลิศคุณค่า น้ำใจ",
    "海港很安静，船都停着。漢字",
    "いろはにほへと ちりぬるを、東京タワーでｶﾞｯﾂﾎﾟｰｽﾞ",
    "다람쥐 헌 쳇바퀴에 타고파 서울",
    "ქართული ენა, Հայերեն լեզու, አማርኛ ቋንቋ",
    "ᐃᓄᒃᑎᑐᑦ ᏣᎳᎩ ᚠᚢᚦᚨᚱᚲ 𐌰𐌱𐌲 𒀀𒀁",
)
_ODD = (
    "0123456789",
    "3.14159 1,000,000.00 1.000,50 -7 +49 (0)30 12345-6789",
    "1999 20261129 1234567890123456789 ½ ² ³ ⅷ ① ⁴₂",
    "١٢٣ ۴۵۶ १२३ １２３ 𝟙𝟚𝟛",
    "50% $5.99 €20 £3 ¥100 ₿ 20°C 5×5=25 a≠b ∑∞√π",
    "👍 😀😃 ❤ ❤️ 👍🏽 👨‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇫🇷 1️⃣ 🤷🏾‍♀️",
    "text😀text 😀!",
    " one leading space",
    "one trailing space ",
    "two  spaces   three    four",
    "tab\tand\t\ttabs",
    "line\nend\n\nand\r\nanother\r",
    "no-break\u00a0space\u202fnarrow\u2007figure\u3000ideographic\u2009thin",
    "\u2028line\u2029paragraph\x0bvertical\x0cfeed\x85next",
    "zero\u200bwidth\u200cnon\u200djoiner\ufeffmark\u2060word\u00adsoft",
    "\u202bright to left\u202c \u200fmark\u200e",
    "control\x01\x02 \x7f characters \x1b[0m\x00end",
    "\ufffd replacement \ue000 private \ufdd0 none \U0010ffff",
    "Ångström Å A\u030a café cafe\u0301 ñ n\u0303 ǆ ǅ ﬁ ﬄ ĳ",
    "a\u0301\u0323b\u0308 \u0301alone q\u0307\u0323 \u1112\u1161\u11ab",
    "ＦＵＬＬ Ｗｉｄｔｈ ｈａｌｆ ㎏ ㍿ ™ …",
    "STRASSE straße ẞ ǰ ŉ İi Iı ΣΊΣΥΦΟΣ σίσυφος",
    "The Quick BROWN fOX McDonald iPhone NASA eBay",
    "quote \"double\" 'single' “curly” ‘single’ „low“ «angle» `tick` ´",
    "dash - – — ― ‐ ‑ _ ~ hy-phen under_score back\\slash / | ^",
    "!!! ... ??? ,;: ()[]{}<> @#&* ¡¿§¶†‡•·",
    "、。「」！？；：（）",
    "▁ literal ▁mark ##continued Ġbyte @@joined </w>",
    "<b>bold</b> &amp; &lt; <!-- comment --> <br/>",
    "https://www.example.com/path/to?query=1&other=a%20b#part",
    "first.last+tag@mail.example.co.uk @user #hashtag www.x.de",
    "C:\\Users\\name\\file.txt /usr/local/bin ~/.config ../up",
    "def f(x: int) -> int:\n    return x ** 2 if x != 0 else -1  # comment",
    "for (int i = 0; i < n; ++i) { a[i] += b->c; }",
    '{"key": [1, 2.5e-3, null, true], "other": "v\\n"}',
    "SELECT * FROM t WHERE a='b' AND c>=10;",
    "camelCaseName snake_case_name kebab-case-name v1.2.3-rc4 0xDEADBEEF",
    "$\\frac{a}{b} \\leq \\sum_{i=0}^{n} x_i^2$ H₂O E=mc²",
    "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft",
    "a" * 120,
    "ab" * 300,
    "漢" * 60,
    "1" * 80,
    "[unused1] [CLS] [SEP] [MASK] [PAD] [UNK]",
    "<s> </s> <pad> <unk> <mask> <bos> <eos> <cls> <sep>",
    "a<mask>b [MASK]. c</s>d",
    "",
    " ",
    "\n",
    ".",
    "don't can't won't I'm we'll you'd",
    "a b c d e f g h i j k l m n o p q r s t u v w x y z",
    "A B C D E F G H I J K L M N O P Q R S T U V W X Y Z",
)
_LETTERS_OF_A_SCRIPT = 8
_WORDS = 120
"""Pieces of the vocabulary that are probed, at even distances."""
_WORDS_OF_A_TEXT = 6
_ADDED = 100
_SHOWN = 8
"""Pieces that a message shows."""
_SHOWN_TEXT = 100


def probe_texts(tokenizer: Tokenizer, added: Iterable[str] = ()) -> list[str]:
    """Return a few hundred texts, of which some are made of a tokenizer's own pieces and of tokens added to it."""
    pieces = [found.text for found in tokenizer.surfaces() if found and found.text.strip()]
    words = _spread(pieces, _WORDS)
    lines = [" ".join(words[place : place + _WORDS_OF_A_TEXT]) for place in range(0, len(words), _WORDS_OF_A_TEXT)]
    tokens = _spread(sorted(added), _ADDED)
    texts = [
        *(form(text) for text in (*_SENTENCES, *lines) for form in _FORMS),
        *_ODD,
        *_scripts(),
        *(around.replace("|", token) for token in tokens for around in ("a | b", "a|b", " |  |")),
        *(token.swapcase() for token in tokens),
    ]
    return list(dict.fromkeys(texts))


def first_difference(
    texts: Sequence[str], theirs: Callable[[str], list[int]], ours: Tokenizer, name: str
) -> str | None:
    """Return a sentence about the first text that two tokenizers cut otherwise; None if there is none.

    Special pieces that a text spells out are unknown to both: ours never finds them in a text.
    """
    special, unknown = set(ours.special), ours.special.unknown

    def plain(ids: list[int]) -> list[int]:
        return [unknown if index in special else index for index in ids]

    for text, found in zip(texts, ours.encode_all(texts), strict=True):
        expected, found = plain(theirs(text)), plain(found)
        if expected != found:
            place = next(
                (at for at, pair in enumerate(zip(expected, found, strict=False)) if pair[0] != pair[1]),
                min(len(expected), len(found)),
            )
            shown = text if len(text) <= _SHOWN_TEXT else f"{text[:_SHOWN_TEXT]}…"
            return (
                f"the text {shown!r} is, from its piece {place + 1} on, {_shown(expected[place:], ours)} by {name}, "
                f"but {_shown(found[place:], ours)} by it"
            )
    return None


def _shown(ids: list[int], tokenizer: Tokenizer) -> str:
    pieces = tokenizer.pieces()
    known = [f"{pieces[index]!r} ({index})" if index < len(pieces) else f"id {index}" for index in ids[:_SHOWN]]
    return " ".join([*known, "…"] if len(ids) > _SHOWN else known) or "nothing"


def _spread(items: Sequence[str], count: int) -> list[str]:
    return list(items[:: max(1, len(items) // count)])


def _composed(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def _decomposed(text: str) -> str:
    return unicodedata.normalize("NFD", text)


_FORMS: tuple[Callable[[str], str], ...] = (str, str.upper, str.lower, str.title, _composed, _decomposed)


@functools.cache
def _scripts() -> tuple[str, ...]:
    """Letters of every script that Unicode knows, in words of their own and with marks behind them."""
    letters = defaultdict[str, list[str]](list)
    for character in map(chr, range(0xA0, 0x20000)):
        if unicodedata.category(character)[0] in "LM":
            name = unicodedata.name(character, "").partition(" ")[0]
            if name and len(letters[name]) < _LETTERS_OF_A_SCRIPT:
                letters[name].append(character)
    return tuple(f"{''.join(found)} {' '.join(found)} a{found[0]}1" for found in letters.values())
