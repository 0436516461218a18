"""What networks are worth on other data, against the same by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.neighbors import KNeighborsRegressor
from torch import Tensor

import fallow
from fallow.base.errors import RequestError
from fallow.data import load
from fallow.evaluate import affine
from fallow.evaluate.affine import learn_affine
from fallow.evaluate.learners import learn
from fallow.evaluate.probe import linear_probe, seal_probe
from fallow.evaluate.sampling import episodes
from fallow.evaluate.span import Protocol
from fallow.evaluate.statistics import paired
from fallow.models import frozen
from fallow.models.frozen import Frozen
from fallow.training.predict import Predictor
from fallow.transfers import asked, work
from fallow.transfers.backbones import Backbone
from fallow.transfers.findings import TransferColumn, _entry, find
from fallow.transfers.page import _over, sentences
from tests.cli.conftest import Run, run

__all__ = ["run"]  # the fixture


def pictures(path: Path, side: int = 10, classes: int = 6, each: int = 24, channels: int = 3) -> Path:
    """Pictures of bright places, one for each class."""
    draw = np.random.default_rng(0)
    y = np.arange(classes).repeat(each)
    x = draw.integers(0, 120, (len(y), side, side, channels))
    for i, label in enumerate(y):
        x[i, label : label + 3, label : label + 3] += 110
    np.savez(path, x=x.astype(np.uint8), y=y)
    return path


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison of two methods with three seeds each, as its runs are, and other data."""
    home = tmp_path_factory.mktemp("transfer")
    for method in ("normal", "llf"):
        for seed in range(3):
            fallow.fit(
                "scnn:width=4,dense=8", "digits", method, train=60, epochs=1, generations=2, seed=seed,
                out=home / "comparison" / "runs" / f"{method}-{seed}",
            )  # fmt: skip
    pictures(home / "other.npz")
    return home


def seen(home: Path, name: str) -> tuple[Frozen, fallow.Data, list[Tensor]]:
    """A network by hand: its features of all parts of the other data."""
    data, found = load(home / "other.npz"), Predictor(home / "comparison" / "runs" / name, "last")
    net = found.model
    net.head = torch.nn.Identity()
    grey = [part.x.float().mean(1, keepdim=True) for part in (data.train, data.val, data.test)]
    mean, std = found.scaled.mean, found.scaled.std
    small = [torch.nn.functional.interpolate((x - mean) / std, (8, 8), mode="bilinear", antialias=True) for x in grey]
    with torch.no_grad():
        return net, data, [net.eval()(x) for x in small]


@pytest.mark.parametrize("protocol", ["logistic", "ridge", "nearest", "seal"])
def test_a_probe_is_the_probe_of_the_networks_features(home: Path, protocol: str) -> None:
    found = fallow.transfer(home / "comparison/runs/llf-1", home / "other.npz", protocol=protocol, workers=1)
    (entry,) = found.findings.entries
    _, data, (train, val, test) = seen(home, "llf-1")
    parts = (train, data.train.y), (val, data.val.y)
    probe = seal_probe(*parts) if protocol == "seal" else linear_probe(*parts, protocol)
    right = (probe.head(test).argmax(1) == data.test.y).double()
    assert entry.estimate.mean == pytest.approx(right.mean().item())
    assert entry.best_on_test == pytest.approx(probe.best(test, data.test.y)[1])
    assert entry.over == "test examples"
    half = 1.96 * (right.var() / len(right)).sqrt().item()
    assert (entry.estimate.high - entry.estimate.low) / 2 == pytest.approx(half, rel=0.1)
    assert found.notes[-1] == "other for llf: resized from 10×10 to 8×8 and colours averaged to grey."


