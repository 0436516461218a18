"""LEO: the inner loop moves a code of low dimension, from which a classifier is decoded (Rusu et al. 2019).

On fixed features x of a task's examples, of classes n = 1 … N with K each::

    (μ_n, σ_n) = mean over k, m, j of g_r(g_e(x_nk), g_e(x_mj)),   z_n ~ N(μ_n, σ_n²)          (section 2.3.2)
    (μ'_n, σ'_n) = g_d(z_n),   w_n ~ N(μ'_n, σ'_n²),   logits  x·w_n
    z ← z − α ∇_z L_support,  then  w ← w − α' ∇_w L_support                                     (section 2.3.3)

At evaluation z and w are the means. With L2F, z and w are attenuated before each of the two loops, every dimension by
its own γ, found from the gradient's mean over the classes (Baik et al. 2020, supplement, section E.1.3).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from fallow.adaptation.attenuation import Attenuator


class LEONetwork(nn.Module):
    """Encoder, relation network and decoder, none with a bias, and the two rates, which are learned too."""

    def __init__(self, width: int, latent: int, rate: float, tuning_rate: float) -> None:
        super().__init__()
        self.width, self.latent = width, latent
        self.encoder = nn.Linear(width, latent, bias=False)
        sizes = 2 * latent
        self.relation = nn.Sequential(
            nn.Linear(sizes, sizes, bias=False), nn.ReLU(), nn.Linear(sizes, sizes, bias=False), nn.ReLU(),
            nn.Linear(sizes, sizes, bias=False),
        )  # fmt: skip
        self.decoder = nn.Linear(latent, 2 * width, bias=False)
        self.rate = nn.Parameter(torch.tensor(rate))
        self.tuning_rate = nn.Parameter(torch.tensor(tuning_rate))
        self.spread = math.sqrt(2 / (latent + width))  # of decoded weights at first, as Glorot draws them

    def encode(self, x: Tensor, y: Tensor, ways: int) -> tuple[Tensor, Tensor]:
        """μ and σ of the codes (tasks, ways, latent), from features (tasks, n, width)."""
        codes = self.encoder(x)
        n = codes.shape[1]
        pairs = torch.cat(
            [codes[:, :, None].expand(-1, -1, n, -1), codes[:, None].expand(-1, n, -1, -1)], -1
        )  # every example with every one
        related = self.relation(pairs).mean(2)
        members = functional.one_hot(y, ways).to(x.dtype)
        mean, raw = (members.transpose(1, 2) @ related / members.sum(1)[..., None]).chunk(2, -1)
        return mean, raw.exp()

    def decode(self, z: Tensor, noise: Tensor | None) -> Tensor:
        """The classifiers (tasks, ways, width) of codes: their means, or with noise drawn."""
        mean, raw = self.decoder(z).chunk(2, -1)
        return mean if noise is None else mean + self.spread * raw.exp() * noise

    def orthogonality(self) -> Tensor:
        """‖C − I‖² / width², C the correlations between the rows of the decoder (section 2.3.4)."""
        rows = self.decoder.weight - self.decoder.weight.mean(1, keepdim=True)
        rows = functional.normalize(rows, dim=1)
        return (rows @ rows.T - torch.eye(len(rows), dtype=rows.dtype, device=rows.device)).square().mean()


def logits_of(x: Tensor, w: Tensor) -> Tensor:
    """What the classifiers w (tasks, ways, width) say of the features x (tasks, n, width)."""
    return x @ w.transpose(1, 2)


def losses_of(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    """The cross-entropy of every task."""
    found = functional.cross_entropy(logits_of(x, w).flatten(0, 1), y.flatten(), reduction="none")
    return found.view(y.shape).mean(1)


class LatentLearner(nn.Module):
    """Adapts to tasks of fixed features by way of latent codes: what LEO trains, and what a run keeps.

    >>> learner = LatentLearner(LEONetwork(8, 4, 1.0, 0.001), ways=3, steps=2, tuning_steps=1)
    >>> x, y = torch.randn(2, 6, 8), torch.arange(3).repeat(2, 2)
    >>> [tuple(w.shape) for w in learner.path(x, y)][1:]
    [(2, 3, 8), (2, 3, 8), (2, 3, 8)]
    """

    def __init__(
        self,
        net: LEONetwork,
        *,
        ways: int,
        steps: int,
        tuning_steps: int,
        of_codes: Attenuator | None = None,
        of_weights: Attenuator | None = None,
    ) -> None:
        super().__init__()
        self.net, self.ways, self.steps, self.tuning_steps = net, ways, steps, tuning_steps
        self.of_codes, self.of_weights = of_codes, of_weights
        self.codes: tuple[Tensor, Tensor, Tensor, Tensor] | None = None  # μ, σ, z before and after, for the penalties

    @torch.enable_grad()
    def path(self, x: Tensor, y: Tensor, noise: tuple[Tensor, Tensor] | None = None) -> list[Tensor]:
        """The classifiers (tasks, ways, width) before adaptation, after every step in the codes, and in the weights.

        ``noise`` is drawn for training: (tasks, ways, latent) for the codes, (tasks, steps + 1, ways, width) for the
        classifiers. With it, the path can be differentiated; without it, it is that of the means.
        """
        net, graph = self.net, noise is not None

        def decode(z: Tensor, step: int) -> Tensor:
            return net.decode(z, None if noise is None else noise[1][:, step])

        def slope(w: Tensor, by: Tensor) -> Tensor:
            """∇L_support of every task, whose classifier is w."""
            return torch.autograd.grad(losses_of(x, y, w).sum(), by, create_graph=graph, retain_graph=True)[0]

        def attenuated(point: Tensor, attenuator: Attenuator | None, decode: Callable[[Tensor], Tensor]) -> Tensor:
            """L2F: γ·point, with γ (tasks, dimensions) from the mean over the classes of the gradient there."""
            if attenuator is None:
                return point
            here = point.detach().requires_grad_()
            return attenuator(slope(decode(here), here).detach().mean(1))[:, None] * point

        mean, std = net.encode(x, y, self.ways)
        z = mean if noise is None else mean + std * noise[0]
        z = first = attenuated(z, self.of_codes, lambda z: decode(z, 0))
        found = [decode(z, 0)]
        for step in range(self.steps):
            z = z - net.rate * slope(found[-1], z)
            found.append(decode(z, step + 1))
        self.codes = (mean, std, first, z)
        w = attenuated(found[-1], self.of_weights, lambda w: w)
        for _ in range(self.tuning_steps):
            w = w - net.tuning_rate * slope(w, w)
            found.append(w)
        return found if graph else [w.detach() for w in found]
