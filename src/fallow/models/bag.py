"""A bag of words: what to take for texts when nothing else is named."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fallow.data.texts import IDS, MASK, SEGMENT, words_of
from fallow.models.base import Model
from fallow.models.blocks import expect_texts, sequential

SPREAD = 0.01  # of the embedding at first: a word that training never met then says next to nothing


class Bag(Model):
    """The mean embedding of the words of a text, a hidden layer, and a head.

    Words have no list: each goes to one of ``words`` rows of the embedding by a hash of its letters, small ones; in
    languages that do not part their words, every letter is one. Of a pair of texts with means u and v the hidden layer
    sees u, v, |u − v| and u∘v (Conneau et al. 2017).

    >>> net = Bag((2, 100), 3)
    >>> net(net.tokens([("a dog", "a cat"), ("it rains", "it does not")])).shape
    torch.Size([2, 3])
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        classes: int,
        *,
        words: int = 16384,
        width: int = 64,
        hidden: int = 128,
        length: int = 512,
        init: str = "he",
    ) -> None:
        super().__init__(init)
        expect_texts("bag", shape)
        self.pairs, self.words, self.length = shape[0] > 1, words, length
        self.embedding = nn.Embedding(words, width)
        self.hidden = sequential(linear=nn.Linear(4 * width if self.pairs else width, hidden), relu=nn.ReLU())
        self.blocks = ("embedding", "hidden")
        self.head = nn.Linear(hidden, classes)
        self.start()

    def initialise(self, module: nn.Module) -> None:
        """As any layer, but for the embedding, which starts small: N(0, 0.01²)."""
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=SPREAD)
        else:
            super().initialise(module)

    def tokens(self, texts: Sequence[tuple[str, ...]]) -> Tensor:
        """The rows of the embedding for the first words of every text, N × 3 × L (see `fallow.data.texts`)."""
        each = [[words_of(text)[: self.length] for text in example] for example in texts]
        longest = max(1, *(sum(map(len, example)) for example in each))
        found = torch.zeros(len(each), 3, longest, dtype=torch.long)
        for row, example in zip(found, each, strict=True):
            numbers = [
                (zlib.crc32(word.encode()) % self.words, 1, k) for k, text in enumerate(example) for word in text
            ]
            if numbers:
                row[:, : len(numbers)] = torch.tensor(numbers).T
        return found

    def forward(self, tokens: Tensor) -> Tensor:
        """A logit for each class."""
        vectors = self.embedding(tokens[:, IDS])
        means = [self._mean(vectors, tokens[:, MASK] * (tokens[:, SEGMENT] == k)) for k in range(1 + self.pairs)]
        return self.head(self.hidden(compared(means)))

    def _mean(self, vectors: Tensor, mask: Tensor) -> Tensor:
        weights = mask / mask.sum(1, keepdim=True).clamp_min(1)
        return torch.einsum("nlw,nl->nw", vectors, weights.to(vectors.dtype))


def compared(vectors: Sequence[Tensor]) -> Tensor:
    """The vector of a text; of the two of a pair u, v, |u − v| and u∘v side by side.

    >>> compared([torch.tensor([[1.0]]), torch.tensor([[3.0]])])
    tensor([[1., 3., 2., 3.]])
    """
    if len(vectors) == 1:
        return vectors[0]
    u, v = vectors
    return torch.cat([u, v, (u - v).abs(), u * v], 1)