def test_all_networks_see_the_same_episodes_and_seeds_are_paired(home: Path) -> None:
    found = fallow.transfer(
        home / "comparison", home / "other.npz", shots=(1, 3), episodes=20, protocol="ridge", queries=5, workers=1
    ).findings
    assert (found.rows, found.reference) == (["llf", "normal"], "normal")
    means: dict[str, list[float]] = {}
    for method in found.rows:
        for seed in range(3):
            _, data, parts = seen(home, f"{method}-{seed}")
            y = torch.cat([data.train.y, data.val.y, data.test.y])
            drawn = episodes(y, 5, 3, 5, 20, 0)
            means.setdefault(method, []).append(learn(torch.cat(parts), drawn, "ridge").mean().item())
    entry, reference = (e for e in found.entries if e.column.shots == 3)
    assert list(entry.means.values()) == pytest.approx(means["llf"])
    assert list(reference.means.values()) == pytest.approx(means["normal"])
    assert entry.over == reference.over == "seeds"
    assert entry.difference == pytest.approx(paired(means["llf"], means["normal"]))
    assert reference.difference is None


def test_seeds_that_agree_by_chance_are_no_evidence() -> None:
    """Three of four right with one seed and with the other: known to a quarter, not exactly."""
    right = {Backbone("long", f"r{seed}", "last", seed): {"values": [1.0, 1.0, 1.0, 0.0]} for seed in (0, 1)}
    wrong = {Backbone("llf", f"r{seed}", "last", seed): {"values": [1.0, 1.0, 0.0, 0.0]} for seed in (0, 1)}
    found = _entry(asked.Asked("logistic"), "llf", TransferColumn("photos", "", None), wrong, right)
    assert found.difference is not None
    assert found.difference.mean == -0.25
    assert found.difference.p > 0.05
    assert found.estimate.low < 0.5 < found.estimate.high


def test_a_network_that_is_always_right_is_not_known_to_be_perfect() -> None:
    right = {Backbone("long", "r0", "last", 0): {"values": [1.0] * 18}}
    found = _entry(asked.Asked("logistic"), "long", TransferColumn("photos", "", None), right, None)
    assert found.estimate == pytest.approx((1.0, 0.824, 1.0), abs=0.001)


def test_rows_are_paired_by_the_seeds_that_both_have() -> None:
    """In a race the control runs on: its further seeds are no reason to take the luck of networks for a difference."""
    draw = np.random.default_rng(0)

    def networks(name: str, accuracies: list[float]) -> dict[Backbone, dict[str, list[float]]]:
        return {
            Backbone(name, f"r{seed}", "last", seed): {"values": (draw.random(4000) < mean).astype(float).tolist()}
            for seed, mean in enumerate(accuracies)
        }

    long, llf = networks("long", [0.7, 0.8, 0.7, 0.8, 0.7, 0.8]), networks("llf", [0.8, 0.8, 0.8, 0.7])
    found = _entry(asked.Asked("logistic"), "llf", TransferColumn("photos", "", None), llf, long)
    first = [fmean(each["values"]) for each in list(long.values())[:4]]
    assert found.over == "seeds"
    assert found.difference == paired(list(found.means.values()), first, grain=1 / 4000)
    assert found.difference.p > 0.05


def test_the_best_of_several_blocks_is_corrected_for_all_of_them() -> None:
    """Ten blocks, one of which is a little better by chance: alone p is 0.02."""

    def answers(more: int) -> list[dict[str, Any]]:
        """Every second example right; of the last block, so many more."""
        plain, last = [1.0, 0.0] * 50, [1.0] * (2 * more) + [1.0, 0.0] * (50 - more)
        return [{"layer": f"b{i}", "shots": None, "values": last if i == 9 else plain} for i in range(10)]

    networks = [Backbone("long", "r0", "last", 0, "long"), Backbone("llf", "r1", "last", 0, "llf")]
    found = find(
        asked.Asked("logistic", layers=None),
        {(networks[0], "photos"): answers(0), (networks[1], "photos"): answers(6)},
    )
    last = next(e for e in found.entries if (e.row, e.column.layer) == ("llf", "b9"))
    assert last.difference is not None
    assert last.difference.p < 0.05
    assert last.corrected == pytest.approx(min(1.0, 10 * last.difference.p))
    assert sentences(found)[0].endswith("points compared with long there, which may be chance.")
    seeds = [replace(e, over="seeds") if e.row == "long" else e for e in found.of(last.column)]
    assert _over(seeds) == "test examples (llf) and seeds (long)"
    assert _over(seeds[:1]) == "test examples"


