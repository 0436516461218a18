from __future__ import annotations

import collections
import dataclasses
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pytest

from fallow import methods
from fallow.base.names import slug
from fallow.comparison.plan import Plan
from fallow.comparison.policy import epochs, policy, runs
from fallow.core.method import Method
from fallow.data import load
from fallow.evaluate.metrics import CLASSES
from fallow.experiment import Outcome, Run
from tests.comparison.small import arrays, plan


def every(asked: Plan) -> list[Run]:
    loaded = {source: load(source, seed=asked.seed, val=asked.val, train=asked.train) for source in asked.data}
    versions = dict.fromkeys(loaded, "0")
    first = policy(asked, loaded, versions, CLASSES["accuracy"])({})
    assert {run.name: run for run in first} == {run.name: run for run in runs(asked, loaded, versions)}  # one round
    return runs(asked, loaded, versions)


def planned(asked: Plan) -> dict[tuple[str, int], Run]:
    return {(run.arguments["method"], run.arguments["seed"]): run for run in every(asked)}


@dataclasses.dataclass(eq=False)
class Twice(Method):
    """Needs two passes a step, as SAM does."""

    name = "twice"
    summary = "two passes a step"
    passes: ClassVar[float] = 2.0


class TwiceRestarting(Twice):
    name = "twice-restarting"
    generational = True


class Thrice(Twice):
    name = "thrice"
    passes = 3.0


