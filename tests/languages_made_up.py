"""Languages of random text whose pieces have neighbours of their own, so that static vectors tell them apart.

Legend: V vocabulary, N blocks, T tokens of a block.
"""

import torch
from torch import Tensor

from lingraft.data.tokenizer.pieces import DEFAULT_SPECIAL_IDS, SpecialIds, Surface

FIRST = len(DEFAULT_SPECIAL_IDS)
"""Id of the first piece that is no special one."""


def text_of(seed: int, chain: int = 1, pieces: int = 300, blocks: int = 700, tokens: int = 65) -> Tensor:
    """Blocks (N, T) of a Markov chain, each a document of its own.

    Args:
        seed: of what is drawn from the chain.
        chain: seed of the chain itself; one chain gives different texts of one language.
        pieces: beside the special ones.
        blocks: how many.
        tokens: of a block, `<s>` and `</s>` included.
    """
    generator = torch.Generator().manual_seed(chain)
    successors_VK = torch.randint(pieces, (pieces, 8), generator=generator)
    frequent_V = 1 / torch.arange(1.0, pieces + 1)
    drawn, text_NT = torch.Generator().manual_seed(seed), torch.empty(blocks, tokens - 2, dtype=torch.long)
    now_N = torch.multinomial(frequent_V, blocks, replacement=True, generator=drawn)
    for place in range(tokens - 2):
        text_NT[:, place] = now_N
        follows_N = successors_VK[now_N, torch.randint(8, (blocks,), generator=drawn)]
        anew_N = torch.multinomial(frequent_V, blocks, replacement=True, generator=drawn)
        now_N = torch.where(torch.rand(blocks, generator=drawn) < 0.8, follows_N, anew_N)
    edges = (torch.full((blocks, 1), getattr(DEFAULT_SPECIAL_IDS, name)) for name in ("begin", "end"))
    begin_N1, end_N1 = edges
    return torch.cat([begin_N1, text_NT + FIRST, end_N1], dim=1)


def renamed(pieces: int, seed: int) -> Tensor:
    """A new id for every id; special ones stay."""
    order = torch.randperm(pieces, generator=torch.Generator().manual_seed(seed))
    return torch.cat([torch.arange(FIRST), order + FIRST])


class Spelt:
    """Pieces of which each is a word, and cuts text at spaces."""

    def __init__(self, *texts: str, special: SpecialIds = DEFAULT_SPECIAL_IDS) -> None:
        self.texts, self.special = texts, special

    def __len__(self) -> int:
        return FIRST + len(self.texts)

    def surfaces(self) -> list[Surface | None]:
        """How every id reads."""
        return [*[None] * FIRST, *(Surface(text, True) for text in self.texts)]

    def encode_all(self, texts: list[str]) -> list[list[int]]:
        """Ids of each text's words."""
        ids = {text: index for index, text in enumerate(self.texts, start=FIRST)}
        return [[ids.get(word, self.special.unknown) for word in text.split()] for text in texts]
