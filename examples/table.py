"""Several methods on one data set, several seeds each, as a table with its cost.

    python examples/table.py digits --model scnn:width=8,dense=64 --epochs 4

A minute on two cores; expect every method near 97 % of test accuracy, and differences within the errors.
The tables in docs/methods/seal.md come from this script; the commands stand beside them.
"""

from __future__ import annotations

import argparse
import statistics

import torch
from joblib import Parallel, delayed

import fallow

METHODS = "normal long restart llf seal seal:ascent=adaptive"


def run(data: str, method: str, seed: int, options: dict) -> dict:
    torch.set_num_threads(1)  # workers run side by side
    model = options.pop("model")
    result = fallow.fit(model, data, method, seed=seed, **options)
    forgot = [row["forgot_to"] for row in result.generations if "forgot_to" in row]
    return {
        "last": 100 * result.last["test_accuracy"],
        "best": 100 * result.best["test_accuracy"],
        "forgot": [round(100 * value) for value in forgot],
        "seconds": result.seconds,
        "steps": result.steps,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--model", default=None)
    parser.add_argument("--methods", nargs="+", default=METHODS.split())
    parser.add_argument("--train", type=int, default=None)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--generations", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--split", type=float, default=0.5)
    parser.add_argument("--augment", default="auto")
    parser.add_argument("--jobs", type=int, default=2)
    options = vars(parser.parse_args())
    data, methods, seeds, jobs = (options.pop(key) for key in ("data", "methods", "seeds", "jobs"))
    tasks = [(method, seed) for seed in range(seeds) for method in methods]
    found = Parallel(n_jobs=jobs, return_as="generator")(
        delayed(run)(data, method, seed, dict(options)) for method, seed in tasks
    )
    table: dict[str, list[dict]] = {method: [] for method in methods}
    for (method, seed), outcome in zip(tasks, found, strict=True):
        table[method].append(outcome)
        print(f"# {method} seed {seed}: {outcome}", flush=True)
    print("| method | test, last epoch | test, best on validation | trained on, right after forgetting | steps | s |")
    print("|---|---|---|---|---|---|")
    for method, outcomes in table.items():
        last, best = (spread([outcome[key] for outcome in outcomes]) for key in ("last", "best"))
        forgot = [value for outcome in outcomes for value in outcome["forgot"]]
        span = f"{min(forgot)}–{max(forgot)} %" if forgot else "–"
        seconds = statistics.mean(outcome["seconds"] for outcome in outcomes)
        print(f"| {method} | {last} | {best} | {span} | {outcomes[0]['steps']} | {seconds:.0f} |")


def spread(values: list[float]) -> str:
    """Mean ± standard error."""
    error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else float("nan")
    return f"{statistics.mean(values):.2f} ± {error:.2f}"


if __name__ == "__main__":
    main()
