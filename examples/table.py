"""Several methods on one or more data sets, several seeds each: tables with their cost, and who beats whom.

    python examples/table.py digits --model scnn:width=8,dense=64 --epochs 4

Half a minute on two cores; expect long, restart and seal between 97 and 98 % of test accuracy, normal near 92, llf near
94, and an adaptive seal far below: four epochs are too few to relearn what was really forgotten.
The tables in docs/evidence.md come from this script; the commands stand beside them.
"""

from __future__ import annotations

import argparse
import statistics

import torch
from joblib import Parallel, delayed

import fallow
from fallow.evaluate.statistics import significance

METHODS = ("normal", "long", "restart", "llf", "seal", "seal:ascent=adaptive")


def run(data: str, method: str, seed: int, options: dict) -> dict:
    torch.set_num_threads(1)  # workers run side by side
    result = fallow.fit(options["model"], data, method, seed=seed, **{k: v for k, v in options.items() if k != "model"})
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
    parser.add_argument("data", nargs="+")
    parser.add_argument("--model", default=None)
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--train", type=int, default=None)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--generations", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--split", type=float, default=0.5)
    parser.add_argument("--augment", default="auto")
    parser.add_argument("--jobs", type=int, default=2)
    options = vars(parser.parse_args())
    sets, methods, seeds, jobs = (options.pop(key) for key in ("data", "methods", "seeds", "jobs"))
    tasks = [(data, seed, method) for data in sets for seed in range(seeds) for method in methods]
    outcomes = Parallel(n_jobs=jobs, return_as="generator")(
        delayed(run)(data, method, seed, options) for data, seed, method in tasks
    )
    found = {}
    for task, outcome in zip(tasks, outcomes, strict=True):
        found[task] = outcome
        print("#", *task, outcome, flush=True)
    for data in sets:
        table(data, {method: [found[data, seed, method] for seed in range(seeds)] for method in methods})
    last = {m: [found[data, seed, m]["last"] for data in sets for seed in range(seeds)] for m in methods}
    print("\nThe column beats the row (last epoch): ★ exact binomial test at 5 %, ○ after Holm's correction too\n")
    marks = significance(last)
    print("|", "|", *(f"{method} |" for method in methods))
    print("|---" * (len(methods) + 1) + "|")
    for row in methods:
        print(f"| {row} |", *(f"{marks.get((row, column), '')} |" for column in methods))


def table(data: str, outcomes: dict[str, list[dict]]) -> None:
    print(f"\n{data}\n")
    print("| method | test, last epoch | test, best on validation | training, right after forgetting | steps | s |")
    print("|---|---|---|---|---|---|")
    for method, several in outcomes.items():
        last, best = (spread([outcome[key] for outcome in several]) for key in ("last", "best"))
        forgot = [value for outcome in several for value in outcome["forgot"]]
        span = f"{min(forgot)}–{max(forgot)} %" if forgot else "–"
        seconds = statistics.mean(outcome["seconds"] for outcome in several)
        print(f"| {method} | {last} | {best} | {span} | {several[0]['steps']} | {seconds:.0f} |")


def spread(values: list[float]) -> str:
    """Mean ± standard error."""
    error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else float("nan")
    return f"{statistics.mean(values):.2f} ± {error:.2f}"


if __name__ == "__main__":
    main()