def test_single_networks_are_paired_over_episodes(home: Path) -> None:
    runs = [home / f"comparison/runs/{name}" for name in ("llf-0", "normal-1")]
    found = fallow.transfer(runs, home / "other.npz", shots=2, episodes=30, queries=5, workers=1).findings
    values = []
    for name in ("llf-0", "normal-1"):
        _, data, parts = seen(home, name)
        drawn = episodes(torch.cat([data.train.y, data.val.y, data.test.y]), 5, 2, 5, 30, 0)
        values.append(learn(torch.cat(parts), drawn).tolist())
    entry = next(e for e in found.entries if e.row == "llf")
    assert entry.over == "episodes"
    assert entry.difference == pytest.approx(paired(*values))


def test_affines_are_adapted_episode_by_episode(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = Protocol(epochs=2)
    monkeypatch.setattr(affine, "CDFSL", short)
    monkeypatch.setattr(learn_affine, "__kwdefaults__", {"seed": 0, "protocol": short})
    found = fallow.transfer(
        home / "comparison/runs/llf-1", home / "other.npz", shots=2, adapt="affine", episodes=7, queries=5, workers=1
    )
    net, data, _ = seen(home, "llf-1")
    whole = Frozen(
        Predictor(home / "comparison/runs/llf-1", "last").model, (1, 8, 8),
        *(getattr(Predictor(home / "comparison/runs/llf-1").scaled, name) for name in ("mean", "std")),
    )  # fmt: skip
    x = torch.cat([whole.inputs(part.x) for part in (data.train, data.val, data.test)])
    drawn = episodes(torch.cat([data.train.y, data.val.y, data.test.y]), 5, 2, 5, 7, 0)
    expected = learn_affine(net, x, drawn, range(7), protocol=short)
    assert found.findings.entries[0].estimate.mean == pytest.approx(expected.mean().item())
    assert found.asked.words == "5-way episodes by cdfsl with the norms' affines"


def test_what_was_computed_is_found_again(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passed = []
    plain = frozen.features
    monkeypatch.setattr(frozen, "features", lambda *given: passed.append(1) or plain(*given))

    def again(name: str, **more: object) -> list[dict]:
        runs = home / "comparison/runs" / name
        return fallow.transfer(runs, home / "other.npz", out=tmp_path / "out", workers=1, **more).findings.describe()

    first = again("llf-0")
    assert len(passed) == 3  # train, val, test
    assert again("llf-0") == first
    again("llf-0", shots=1, episodes=5, queries=5)
    assert len(passed) == 3
    again("llf-1")
    assert len(passed) == 6


def test_more_adapted_episodes_cost_what_is_new(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = []
    monkeypatch.setattr(work, "adapt_some", lambda *given: done.append(given[3]) or [0.5] * len(given[3]))

    def again(shots: object, episodes: int) -> None:
        how = {"shots": shots, "adapt": "affine", "episodes": episodes, "queries": 5, "workers": 1}
        fallow.transfer(home / "comparison/runs/llf-0", home / "other.npz", out=tmp_path / "out", **how)

    again(1, 10)
    again((1, 2), 15)
    assert done[:2] == [range(5), range(5, 10)]
    assert sorted(some.start for some in done[2:]) == [0, 5, 10, 10]


def test_data_that_have_changed_are_other_data(home: Path, tmp_path: Path) -> None:
    def accuracy(classes: int) -> float:
        to = pictures(tmp_path / "same.npz", classes=classes)
        found = fallow.transfer(home / "comparison/runs/llf-0", to, out=tmp_path / "out", workers=1)
        return found.findings.entries[0].estimate.mean

    assert accuracy(6) != accuracy(2)
    assert accuracy(6) == accuracy(6)


def test_a_curve_over_all_blocks(home: Path, run: Run) -> None:
    words = ["transfer", home / "comparison/runs/llf-1", "--to", home / "other.npz", "--layer", "all", "--workers", 1]
    found = run("--quiet", *words, "--protocol", "neighbours", "--json")
    assert found.err == ""
    results = json.loads(found.out)["results"]
    assert [each["layer"] for each in results] == ["conv1", "conv2", "conv3", "conv4", "dense"]
    page = Path("transfers/llf-1/transfer.html").read_text()
    assert "Which layer" in page
    assert "<script" not in page
    one = fallow.transfer(
        home / "comparison/runs/llf-1", home / "other.npz", layer="conv2", protocol="neighbours", workers=1
    )
    assert one.findings.entries[0].estimate.mean == results[1]["mean"]


def test_models_by_name_and_with_weights(home: Path, run: Run) -> None:
    Path("mine.py").write_text("from fallow.models import MLP\ndef net(shape): return MLP(shape, 3, hidden=(6,))\n")
    weights = home / "comparison/runs/llf-1/last.safetensors"
    small = pictures(home / "small.npz", side=8, channels=1)
    out = run("transfer", "mine:net", home / "comparison/runs/llf-1", "--to", small, "--workers", 1, "--quiet").done()
    assert "mine:net" in out
    assert "report: transfers/mine_net/transfer.html" in out
    for to in (small, pictures(home / "colour.npz", side=8)):
        loaded = ("transfer", "scnn:width=4,dense=8", "--weights", weights, "--to", to, "--workers", 1, "--quiet")
        assert "scnn:width=4,dense=8" in run(*loaded).done()


def test_bad_requests_are_refused_in_one_line(home: Path, run: Run) -> None:
    llf, to = home / "comparison/runs/llf-1", ["--to", home / "other.npz", "--workers", 1]
    dense = home / "dense"
    if not dense.exists():
        x, y = torch.rand(12, 1, 16, 16), torch.arange(2).repeat(1536).view(12, 16, 16)
        fallow.fit("unet:width=2", (x, y), target="dense", epochs=1, generations=1, out=dense)
    np.savez(home / "numbers.npz", x=np.random.rand(40, 5).astype("float32"), y=np.random.rand(40))
    np.savez(home / "labels.npz", x=np.random.rand(40, 5).astype("float32"), y=np.eye(3)[np.arange(40) % 3])
    np.savez(home / "features.npz", x=np.random.rand(40, 5).astype("float32"), y=np.arange(40) % 2)
    for words, line in (
        ([llf], "there is no data to transfer to: fallow transfer RUN --to DATA"),
        ([llf, *to, "--shots", "1", "--ways", 7], "other: there are 6 classes: 7-way episodes need 7"),
        (
            [llf, *to, "--shots", "20"],
            "other: class '0' has 24 images: 20 shots and 15 queries need 35; take fewer, or leave the class out",
        ),
        ([llf, "--to", home / "features.npz"], "examples have shape 5 and the network takes 1×8×8: only images"),
        ([llf, "--to", home / "labels.npz"], "holds labels: transfer tells classes apart, or predicts numbers"),
        ([llf, *to, "--to", home / "numbers.npz"], "numbers: transfer to one kind at a time"),
        ([llf, "--to", home / "numbers.npz", "--shots", 1], "numbers holds numbers, and episodes tell classes apart"),
        ([llf, "--to", home / "numbers.npz", "--protocol", "seal"], "seal tells classes apart: take ridge or neighb"),
        ([dense, *to], "the model ends in a Conv2d: features are what a linear layer at the end sees"),
        ([llf, *to, "--layer", "conv9"], "unknown block 'conv9': did you mean"),
        ([llf, *to, "--protocol", "seal", "--shots", "1"], "seal is a probe: leave --shots out"),
        ([llf, *to, "--protocol", "cdfsl"], "cdfsl is for episodes: say of how many shots"),
        ([llf, *to, "--protocol", "logistik"], "unknown protocol 'logistik': did you mean 'logistic'?"),
        ([llf, *to, "--adapt", "affine", "--protocol", "ridge"], "--adapt affine fine-tunes norms in episodes"),
        ([llf, *to, "--adapt", "all", "--shots", "1"], "adapt is 'all': give affine, or leave it out"),
        ([llf, *to, "--shots", "one"], "shots is 'one': whole numbers"),
        ([llf, *to, "--shots", "0"], "shots is 0"),
        ([llf, *to, "--score", "first"], "score is 'first': give last or best"),
        ([llf, *to, "--weights", "x.pt"], "--weights is for one model by its name, and there are 0"),
        ([llf, *to, "--val", 0], "needs examples for training, validation and testing"),
        (["resnet18:width=4", *to], "resnet18:width=4 has no weights of its own"),
        (["nowhere", *to], "nowhere is neither a folder of fallow train"),
        ([home, *to], "holds no run, or its run.json is damaged"),
        (["scnn:width=4,dense=9", *to, "--weights", llf / "last.safetensors"], "lacks dense."),
        ([llf, *to, "--out", home / "other.npz"], "is a file: --out needs a folder"),
    ):
        assert line in run("transfer", *words).refused()
    assert not Path("transfers").exists()


def test_numbers_are_probed_by_ridge_and_judged_by_r2(home: Path, run: Run) -> None:
    """How bright the middle is, told from the features of networks that learned digits."""
    draw = np.random.default_rng(0)
    x = draw.integers(0, 200, (90, 8, 8)).astype(np.uint8)
    np.savez(home / "bright.npz", x=x, y=x[:, 2:6, 2:6].mean((1, 2)) / 7)
    data, found = load(home / "bright.npz"), Predictor(home / "comparison/runs/llf-1", "last")
    net = Frozen(found.model, found.shape, found.scaled.mean, found.scaled.std)
    parts = [(net(part.x), part.y) for part in (data.train, data.val, data.test)]
    expected = linear_probe(*parts[:2], "ridge").score(*parts[2])
    runs = home / "comparison/runs"
    both = fallow.transfer([runs / "llf-1", runs / "normal-1"], home / "bright.npz", workers=1)
    entry = next(entry for entry in both.findings.entries if entry.row == "llf")
    assert (both.asked.protocol, both.findings.shown.words) == ("ridge", "R²")
    assert entry.estimate.mean == pytest.approx(expected, abs=1e-5)
    assert entry.difference is not None
    near = fallow.transfer(runs / "llf-1", home / "bright.npz", protocol="neighbours", workers=1).findings.entries[0]
    theirs = KNeighborsRegressor(5).fit(*(t.numpy() for t in parts[0]))
    assert near.estimate.mean == pytest.approx(theirs.score(*(t.numpy() for t in parts[2])), abs=1e-4)
    out = run("transfer", runs / "llf-1", "--to", home / "bright.npz", "--workers", 1, "--quiet").done()
    assert "test R²" in out
    assert "%" not in out.replace("95 %", "")


def test_tables_have_the_columns_that_the_network_was_trained_with(tmp_path: Path, run: Run) -> None:
    draw = np.random.default_rng(0)

    def table(name: str, wards: str = "ab", columns: str = "age,ward,cost") -> Path:
        rows = [f"{draw.normal():.4f},{draw.choice(list(wards))},{draw.normal():.4f}" for _ in range(40)]
        (tmp_path / name).write_text("\n".join([columns, *rows]) + "\n")
        return tmp_path / name

    fallow.fit("mlp:hidden=4", table("a.csv"), target="cost", generations=1, epochs=1, out=tmp_path / "run")
    to = ["--target", "cost", "--workers", 1, "--quiet", "--to"]
    assert "ridge probe" in run("transfer", tmp_path / "run", *to, table("b.csv")).done()
    said = run("transfer", tmp_path / "run", *to, table("c.csv", "ac")).refused()
    assert "the column 'ward' has other categories than the network was trained with" in said
    said = run("transfer", tmp_path / "run", *to, table("d.csv", columns="years,ward,cost")).refused()
    assert "the network was trained with the columns age, ward: give these" in said


def test_defaults_follow_from_what_is_asked() -> None:
    assert asked.Asked.of(None).protocol == "logistic"
    assert asked.Asked.of(None, [1]).episodes == 600
    assert asked.Asked.of(None, [1, 5, 1], adapt="affine") == asked.Asked("cdfsl", (1, 5), episodes=40, adapt="affine")
    with pytest.raises(RequestError, match="leave --layer out"):
        asked.Asked.of(None, [1], adapt="affine", layer="conv1")
