"""A linear function of the words of a text, weighed by TF-IDF: what ten lines of scikit-learn would give."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor, nn

from fallow.data.texts import words_of
from fallow.models.chunks import by_chunks

TERM, COUNT = range(2)  # the rows of tokens
LENGTH = 512  # words of a text that are read, as by `bag`
CHUNK = 256  # examples whose weights are gathered at once
ROWS = 3000  # training texts that span the space in which a head is fitted


class Words(nn.Module):
    """Logits W·t + b, where t is the TF-IDF of an example's terms: its words, and pairs of neighbours among them.

    A term that is n times in an example and in d of N training examples weighs (1 + ln n)·(1 + ln((1 + N)/(1 + d))),
    and t has length 1 (Salton & Buckley 1988). ``terms`` are the sorted hashes of those seen in training; others are
    passed over. The two texts of a pair have terms of their own, and further ones for the words that they share.

    >>> words = Words.from_texts([("a dog",), ("a cat",)])
    >>> words.tokens([("a dog and a dog",)]).shape, len(words.terms)  # terms: a, dog, cat, a dog, a cat
    (torch.Size([1, 2, 6]), 5)
    """

    terms: Tensor  # (V,), sorted
    idf: Tensor  # (V,)
    weight: Tensor  # (outputs, V)
    bias: Tensor  # (outputs,)

    def __init__(self, terms: Tensor, idf: Tensor, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.register_buffer("terms", terms)
        for name, tensor in {"idf": idf, "weight": weight, "bias": bias}.items():
            self.register_buffer(name, tensor.float())

    @classmethod
    def from_texts(cls, texts: Sequence[tuple[str, ...]]) -> Words:
        """The terms of the training texts and their weights; the head is fitted later."""
        seen = Counter(term for example in texts for term in _terms(example))
        terms = torch.tensor(sorted(seen), dtype=torch.long)
        counts = torch.tensor([seen[term] for term in terms.tolist()], dtype=torch.double)
        idf = 1 + ((1 + len(texts)) / (1 + counts)).log()
        return cls(terms, idf, torch.zeros(0, len(terms)), torch.zeros(0))

    def tokens(self, texts: Sequence[tuple[str, ...]]) -> Tensor:
        """The known terms of every example, by their places, and how often they are there: N × 2 × L, filled by 0."""
        each = [_terms(example) for example in texts]
        longest = max([1, *map(len, each)])
        hashes = torch.tensor([[*terms, *[-1] * (longest - len(terms))] for terms in each]).view(len(each), longest)
        counts = torch.tensor([[*terms.values(), *[0] * (longest - len(terms))] for terms in each]).view_as(hashes)
        places = torch.searchsorted(self.terms, hashes).clamp(max=max(0, len(self.terms) - 1))
        known = self.terms[places] == hashes if len(self.terms) else torch.zeros_like(hashes, dtype=torch.bool)
        return torch.stack([places * known, counts * known], 1)

    def weights(self, tokens: Tensor) -> Tensor:
        """TF-IDF of the terms in their places: N × L."""
        terms, counts = tokens[:, TERM], tokens[:, COUNT]
        raw = torch.where(counts > 0, 1 + counts.clamp(min=1).log(), 0.0) * self.idf[terms]
        return raw / raw.norm(dim=1, keepdim=True).clamp(min=1e-12)

    def vectors(self, tokens: Tensor) -> csr_array:
        """TF-IDF over all terms: N × V, sparse (torch's own sparse matrices warn that they are unfinished)."""
        rows = torch.arange(len(tokens))[:, None].expand_as(tokens[:, TERM])
        places = (rows.flatten().numpy(), tokens[:, TERM].flatten().numpy())
        return csr_array((self.weights(tokens).double().flatten().numpy(), places), (len(tokens), len(self.terms)))

    def forward(self, tokens: Tensor) -> Tensor:
        """A logit for each output."""

        def logits(some: Tensor) -> Tensor:
            return torch.einsum("nl,nlo->no", self.weights(some), self.weight.T[some[:, TERM]]) + self.bias

        return by_chunks(logits, tokens, CHUNK)


def spanned(vectors: csr_array) -> NDArray[np.float64]:
    """An orthonormal basis (V, rank) of the space that rows (n, V) span; of many rows, that of the first.

    A penalised linear head lies in it (the representer theorem), and in its n coordinates all else of a head's fit
    is dense and small.
    """
    x = vectors[:ROWS]
    values, u = np.linalg.eigh((x @ x.T).toarray())
    held = values > values[-1] * x.shape[0] * np.finfo(np.float64).eps
    return x.T @ (u[:, held] / np.sqrt(values[held]))


def _terms(example: tuple[str, ...]) -> Counter[int]:
    """The hashes of an example's terms, and how often they are there."""
    each = [words_of(text)[:LENGTH] for text in example]
    named = [
        f"{place}:{term}"
        for place, words in enumerate(each)
        for term in (*words, *(f"{first} {second}" for first, second in pairwise(words)))
    ]
    if len(each) > 1:
        named += [f"both:{word}" for word in sorted(set(each[0]).intersection(*each[1:]))]
    return Counter(zlib.crc32(term.encode()) for term in named)