@pytest.fixture
def costly(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (Twice, TwiceRestarting, Thrice):
        monkeypatch.setitem(methods.REGISTRY, kind.name, kind)


@pytest.mark.usefixtures("costly")
def test_equal_compute(tmp_path: Path) -> None:
    data = arrays(tmp_path / "few.npz")  # 38 to train on: three steps an epoch
    asked = plan(data, "twice", "twice-restarting", "thrice", settings={"generations": 4, "epochs": 5})
    found = planned(asked)
    trained = {method: epochs(run) for (method, seed), run in found.items() if seed == 0}
    assert trained == {
        "normal": 5,
        "long": 4 * 5,
        "restart": 4 * 5,
        "twice": 2 * 5,  # exactly half, though 5 epochs have no half
        "thrice": 7,  # 20/3 epochs
        "twice-restarting": 4 * 2,
    }
    for (method, _), run in found.items():
        assert run.cost == epochs(run) * 3 * methods.build(method).passes
    equal = planned(dataclasses.replace(asked, budget="steps"))
    assert {epochs(run) for (name, _), run in equal.items() if name != "normal"} == {4 * 5}


@pytest.mark.usefixtures("costly")
def test_costly_methods_have_one_epoch_at_least(tmp_path: Path) -> None:
    found = planned(plan(arrays(tmp_path / "few.npz"), "thrice", settings={"generations": 1, "epochs": 1}))
    assert epochs(found["thrice", 0]) == 1


def test_every_run_has_a_folder_of_its_own(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    data = [arrays(tmp_path / "one" / "same.npz"), arrays(tmp_path / "two" / "same.npz")]
    asked = plan(data, "seal:scale=0.1", "seal:scale=0.5", "llf+ema", models=["mlp:hidden=8,8", "mlp:hidden=8", "mlp"])
    found = every(asked)
    assert len(found) == 2 * 2 * 3 * 6
    assert len({run.name for run in found}) == len(found)
    assert all(run.name.startswith("same-mlp-") for run in found)
    assert every(asked) == found  # always the same ones


def test_long_names_still_fit_a_file_system(tmp_path: Path) -> None:
    long = "seal:share=0.125,scale=0.123456,late=redraw,reverse=True,decay=False,momentum=keep,ascent=adaptive"
    other = long.replace("adaptive", "adaptive,rho=0.5")
    found = planned(plan(arrays(tmp_path / f"{'x' * 200}.npz"), f"{long}+ema", f"{other}+ema"))
    names = {run.name for run in found.values()}
    assert len(names) == len(found)
    assert max(map(len, names)) < 255
    assert slug("a/b c:d=1,é") == "a_b_c_d=1"


def test_long_runs_of_a_seed_stand_first(tmp_path: Path) -> None:
    order = [(run.arguments["seed"], run.cost) for run in every(plan(arrays(tmp_path / "few.npz"), "llf"))]
    assert order == sorted(order, key=lambda item: (item[0], -item[1]))


def test_where_the_data_are_does_not_make_another_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        found.append(every(plan(arrays(Path("few.npz")))))
    assert [run.arguments for run in found[0]] == [run.arguments for run in found[1]]
    assert found[0][0].paths == {"root": str(tmp_path / "here")}


# ---- the race


def raced(asked: Plan, scores: dict[str, Callable[[int], float]], order: int = 0, seconds: float = 1.0) -> list[Run]:
    """All runs that a policy comes to want, one ending after another, in an order of its own."""
    loaded = {source: load(source, seed=asked.seed, val=asked.val) for source in asked.data}
    ask = policy(asked, loaded, dict.fromkeys(loaded, "0"), CLASSES["accuracy"])
    draw, ended = random.Random(order), dict[str, Outcome]()
    while wanted := list(ask(ended)):
        assert not {run.name for run in wanted} & set(ended)
        run = draw.choice(wanted)
        test = scores.get(run.arguments["method"], scores["others"])(run.arguments["seed"])
        reason = "it broke" if math.isnan(test) else None
        value = {"last": {"test_accuracy": test, "val_accuracy": test}, "seconds": seconds} if reason is None else None
        ended[run.name] = Outcome(run, value, reason, seconds)
    fresh = policy(asked, loaded, dict.fromkeys(loaded, "0"), CLASSES["accuracy"])
    assert list(fresh(ended)) == []  # replayed, it is over too
    return [outcome.run for outcome in ended.values()]


def seeds_of(found: list[Run]) -> dict[str, int]:
    return dict(collections.Counter(run.arguments["method"] for run in found))


def noise(seed: int, of: int, scale: float = 0.02) -> float:
    return random.Random(f"{seed} {of}").gauss(0.0, scale)


SCORES: dict[str, Callable[[int], float]] = {
    "others": lambda seed: 0.8 + noise(seed, 0, 0.002),
    "ema": lambda seed: 0.9 + noise(seed, 1, 0.002),
    "swa": lambda seed: 0.7 + noise(seed, 2, 0.002),
    "sam": lambda seed: 0.81 + noise(seed, 3, 0.05),
    "fam": lambda seed: math.nan,
}


def test_who_is_decided_runs_no_more_whatever_ended_first(tmp_path: Path) -> None:
    asked = plan(arrays(tmp_path / "many.npz", 2000), "ema", "swa", "sam", "fam", seeds=8)
    found = [raced(asked, SCORES, order) for order in range(3)]
    counts = seeds_of(found[0])
    assert counts["ema"] == counts["swa"] == counts["fam"] == 4  # better, worse and failed at the first look
    assert 4 <= counts["sam"] <= 8
    assert counts["long"] == counts["normal"] == max(counts.values())
    for other in found[1:]:
        assert {run.name for run in other} == {run.name for run in found[0]}


def test_losers_run_on_only_to_be_proved_worse(tmp_path: Path) -> None:
    few = arrays(tmp_path / "many.npz", 2000)
    worse = SCORES | {"swa": lambda seed: 0.74 + noise(seed, 2)}
    dropped, proved = (
        seeds_of(raced(plan(few, "swa", seeds=12, same=0, prove_worse=prove), worse)) for prove in (False, True)
    )
    assert dropped["swa"] < proved["swa"]


def test_minutes_end_a_race(tmp_path: Path) -> None:
    few = arrays(tmp_path / "few.npz")
    whole = raced(plan(few, "sam", seeds=8, prove_worse=True), SCORES, seconds=60.0)
    some = raced(plan(few, "sam", seeds=8, prove_worse=True, minutes=6), SCORES, seconds=60.0)
    assert 3 <= len(some) <= 6 < len(whole)
    assert len(raced(plan(few, "sam", seeds=8, minutes=0.01), SCORES, seconds=60.0)) == 1  # to know how long one takes


def test_without_methods_all_seeds_of_the_controls_run(tmp_path: Path) -> None:
    assert seeds_of(raced(plan(arrays(tmp_path / "few.npz"), seeds=6), SCORES)) == {"normal": 6, "long": 6}


def test_a_control_that_always_fails_is_none(tmp_path: Path) -> None:
    few = arrays(tmp_path / "few.npz")
    fails: dict[str, Callable[[int], float]] = SCORES | {"long": lambda seed: math.nan}
    counts = seeds_of(raced(plan(few, "ema", "llf", seeds=6), fails))
    assert counts["long"] == 4
    assert counts["restart"] == max(counts["ema"], counts["llf"])
    assert seeds_of(raced(plan(few, "ema", seeds=6), fails)) == {"normal": 4, "long": 4, "ema": 4}


def test_what_needs_pretrained_weights_runs_with_networks_that_have_them(tmp_path: Path) -> None:
    asked = plan(
        arrays(tmp_path / "x.npz"), "probe", "mixup", models=("auto", "lite0"), seeds=1,
        settings={"freeze": "head", "input_size": 64},
    )  # fmt: skip
    found = {}
    for run in every(asked):
        model, method, settings = (run.arguments[key] for key in ("model", "method", "settings"))
        found.setdefault(model, {})[method] = settings.get("freeze"), settings.get("input_size")
    assert found == {
        "mlp:norm=batch,embed=8": dict.fromkeys(("normal", "long", "mixup"), (None, None)),
        "lite0": dict.fromkeys(("normal", "long", "probe", "mixup"), ("head", 64)),
    }
