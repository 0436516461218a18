"""MAML against L2F on sinusoids (L2F's supplement, section C), and what L2F's options change.

fallow reproduce l2f-sinusoid

Networks of 2 × 40, 5 inner steps of α = 0.01, second order, Adam with 1e-3 and meta-batches of 4, as the supplement has
it, for 10,000 of its 50,000 iterations. All methods of a seed start from the same weights, train on the same tasks and
are judged by the same 600 curves of 100 points; intervals are Student's over the seeds. The hard setting is judged
twice: by its own test ranges, which training never sees, and by new curves of the training ranges. The supplement's
table of numbers is not in its text: what it claims is that L2F's error is lower everywhere.

"Constant γ" is the control: a γ for each layer that is learned but the same for all tasks. L2F's claim is about what it
gains on that, not on MAML alone.

The options are shown at 5 shots: where γ starts (about 0.5 by default), one γ for each parameter tensor instead of each
layer, 2 instead of 3 layers in g_φ, and the public code's choice of both, with a control of its own.
"""

from __future__ import annotations

from pathlib import Path

from fallow.data.tasks import Sinusoid
from fallow.evaluate.statistics import holm, paired
from fallow.reproduce.runs import Runs
from fallow.reproduce.stacked_tasks import CLIP, train
from fallow.reproduce.table import Cell, Table, cell

SEEDS = 8
ITERATIONS = 10_000
CURVES = 600
SHOTS = (5, 10, 20)
COMPILE = True
PLACES = {"standard": ("standard", "test"), "hard": ("hard", "test"), "hard, training ranges": ("hard", "val")}
CONTROL = "constant γ"
METHODS = {"MAML": "maml", "L2F": "l2f", CONTROL: "l2f:gamma=constant"}
OPTIONS = {  # at the first number of shots
    "L2F, γ from 0.95": "l2f:start=0.95",
    "L2F, γ for each tensor": "l2f:per=tensor",
    "L2F, g_φ of 2 layers": "l2f:depth=2",
    "L2F, 2 layers, each tensor": "l2f:depth=2,per=tensor,norms=False",
    "L2F, the same, γ from 0.95": "l2f:depth=2,per=tensor,norms=False,start=0.95",
    "constant γ, each tensor, from 0.95": "l2f:gamma=constant,per=tensor,start=0.95",
}
AGAINST = {  # MAML, and a control that has the same γ but for the task
    "MAML": (),
    "L2F": ("MAML", CONTROL),
    "L2F, the same, γ from 0.95": ("MAML", "constant γ, each tensor, from 0.95"),
}


def errors(folder: Path, method: str, shots: int, seeds: list[int]) -> tuple[dict[str, list[float]], int]:
    """Mean squared error after adaptation, for every place and seed; and how many meta-gradients were not finite."""
    settings = list(dict.fromkeys(setting for setting, _ in PLACES.values()))
    members = [(Sinusoid(shots=shots, setting=setting), seed) for setting in settings for seed in seeds]
    learners, lost = train(members, method, iterations=ITERATIONS, compile=COMPILE)
    found: dict[str, list[float]] = {place: [] for place in PLACES}
    for place, (setting, split) in PLACES.items():
        for (tasks, _), learner in zip(members, learners, strict=True):
            if tasks.setting == setting:
                found[place].append(float(learner.judge(tasks.draw(split, 0, CURVES)).losses[-1].mean()))
    return found, sum(lost)


def run(name: str, seeds: range, data_dir: Path | None, each: Runs) -> Table:
    """The table: errors of both methods and of L2F's options, and the paired differences to MAML and to the control."""
    jobs = [(row, shots) for shots in SHOTS for row in METHODS] + [(row, SHOTS[0]) for row in OPTIONS]
    specs = METHODS | OPTIONS
    found, columns = each(errors, {(row, shots): (specs[row], shots, list(seeds)) for row, shots in jobs})
    at = {job: places for job, (places, _) in found.items()}
    lost = [f"{row} at {shots} shots {count}" for (row, shots), (_, count) in found.items() if count]
    cells: list[Cell] = []
    claims = []
    for row in specs:
        for place in PLACES:
            for shots in columns:
                if (row, shots) not in at:
                    continue
                ours = at[row, shots][place]
                cells.append(cell(row, f"{place}, {shots}", None, ours, 0.0))
                for other in AGAINST.get(row, ("MAML",)):
                    if (gap := paired(ours, at[other, shots][place])) is not None:
                        by = f"{gap.mean:+.3f} [{gap.low:+.3f}, {gap.high:+.3f}]"
                        claims.append((f"{row} − {other}, {place}, {shots} shots: {by}", gap.p))
    adjusted = holm([p for _, p in claims])
    tests = [{"claim": text, "p": p, "p_holm": q} for (text, p), q in zip(claims, adjusted, strict=True)]
    remarks = [
        f"Mean squared error over {CURVES} curves after 5 steps; {ITERATIONS:,} iterations of 4 tasks, {len(seeds)} "
        "seeds; columns are setting and shots. Differences to MAML, and L2F's to its controls, are paired by seed, "
        "with 95 % intervals."
    ]
    count = len({setting for setting, _ in PLACES.values()}) * len(seeds) * ITERATIONS
    remarks.append(
        f"Meta-gradients are clipped at a norm of {CLIP:g}. Of {count:,} of each method, so many were not finite and "
        f"left out: {', '.join(lost) or 'none'}."
    )
    return Table(name, "L2F, supplement C", cells, unit="mean squared error", remarks=remarks, tests=tests)
