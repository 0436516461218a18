"""A hyperparameter by its gradient
================================

The validation loss depends on weight decay through the weights that training leads to. The implicit function theorem
gives its gradient without unrolling a single step. Here is ridge regression, where the exact answer is known.
"""

# %%

import torch

from fallow import hypergradient
from fallow.hypergradients.solvers import CG

torch.manual_seed(0)
truth = torch.randn(20, dtype=torch.float64) * (torch.arange(20) < 5)  # five of twenty features matter
x, x_val = torch.randn(30, 20, dtype=torch.float64), torch.randn(200, 20, dtype=torch.float64)
y, y_val = x @ truth + torch.randn(30), x_val @ truth + torch.randn(200)

log_decay = torch.zeros(20, dtype=torch.float64, requires_grad=True)  # one for every weight


def solved(decay: torch.Tensor) -> torch.Tensor:
    return torch.linalg.solve(x.T @ x / 30 + decay.diag(), x.T @ y / 30)


def train_loss(w: torch.Tensor, log_decay: torch.Tensor) -> torch.Tensor:
    return ((x @ w - y).square().mean() + (log_decay.exp() * w.square()).sum()) / 2


def val_loss(w: torch.Tensor) -> torch.Tensor:
    return (x_val @ w - y_val).square().mean()


def hypergradient_at(log_decay: torch.Tensor) -> tuple[torch.Tensor, int]:
    w = solved(log_decay.exp()).detach().requires_grad_()
    (found,), record = hypergradient(lambda: train_loss(w, log_decay), lambda: val_loss(w), [w], [log_decay], CG(20))
    return found, record.products


# %%
# One hypergradient, beside the derivative of the closed form.

found, products = hypergradient_at(log_decay)
(exact,) = torch.autograd.grad(val_loss(solved(log_decay.exp())), log_decay)
print(f"largest difference {(found - exact).abs().max():.1e}, by {products} products with the Hessian")

# %%
# Descend along it: the decay of features that do not matter grows.

optimizer = torch.optim.Adam([log_decay], lr=0.1)
for _ in range(60):
    log_decay.grad, _ = hypergradient_at(log_decay)
    optimizer.step()

decay = log_decay.exp().detach()
print(f"decay of the five that matter {decay[:5].median():.3f}, of the others {decay[5:].median():.3f}")
print(f"validation loss {val_loss(solved(torch.ones(20, dtype=torch.float64))):.3f} → {val_loss(solved(decay)):.3f}")
