from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import ClassVar

import pytest

from fallow import methods
from fallow.comparison.plan import Plan, slug
from fallow.comparison.policy import epochs, policy, runs
from fallow.core.method import Method
from fallow.data import load
from fallow.evaluate.metrics import CLASSES
from fallow.experiment import Run
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
