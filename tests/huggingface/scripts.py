"""Made-up text in many scripts, and tokenizers trained on it: random words of a script's letters, marks and digits."""

import random
from pathlib import Path

from lingraft.data.tokenizer.tokenizer import Tokenizer
from lingraft.data.tokenizer.unigram import TooManyPiecesError, train_unigram

LETTERS = {
    "Latin": "aábcdeéêfghiïjklmnoöprsßtuüvwzñçÅÉ",
    "Latin, decomposed": "a\u0301 e\u0302 o\u0308 n\u0303 c\u0327 u\u0304 bdgklmprst".replace(" ", ""),
    "Vietnamese": "aăâbcdđeêghiklmnoôơpqrstuưvxyấầẩẫậếềểễệốồổỗộớờởỡợứừửữựýỳỷỹỵ",
    "Turkish": "abcçdefgğhıiİjklmnoöprsştuüvyz",
    "Greek": "αβγδεζηθικλμνξοπρστυφχψωάέήίόύώϊΐἀἁᾶῆῳ",
    "Cyrillic": "абвгдежзийклмнопрстуфхцчшщъыьэюяё",
    "Arabic": "ابتثجحخدذرزسشصضطظعغفقكلمنهويءآأإةى\u064b\u064e\u064f\u0650\u0651\u0652",
    "Urdu": "ابپتٹثجچحخدڈذرڑزژسشصضطظعغفقکگلمنںوہھءیےئؤ\u064e\u0650",
    "Devanagari": "अआइईउएओकखगघचजटडतदनपबमयरलवशसह\u093e\u093f\u0940\u0941\u0947\u094b\u094d\u0902\u093c",
    "Thai": "กขคงจชซญดตถทนบปผพฟมยรลวสหอ\u0e30\u0e31\u0e32\u0e33\u0e34\u0e35\u0e38\u0e39\u0e40\u0e41\u0e48\u0e49",
    "Chinese": "的一是不了人我在有他这中大来上国个到说们为子和你地出道也时年得就那要下以生会自着",
    "Japanese": "あいうえおかがきぎくぐけげこさしすせそたちつてとなにはばぱひまみもやゆよらりるれろわをん",
    "Korean": "가나다라마바사아자차카타파하각난달랄맘밥삿앙잦찾",
}
"""By script."""
_ENDS = (".", ",", "!", "?", "...", "!!!", " 12", " 2024", "。", "،", "।")


def lines_of(script: str, count: int, seed: int = 1) -> list[str]:
    """Lines of random words; frequent words come again, so that pieces longer than a letter are learned."""
    draw = random.Random(f"{script} {seed}")
    words = ["".join(draw.choices(LETTERS[script], k=draw.randint(1, 7))) for _ in range(60)]
    frequencies = [1 / (rank + 1) for rank in range(len(words))]
    gap = "" if script in ("Thai", "Chinese", "Japanese") else " "
    return [
        gap.join(draw.choices(words, frequencies, k=draw.randint(1, 12))) + draw.choice(_ENDS) for _ in range(count)
    ]


def trained(lines: list[str], folder: Path, vocabulary: int, language: str = "mul") -> Tokenizer:
    """A tokenizer of ours, trained on these lines; smaller where they do not support the vocabulary."""
    try:
        learned = train_unigram(lines, vocabulary, character_coverage=0.9995)
    except TooManyPiecesError as error:
        return trained(lines, folder, error.supported, language)
    learned.write(folder / "tokenizer.json")
    return Tokenizer.from_file(folder / "tokenizer.json", language)
