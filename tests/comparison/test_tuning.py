"""Tuned runners: the same trials for each, on validation of seeds that do not race."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from fallow.base.errors import RequestError
from fallow.comparison.policy import WORK as RACED
from fallow.comparison.tuning import WORK, Tuning, said, space, trials
from fallow.core.ranges import OneOf
from fallow.evaluate.metrics import CLASSES, NUMBERS
from fallow.experiment import Outcome, Run
from fallow.methods import METHODS, build
from tests.comparison.small import arrays, plan, ran, results, state

ACCURACY = CLASSES["accuracy"]
LABELLED = [kind for kind in METHODS if not kind.tasks]


@pytest.mark.parametrize("kind", LABELLED, ids=lambda kind: kind.name)
def test_ranges_are_of_settings_that_there_are_and_all_of_their_values_will_do(kind: type) -> None:
    fields = {field.name: field.default for field in dataclasses.fields(kind)} if kind.ranges else {}
    for key, where in kind.ranges.items():
        assert isinstance(where, OneOf) or where.low < where.high
        for share in (0.0, 0.3, 0.999):
            assert build(kind.name).tuned({f"{kind.name}.{key}": where.at(share)}).settings()[key] == where.at(share)
        if not isinstance(where, OneOf) and isinstance(fields[key], float):
            assert where.low <= fields[key] <= where.high


def test_all_runners_try_the_same_rates_and_decays() -> None:
    plain, sam = (trials(space(name, {}, {}), 8) for name in ("long", "sam"))
    assert [set(each) for each in plain] == [set()] + [{"lr", "weight_decay"}] * 7
    assert [(each["lr"], each["weight_decay"]) for each in plain[1:]] == [
        (each["lr"], each["weight_decay"]) for each in sam[1:]
    ]
    rates = sorted(each["lr"] for each in plain[1:])
    assert rates[0] < 0.004
    assert rates[-1] > 0.03
    assert len(set(rates)) == len({each["sam.rho"] for each in sam[1:]}) == 7
    assert trials(space("sam", {}, {}), 12)[:8] == sam  # more trials go on where fewer ended


def test_what_the_user_gives_is_not_tuned() -> None:
    assert set(space("sam:rho=0.1", {"lr": 0.1}, {"lr": 0.1})) == {"weight_decay"}
    assert set(space("sam+ema", {}, {"weight_decay": 0.1})) == {"lr", "sam.rho", "ema.decay"}
    around = space("long", {"lr": 0.4, "weight_decay": 0.0}, {})
    assert around["lr"].at(0.5) == pytest.approx(0.4)
    assert around["weight_decay"].at(0.0) == pytest.approx(1e-5)
    assert trials(space("long", {}, {"lr": 1.0, "weight_decay": 0.0}), 8) == [{}]


def test_what_does_not_matter_to_a_method_is_not_tuned() -> None:
    """finetune has a rate of its own, and probe takes no steps: trials of lr would all be the same."""
    assert set(space("finetune", {}, {})) == {"weight_decay", "finetune.rate", "finetune.lowest"}
    assert set(space("lp-ft+mixup", {}, {})) == {"weight_decay", "lp-ft.rate", "lp-ft.lowest", "mixup.alpha"}
    assert trials(space("probe", {}, {}), 8) == [{}]


def test_settings_of_a_sum_reach_their_part() -> None:
    found = build("sam+ema").tuned({"sam.rho": 0.2, "ema.decay": 0.9})
    assert str(found) == "sam:rho=0.2+ema:decay=0.9"
    assert (
        said({"sam.rho": 0.2, "lr": 1e-05, "llf.optimizer_state": "keep"}) == "rho 0.2, lr 1e-05, optimizer_state keep"
    )


def held(epochs: int = 8) -> list[Run]:
    asked = {"method": "sam", "settings": {"epochs": epochs}, "data": "d", "model": "m"}
    return [Run(f"sam-seed{seed}", RACED, asked | {"seed": seed}, cost=10.0) for seed in (0, 1)]


def ended(runs: list[Run], values: dict[str, float], key: str = "val_accuracy", **more: float) -> dict[str, Outcome]:
    return {
        run.name: Outcome(run, {"last": {key: values[run.name]} | more, "passes": 2.0}, None, 3.0)
        if run.name in values
        else Outcome(run, None, "the loss became NaN", 1.0)
        for run in runs
    }


def test_short_trials_leave_a_quarter_and_the_best_whole_one_on_both_seeds_is_chosen() -> None:
    tuning = Tuning(held(), 12, {})
    first = tuning.wanted({}, "last", ACCURACY)
    assert [run.arguments["settings"]["epochs"] for run in first] == [2] * 12
    assert {run.work for run in first} == {WORK}
    assert {run.arguments["seed"] for run in first} == {0}
    assert sum(run.cost for run in first) == pytest.approx(12 * 10 / 4)
    done = ended(first, {run.name: i / 12 for i, run in enumerate(first)})
    second = tuning.wanted(done, "last", ACCURACY)
    assert [run.name.split("-")[2] for run in second] == ["trial11"] * 2 + ["trial10"] * 2 + ["trial9"] * 2
    assert [run.arguments["seed"] for run in second] == [0, 1] * 3
    assert {run.arguments["settings"]["epochs"] for run in second} == {8}
    done |= ended(second, dict(zip([run.name for run in second], [0.9, 0.5, 0.7, 0.8, 0.6, 0.6], strict=True)))
    assert tuning.wanted(done, "last", ACCURACY) == []
    chosen = tuning.chosen(done, "last", ACCURACY)
    assert chosen.chosen == tuning.trials[10]
    assert second[2].arguments["own"] == {"sam.rho": chosen.chosen["sam.rho"]}
    assert (chosen.trials, chosen.trainings, chosen.seconds, chosen.passes) == (12, 18, 54.0, 36.0)


def test_failed_trials_are_the_worst_and_equals_are_told_by_loss_then_order() -> None:
    tuning = Tuning(held(), 6, {})
    first = tuning.wanted({}, "last", ACCURACY)
    done = ended(first, {run.name: 0.5 for run in first[2:]}, val_loss=1.0)
    assert [run.name.split("-")[2] for run in tuning.wanted(done, "last", ACCURACY)][::2] == ["trial2", "trial3"]
    better = dataclasses.replace(done[first[5].name], value={"last": {"val_accuracy": 0.5, "val_loss": 0.5}})
    done[first[5].name] = better
    assert [run.name.split("-")[2] for run in tuning.wanted(done, "last", ACCURACY)][::2] == ["trial5", "trial2"]
    rmse = NUMBERS["rmse"]
    lower = ended(first, {run.name: float(i) for i, run in enumerate(first)}, "val_rmse")
    assert [run.name.split("-")[2] for run in tuning.wanted(lower, "last", rmse)][::2] == ["trial0", "trial1"]


def test_a_run_that_ended_before_its_outcome_was_written_ends_the_same(tmp_path: Path) -> None:
    """Its checkpoints are gone by then: it trains again."""
    asked = plan(arrays(tmp_path / "few.npz"), "dropout", seeds=2, tune=3)
    done = ran(asked, tmp_path / "out")
    table = results(tmp_path / "out")
    for name in (done.runs[0].name, next(run.name for run in done.state.runs.values() if run.work == WORK)):
        (tmp_path / "out" / "runs" / name / "outcome.json").unlink()
    (tmp_path / "out" / "experiment.db").unlink()
    ran(asked, tmp_path / "out")
    assert results(tmp_path / "out") == table


def test_two_trials_train_whole_at_once() -> None:
    tuning = Tuning(held(), 2, {})
    assert [run.arguments["settings"]["epochs"] for run in tuning.wanted({}, "last", ACCURACY)] == [8] * 4


def test_a_tuned_race_has_seeds_of_its_own_and_resumes_to_the_same_table(tmp_path: Path) -> None:
    data = arrays(tmp_path / "few.npz")
    asked = plan(data, "dropout", seeds=2, tune=3)
    done = ran(asked, tmp_path / "out")
    tried = [run for run in done.state.runs.values() if run.work == WORK]
    assert {run.arguments["seed"] for run in tried} == {0, 1}
    assert {entry.seed for entry in done.entries.values()} == {2, 3}
    assert len(tried) == 3 * (3 + 2)  # an epoch has no quarter, so that the first seed's trials are whole already
    assert not any("test" in key for run in tried for key in done.state.outcomes[run.name].value["last"])
    rows = {row.method: row for row in done.findings().settings[0].rows}
    for run in done.runs:
        chosen = rows[run.arguments["method"]].tuned.chosen
        own, settings = run.arguments.get("own", {}), run.arguments["settings"]
        assert own == {key: value for key, value in chosen.items() if "." in key}
        assert settings.items() >= {key: value for key, value in chosen.items() if "." not in key}.items()
    kept = {run.name: {path.name for path in (tmp_path / "out" / "runs" / run.name).iterdir()} for run in done.runs}
    assert all({"last.safetensors", "best.safetensors", "outputs.safetensors"} < names for names in kept.values())
    heavy = [path.parent.name for path in (tmp_path / "out" / "runs").glob("*/*.safetensors")]
    assert set(heavy) - {"winner"} == set(kept)  # of trials nobody wants the weights
    assert not list((tmp_path / "out" / "runs").glob("*/checkpoint*"))
    before, table = state(tmp_path / "out"), results(tmp_path / "out")
    (tmp_path / "out" / "results.csv").unlink()
    ran(asked, tmp_path / "out")
    assert (state(tmp_path / "out"), results(tmp_path / "out")) == (before, table)
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Tuned by 3 trials" in page
    with pytest.raises(RequestError, match="its tune is 3, not 0"):
        ran(plan(data, "dropout", seeds=2), tmp_path / "out")


def test_one_trial_is_no_choice(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="tune is 1"):
        plan(arrays(tmp_path / "few.npz"), "ema", tune=1)
