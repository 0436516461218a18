"""MAML, L2F and its control on policies that act (L2F's supplement, section D and figure F), at the size of a laptop.

fallow reproduce l2f-navigation      2-D navigation, judged in the four places of figure F
fallow reproduce l2f-cheetah         half-cheetahs told to run forwards or backwards (pip install 'fallow[rl]')

The supplement trains for 500 iterations by TRPO, with 20 trajectories of 100 steps a task in navigation and 40 of 200
in MuJoCo, and adapts to test tasks by 4 gradient updates. Here there are fewer iterations and fewer and shorter
trajectories, for half-cheetahs of fewer tasks. It shows pictures and gives no numbers; what it claims is that L2F
navigates more accurately and more robustly. All methods of a seed start from the same weights and meet the same tasks
and the same noise; intervals are Student's over the seeds. "Constant γ", learned but the same for all tasks, is the
control: L2F's claim is about what it gains on that.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from fallow.data.environments.load import load_environment
from fallow.evaluate.statistics import holm, paired
from fallow.experiment import heed
from fallow.report.words import many
from fallow.reproduce.runs import Runs
from fallow.reproduce.table import Cell, Table, cell
from fallow.training.control import reinforce

SEEDS = 3
TEST_TASKS, TEST_STEPS = 40, 4
CONTROL = "constant γ"
METHODS = {"MAML": "maml", "L2F": "l2f", CONTROL: "l2f:gamma=constant"}
SHOWN = (0, 1, TEST_STEPS)  # inner steps at test


class Practice(NamedTuple):
    """How policies are trained for a table."""

    environment: str
    shots: int
    iterations: int
    meta_batch: int = 20


PLANS = {
    "l2f-navigation": Practice("navigation:horizon=50", 10, 30),
    "l2f-cheetah": Practice("halfcheetah-direction:horizon=100", 10, 50, 8),
}


def returns(folder: Path, name: str, method: str, seed: int) -> dict[str, list[float]]:
    """Mean return over the test tasks of every place, before adaptation and after each step."""
    plan = PLANS[name]
    tasks = load_environment(plan.environment, shots=plan.shots, val_tasks=10, test_tasks=TEST_TASKS)
    result = reinforce(
        None, tasks, method, iterations=plan.iterations, meta_batch=plan.meta_batch, test_steps=TEST_STEPS, seed=seed,
        out=folder / "run", resume=(folder / "run" / "run.json").exists(), observer=heed,
    )  # fmt: skip
    return {place: [step["mean"] for step in steps] for place, steps in result.tested["places"].items()}


def run(name: str, seeds: range, data_dir: Path | None, each: Runs) -> Table:
    """The table: returns of every method in every place, and L2F's paired differences to MAML and to the control."""
    plan = PLANS[name]
    at, done = each(returns, {(row, seed): (name, method, seed) for seed in seeds
                              for row, method in METHODS.items()})  # fmt: skip
    places = list(at["MAML", done[0]])
    cells: list[Cell] = []
    claims = []
    for row in METHODS:
        for place in places:
            for step in SHOWN:
                ours = [at[row, seed][place][step] for seed in done]
                cells.append(cell(row, f"{place}, {step}", None, ours, 0.0))
                for other in ("MAML", CONTROL) if row == "L2F" and step == TEST_STEPS else ():
                    gap = paired(ours, [at[other, seed][place][step] for seed in done])
                    if gap is not None:
                        by = f"{gap.mean:+.2f} [{gap.low:+.2f}, {gap.high:+.2f}]"
                        claims.append((f"L2F − {other}, {place}, {step} steps: {by}", gap.p))
    adjusted = holm([p for _, p in claims])
    tests = [{"claim": text, "p": p, "p_holm": q} for (text, p), q in zip(claims, adjusted, strict=True)]
    remarks = [
        f"Mean return over {TEST_TASKS} test tasks before adaptation and after 1 and {TEST_STEPS} gradient updates "
        f"(columns are place and updates), {many(len(done), 'seed')}; {plan.environment}, {plan.iterations} iterations "
        f"of {plan.meta_batch} tasks and {plan.shots} trajectories, MAML-TRPO with α = 0.1."
    ]
    return Table(name, "L2F, supplement D", cells, unit="return", remarks=remarks, tests=tests)
