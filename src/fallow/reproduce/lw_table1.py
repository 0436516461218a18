"""LW's table 1: six methods on the synthetic data of section 1.1, at three signal strengths.

fallow reproduce lw-table1       a minute and a half on two cores; 20 seeds

256 training examples of 128 features, 3 of which spell the label; MLP 128-32-32-8; full-batch gradient descent at
0.05; 9 rounds of 200 steps (K = 3, N = 3), or 1,800 steps at once for BL. All rows but BL's are drawn as He normal, as
the paper says of its experiments; its BL agrees with Xavier only, so that is shown too.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from fallow.base.seeds import mix
from fallow.data import load
from fallow.evaluate.statistics import holm, sign_test
from fallow.experiment import heed
from fallow.reproduce.runs import Runs
from fallow.reproduce.stacked import Stack
from fallow.reproduce.table import Table, cell

SIZES, RATE, STEPS, ROUNDS, REPEATS = (128, 32, 32, 8), 0.05, 200, 9, 3
SEEDS = 20
FRACTION = 0.2  # of the weights that WELS, WELSR and DSD re-draw
ALPHAS = (0.5, 1.0, 2.0)
RUNS = [("BL", "he"), ("WELSR", "he"), ("DSD", "he"), ("WELS", "he"), ("FC", "he"), ("LW", "he"),
        ("BL", "xavier")]  # fmt: skip
PAPER = {
    "BL": (20.3, 50.7, 94.6),
    "WELSR": (24.6, 72.9, 98.2),
    "DSD": (22.9, 53.4, 90.3),
    "WELS": (23.1, 66.1, 96.8),
    "FC": (23.6, 68.6, 99.0),
    "LW": (25.2, 72.3, 99.8),
}


def stack_of(
    alpha: float, seeds: list[int], runs: list[tuple[str, str]], sizes: tuple[int, ...] = SIZES
) -> tuple[Stack, Tensor, Tensor]:
    """The networks of some seeds at one signal strength, and their test data."""
    sets = [load(f"synthetic:alpha={alpha}", val=0.0, seed=seed) for seed in seeds]
    x, y = (torch.stack([getattr(data.train, key) for data in sets]) for key in ("x", "y"))
    x_test, y_test = (torch.stack([getattr(data.test, key) for data in sets]) for key in ("x", "y"))
    generator = torch.Generator().manual_seed(mix(*seeds, round(1000 * alpha)))
    return Stack(x, y, sizes, [init for _, init in runs], generator), x_test, y_test


def train(stack: Stack, methods: list[str], rounds: int = ROUNDS, steps: int = STEPS) -> None:
    """All rounds of all methods: LW acts before every round, the others before all but the first."""
    which = {name: [i for i, method in enumerate(methods) if method == name] for name in PAPER}
    layers = range(len(SIZES) - 1)
    fixed = [random_mask(stack, layer, which["WELS"]) for layer in layers]
    for number in range(rounds):
        heed()
        block = number // REPEATS
        for layer in range(block + 1):
            stack.rescale(layer, which["LW"])
        stack.normalise(block, which["LW"])
        for layer in layers:
            if layer > block:
                stack.redraw(layer, which["LW"])
            if number > 0 and layer > 0:
                stack.redraw(layer, which["FC"])  # LW's case K = 1
            if number > 0:
                stack.redraw(layer, which["WELSR"], random_mask(stack, layer, which["WELSR"]))
                stack.redraw(layer, which["WELS"], fixed[layer])
                stack.redraw(layer, which["DSD"], smallest(stack, layer, which["DSD"]))
        stack.train(steps, RATE)


def random_mask(stack: Stack, layer: int, which: list[int]) -> Tensor:
    """A random fifth of the layer's weights, exactly."""
    return _lowest(torch.rand(stack.weights[layer][:, which].shape, generator=stack.generator))


def smallest(stack: Stack, layer: int, which: list[int]) -> Tensor:
    """The fifth of the layer's weights with the smallest magnitudes."""
    return _lowest(stack.weights[layer][:, which].abs())


def _lowest(values: Tensor) -> Tensor:
    flat = values.flatten(2)
    ranks = flat.argsort(2).argsort(2)
    return (ranks < round(FRACTION * flat.shape[2])).view(values.shape)


def task(folder: Path, alpha: float, seeds: list[int]) -> list[list[float]]:
    """Test accuracies in %, seeds × runs."""
    stack, x, y = stack_of(alpha, seeds, RUNS)
    train(stack, [method for method, _ in RUNS])
    return (100 * stack.accuracy(x, y)).tolist()


def run(name: str, seeds: range, data_dir: Path | None, each: Runs) -> Table:
    """The whole table; a run has every second seed at one signal strength."""
    pieces = {(alpha, part[0]): (alpha, list(part)) for alpha in ALPHAS for part in (seeds[::2], seeds[1::2]) if part}
    at, starts = each(task, pieces)
    values = {
        (method, init, alpha): [row[i] for start in starts for row in at[alpha, start]]
        for alpha in ALPHAS
        for i, (method, init) in enumerate(RUNS)
    }
    cells = [
        cell(f"{method} ({init})", f"α = {alpha}", PAPER[method][ALPHAS.index(alpha)], values[method, init, alpha], 3.0)
        for method, init in RUNS
        for alpha in ALPHAS
    ]
    pairs = [(init, alpha) for init in ("he", "xavier") for alpha in ALPHAS]
    p_values = [sign_test(values["LW", "he", alpha], values["BL", init, alpha]) for init, alpha in pairs]
    tests = [
        {"claim": f"LW (he) better than BL ({init}) at α = {alpha}", "p": p, "p_holm": corrected}
        for (init, alpha), p, corrected in zip(pairs, p_values, holm(p_values), strict=True)
    ]
    remark = "The paper names He initialisation, and its LW agrees with it; its baseline agrees with Xavier."
    return Table(name, "LW, table 1", cells, remarks=[remark], tests=tests)
