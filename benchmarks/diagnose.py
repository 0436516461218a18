"""The largest eigenvalue against PyHessian's power iteration, and nearest neighbours against scikit-learn and against
the bare matrix products.

``python -m benchmarks diagnose`` takes 4,000 test points and one layer; ``python -m benchmarks.diagnose`` once the full
size: 10,000 test points, 50,000 training points, 8 layers of 512 features (six minutes), with the memory it took.
PyHessian: ``pip install --no-deps pyhessian``.
"""

from __future__ import annotations

import json
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.timing import Work, compare, interleave
from fallow import models
from fallow.data import load
from fallow.diagnose.depth import vote
from fallow.diagnose.lanczos import Lanczos, ends
from fallow.diagnose.products import Hessian
from fallow.evaluate.neighbours import COLUMNS, ROWS, neighbours

NETS = {"mlp": ("mlp:hidden=(64, 64)", 1024), "scnn": ("scnn:width=8,dense=32", 256)}
K, FEATURES = 5, 512


def trained(spec: str, examples: int, steps: int) -> tuple[nn.Module, Tensor, Tensor]:
    digits = load("digits", val=0.0)
    x, y = digits.train.x[:examples].float(), digits.train.y[:examples]  # type: ignore[union-attr]
    x = (x - x.mean()) / x.std()
    torch.manual_seed(0)
    model = models.build(spec, shape=digits.shape, classes=10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _ in range(steps):
        index = torch.randint(examples, (64,))
        optimizer.zero_grad()
        functional.cross_entropy(model(x[index]), y[index]).backward()
        optimizer.step()
    optimizer.zero_grad()
    return model.eval(), x, y


def eigenvalues(repetitions: int) -> dict[str, Any]:
    """Time and error of the largest eigenvalue: networks as they start and after training, another start each time."""
    from pyhessian import hessian

    warnings.filterwarnings("ignore", "Using backward", UserWarning)  # of torch, about what PyHessian does
    rivals: dict[str, Callable[[], Work]] = {}
    found: dict[str, list[float]] = {}
    pairs, truths = {}, {}
    for name, (spec, examples) in NETS.items():
        for state, steps in (("fresh", 0), ("trained", 300)):
            model, x, y = trained(spec, examples, steps)
            double = Hessian(model.double(), "cross_entropy", x.double(), y)
            start = torch.randn(double.size, dtype=torch.float64)
            case = f"{state} {name}"
            truths[case] = float(Lanczos(double, start, ends(2), tolerance=1e-10).values[-1])
            model.float()

            def ours(case: str = case, model: nn.Module = model, x: Tensor = x, y: Tensor = y) -> Work:
                seed = len(found.setdefault(f"lanczos {case}", []))

                def work() -> int:
                    product = Hessian(model, "cross_entropy", x, y)
                    begin = torch.randn(product.size, generator=torch.Generator().manual_seed(seed))
                    largest = Lanczos(product, begin, ends(1), tolerance=1e-3).eigenvalue(-1)  # as PyHessian's
                    assert largest.converged
                    found[f"lanczos {case}"].append(largest.value)
                    return 1

                return work

            def theirs(case: str = case, model: nn.Module = model, x: Tensor = x, y: Tensor = y) -> Work:
                torch.manual_seed(len(found.setdefault(f"pyhessian {case}", [])))

                def work() -> int:
                    values, _ = hessian(model, functional.cross_entropy, data=(x, y), cuda=False).eigenvalues()
                    found[f"pyhessian {case}"].append(values[0])
                    for parameter in model.parameters():
                        parameter.grad = None  # it holds the graph
                    return 1

                return work

            rivals |= {f"lanczos {case}": ours, f"pyhessian {case}": theirs}
            pairs[f"lanczos_vs_pyhessian {case}"] = (f"lanczos {case}", f"pyhessian {case}")
    times = interleave(rivals, repetitions)
    measured = compare(times, pairs)
    each = [
        a / b for mine, other in pairs.values() for a, b in zip(times[mine]["cpu"], times[other]["cpu"], strict=True)
    ]
    errors = {
        who: [abs(value / truth - 1) for case, truth in truths.items() for value in found[f"{who} {case}"]]
        for who in ("lanczos", "pyhessian")
    }
    shares = [mine / other for mine, other in zip(errors["lanczos"], errors["pyhessian"], strict=True)]
    ratios = {"lanczos_vs_pyhessian": each, "lanczos_error_vs_pyhessian": shares}
    for name, values in ratios.items():
        low, middle, high = statistics.quantiles(values, n=4)
        measured["ratios"][name], measured["spread"][name] = float(f"{middle:.3g}"), (low, high)
    return measured


def layer(seed: int, train: int, test: int) -> tuple[Tensor, Tensor, Tensor]:
    """Features as after a ReLU, with classes in them, and the training points' labels."""
    draw = torch.Generator().manual_seed(seed)
    centres = torch.randn(10, FEATURES, generator=draw)
    labels = torch.arange(train) % 10
    known = (centres[labels] + torch.randn(train, FEATURES, generator=draw)).relu_()
    asked = (centres[torch.arange(test) % 10] + torch.randn(test, FEATURES, generator=draw)).relu_()
    return known, asked, labels


def products(known: Tensor, asked: Tensor) -> None:
    """The matrix products alone, in blocks of the same size and into memory that is there already."""
    scratch = torch.empty(ROWS * COLUMNS)
    for rows in asked.split(ROWS):
        for some in known.tensor_split(-(-len(known) // COLUMNS)):
            torch.mm(rows, some.T, out=scratch[: len(rows) * len(some)].view(len(rows), len(some)))


def brute(known: Tensor, asked: Tensor) -> np.ndarray:
    from sklearn.neighbors import NearestNeighbors

    search = NearestNeighbors(n_neighbors=K, algorithm="brute").fit(known.numpy())
    return search.kneighbors(asked.numpy(), return_distance=False)


def depth(repetitions: int) -> dict[str, Any]:
    known, asked, labels = layer(0, 50_000, 4_000)

    def probe() -> int:
        vote(labels[neighbours(known, asked, K)])
        return 1

    def bare() -> int:
        products(known, asked)
        return 1

    def sklearn() -> int:
        brute(known, asked)
        return 1

    rivals: dict[str, Callable[[], Work]] = {
        "depth": lambda: probe, "matmul": lambda: bare, "sklearn": lambda: sklearn,
    }  # fmt: skip
    pairs = {"depth_vs_sklearn": ("depth", "sklearn"), "depth_vs_matmul": ("depth", "matmul")}
    return compare(interleave(rivals, repetitions), pairs)


def measure(repetitions: int | None = None) -> dict[str, Any]:
    measured = eigenvalues(repetitions or 15)
    second = depth(repetitions or 5)
    return {key: measured[key] | second[key] for key in measured}


def resident(what: str) -> int:
    """Kilobytes in memory, now (VmRSS) or at most (VmHWM); on Linux."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(what))


def full(train: int = 50_000, test: int = 10_000, layers: int = 8) -> dict[str, Any]:
    """Once, at full size: CPU seconds of all layers, the share of equal neighbours, memory beyond the features."""
    torch.set_num_threads(1)
    data = [layer(seed, train, test) for seed in range(layers)]
    seconds = {"depth": 0.0, "matmul": 0.0, "sklearn": 0.0}
    equal = []
    before = resident("VmRSS")
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the peak counts from now on, not from when the features were drawn
    found = []
    for known, asked, labels in data:
        began = time.process_time()
        found.append(neighbours(known, asked, K))
        vote(labels[found[-1]])
        seconds["depth"] += time.process_time() - began
    memory = resident("VmHWM") - before
    for (known, asked, _), mine in zip(data, found, strict=True):
        began = time.process_time()
        products(known, asked)
        middle = time.process_time()
        equal.append(float((torch.from_numpy(brute(known, asked)) == mine).float().mean()))
        seconds["matmul"] += middle - began
        seconds["sklearn"] += time.process_time() - middle
    return {
        "ratios": {f"depth_vs_{name}": round(seconds["depth"] / seconds[name], 3) for name in ("sklearn", "matmul")},
        "seconds": {name: round(value, 1) for name, value in seconds.items()},
        "counts": {"memory beyond the features, MB": round(memory / 1024), "equal to scikit-learn's": min(equal)},
    }


if __name__ == "__main__":
    print(json.dumps(full(), indent=1))
