"""Every method × every target: it trains and resumes to the bit, or it is refused with a reason."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import fallow
from fallow.core import loop
from fallow.data import Data, load
from fallow.evaluate.score import key_of
from fallow.methods import REGISTRY, build
from tests.contract.catalogue import ADVICE, SMALL
from tests.contract.test_resumes import Killed, same

pytestmark = [ADVICE, pytest.mark.filterwarnings("ignore:implicit-decay leaves")]

SPECS = [
    *(SMALL.get(name, name) for name, kind in REGISTRY.items() if not kind.tasks),
    "seal:ascent=adaptive",
    "balanced:by=sampling",
    "llf+ema",
]
MODELS = {
    "numbers": "mlp:hidden=8,8,norm=batch",
    "labels": "scnn:width=2,dense=8,norm=batch",
    "dense": "unet:width=2",
}
SETTINGS = {"generations": 2, "epochs": 4, "batch_size": 16, "lr": 0.05, "seed": 4}
REFUSED = {  # nothing else may be
    "numbers": {"balanced", "fixmatch", "confidence", "seal:ascent=adaptive", "balanced:by=sampling"},
    "labels": {"fixmatch", "confidence", "seal:ascent=adaptive", "balanced:by=sampling"},
    "dense": {"fixmatch", "confidence", "seal:ascent=adaptive", "balanced:by=sampling", "kels", "probe", "lp-ft"},
}  # fmt: skip


def examples(kind: str) -> Data:
    """Noise, of which the brightness of each channel, or of each pixel, is to be told."""
    x = torch.randn(48, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    x += x.mean((2, 3), keepdim=True) * 8
    level = x.mean((2, 3))[:, :2]
    answers = {
        "numbers": 5 + 3 * level[:, 0],
        "labels": (level > 0).float(),
        "dense": (x[:, 0] > 0).long(),
    }
    return load((x, answers[kind]), target=kind)


@pytest.fixture(scope="module", params=MODELS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def data(kind: str) -> Data:
    return examples(kind)


@pytest.fixture(scope="module")
def weights(kind: str, data: Data, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("weights") / "weights.pt"
    torch.save(fallow.fit(MODELS[kind], data, generations=1, epochs=1, seed=7).network.state_dict(), file)
    return file


@pytest.mark.parametrize("spec", SPECS)
def test_trains_and_resumes_or_is_refused(
    spec: str, kind: str, data: Data, weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    how = SETTINGS | ({"weights": weights} if any(part.pretrained for part in build(spec).parts) else {})

    def train(out: str, resume: bool = False) -> fallow.Result:
        return fallow.fit(MODELS[kind], data, spec, out=tmp_path / out, resume=resume, checkpoint_every=0, **how)

    if {spec, spec.partition(":")[0]} & REFUSED[data.target.kind]:
        with pytest.raises(fallow.RequestError) as refusal:
            train("refused")
        assert str(refusal.value).startswith(build(spec).name)
        assert "\n" not in str(refusal.value)
        return
    whole = train("whole")
    assert len(whole.history) == 1 or whole.history[-1]["train_loss"] < whole.history[0]["train_loss"]
    assert whole.last[key_of("test", data.target.metric().name)] == pytest.approx(judged(whole, data), rel=1e-4)
    look, seen = loop.look, 0

    def stopping(ctx) -> float:
        nonlocal seen
        seen, wake = seen + 1, look(ctx)
        if seen == max(1, whole.steps * 5 // 8):  # in the second generation, where there is one
            raise Killed
        return wake

    monkeypatch.setattr(loop, "LIVE", 0.0)  # look, and so save, after every step
    monkeypatch.setattr(loop, "look", stopping)
    with pytest.raises(Killed):
        train("stopped")
    monkeypatch.setattr(loop, "look", look)
    train("stopped", resume=True)
    assert same(tmp_path / "whole", tmp_path / "stopped")


def judged(result: fallow.Result, data: Data) -> float:
    """The metric of the returned model on the raw test examples."""
    with torch.no_grad():
        output = result.model.eval()(data.test.x)
    return data.target.metric().compute(data.target.decode(output).numpy(), data.test.y.numpy())
