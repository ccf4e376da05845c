import random

from lingraft.data.cleaning.duplicates import SeenParagraphs


def test_all_but_the_first_of_equal_paragraphs_are_known() -> None:
    draw, seen, known = random.Random(1), SeenParagraphs(), set[str]()
    for _ in range(3000):
        paragraph = str(draw.randrange(1000))
        assert seen.add(paragraph) == (paragraph not in known)
        known.add(paragraph)
