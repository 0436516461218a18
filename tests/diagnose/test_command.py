from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from safetensors.torch import load_file, save_file

import fallow
from fallow.cli.main import main
from fallow.diagnose.measures import MEASURES
from fallow.diagnose.run import diagnose, spearman
from fallow.diagnose.subjects import subjects
from tests.comparison import small


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two small runs, one of which kept its generations."""
    folder = tmp_path_factory.mktemp("runs")
    for method in ("normal", "llf"):
        fallow.fit(
            "mlp:hidden=8,8", "digits", method, train=100, generations=2, epochs=2, out=folder / method,
            keep_generations=method == "llf",
        )  # fmt: skip
    return [folder / "normal", folder / "llf"]


def ask(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["fallow", "diagnose", *map(str, words)])
    with pytest.raises(SystemExit) as end:
        main()
    return int(end.value.code or 0), *capsys.readouterr()


def test_everything_of_two_runs_in_one_page(runs, tmp_path: Path, monkeypatch, capsys) -> None:
    code, out, _ = ask(monkeypatch, capsys, *runs, "--quick", "--out", tmp_path)
    assert code == 0
    assert "largest eigenvalue" in out
    assert out.endswith(f"report: {tmp_path / 'diagnosis.html'}\n")
    page = (tmp_path / "diagnosis.html").read_text()
    assert re.search(r"does better on test than|largest eigenvalue \S+, ", page)  # the sentence at the top
    assert "fallow diagnose" in page
    for name, measure in MEASURES.items():
        assert measure.title in page
        whole = ElementTree.parse(tmp_path / "figures" / f"{name}.svg").getroot()
        assert whole.tag == "{http://www.w3.org/2000/svg}svg"
        assert measure.title in (whole.findtext("{http://www.w3.org/2000/svg}title") or "")
    record = json.loads((tmp_path / "diagnosis.json").read_text())
    assert set(record["measures"]) == set(MEASURES)
    assert {subject["method"] for subject in record["subjects"]} == {"normal", "llf"}
    assert record["failures"] == {}


def test_generations_are_overlaid_in_order(runs, tmp_path: Path, monkeypatch, capsys) -> None:
    code, out, _ = ask(
        monkeypatch, capsys, runs[1], "--generations", "--what", "depth", "--json", "--out", tmp_path, "--quick"
    )
    assert code == 0
    assert [s["name"] for s in json.loads(out)["subjects"]] == ["llf, generation 1", "llf, generation 2"]
    code, _, err = ask(monkeypatch, capsys, runs[0], "--generations", "--out", tmp_path)
    assert code == 2
    assert "--keep-generations" in err


def test_the_model_is_the_one_that_was_trained(runs) -> None:
    subject = subjects([runs[0]])[0]
    kept = load_file(runs[0] / "last.safetensors")
    assert all(torch.equal(value, kept[f"network.{name}"]) for name, value in subject.model.state_dict().items())
    with torch.no_grad():
        accuracy = (subject.model(subject.test[0]).argmax(1) == subject.test[1]).double().mean()
    assert float(accuracy) == pytest.approx(subject.accuracy, abs=1e-6)


def test_of_a_comparison_what_raced_is_measured(tmp_path: Path, monkeypatch) -> None:
    """Not the winner that was trained again on all labels: those are other data, and its method is there already."""
    monkeypatch.setattr("fallow.comparison.yardsticks.measured", lambda *_, **__: [])
    small.ran(small.plan(small.arrays(tmp_path / "a.npz"), "ema", seeds=1), tmp_path / "out")
    assert (tmp_path / "out" / "runs" / "winner" / "result.json").exists()
    (tmp_path / "out" / "runs" / "a-mlp-ema-seed0-labels12").mkdir()
    (tmp_path / "out" / "runs" / "a-mlp-ema-seed0-labels12" / "result.json").write_text("{}")
    assert sorted(subject.name for subject in subjects([tmp_path / "out"])) == ["ema", "long", "normal"]


def test_what_cannot_be_measured_is_named_and_the_rest_is_measured(runs) -> None:
    broken, whole = subjects(runs)
    with torch.no_grad():
        next(broken.model.parameters()).fill_(float("nan"))
    found = diagnose([broken, whole], ["margins", "weights"], quick=True)
    assert set(found.records["margins"]) == {whole.name}
    assert "not finite" in found.failures["margins"][broken.name]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere"], "there is no folder nowhere"),
        (["RUN", "--what", "dpeth"], "did you mean 'depth'"),
        (["RUN", "--weights", "first"], "last or best"),
        (["RUN", "RUN"], "is given twice"),
        (["RUN", "--examples", "0"], "a whole number from 1"),
        (["RUN", "--data", "synthetic"], "has changed since"),
    ],
)
def test_a_wrong_request_is_one_line(words, said, runs, monkeypatch, capsys) -> None:
    code, out, err = ask(monkeypatch, capsys, *(runs[0] if word == "RUN" else word for word in words))
    assert (code, out) == (2, "")
    assert said in err
    assert len(err.strip().splitlines()) == 1


def test_a_diverged_model_is_refused_by_the_command(runs, tmp_path: Path, monkeypatch, capsys) -> None:
    copy = tmp_path / "broken"
    copy.mkdir()
    for name in ("run.json", "result.json"):
        (copy / name).write_bytes((runs[0] / name).read_bytes())
    weights = load_file(runs[0] / "last.safetensors")
    save_file(
        {name: torch.full_like(value, float("inf")) for name, value in weights.items()}, copy / "last.safetensors"
    )
    code, _, err = ask(monkeypatch, capsys, copy, "--quick", "--out", tmp_path / "out")
    assert code == 2
    assert "not finite" in err


def test_spearman_is_exact_for_few_pairs() -> None:
    assert spearman([1, 2, 3], [3, 2, 1]) == (-1.0, pytest.approx(2 / 6))
    rho, p = spearman([1, 2, 3, 4, 5], [2, 1, 4, 3, 5])
    assert rho == pytest.approx(0.8)
    assert p == pytest.approx(16 / 120)  # ±: 1, 0.9 (4 orders) and 0.8 (3 orders)
