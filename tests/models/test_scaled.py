"""What a scaled network is given."""

import torch
from torch import nn

from fallow.models.scaled import Scaled


def test_bytes_and_numbers_are_scaled_and_words_are_not() -> None:
    net = Scaled(nn.Flatten(), torch.tensor([2.0]), torch.tensor([4.0]))
    for kind in (torch.uint8, torch.float32):
        assert net(torch.full((1, 1, 2, 2), 10, dtype=kind)).tolist() == [[2.0] * 4]
    words = Scaled(nn.Embedding(9, 3), None, None)
    assert words(torch.tensor([[1, 8]])).shape == (1, 2, 3)
    assert Scaled(nn.Identity(), None, None)(torch.tensor([[7]], dtype=torch.uint8)).dtype == torch.float32
