import pickle

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from fallow.base.errors import RequestError
from fallow.models import build, load_weights


def net(classes: int = 3) -> nn.Module:
    return build("scnn", shape=(1, 8, 8), classes=classes, width=2, dense=4, norm="batch")


def same(a: nn.Module, b: nn.Module) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


@pytest.mark.parametrize("wrapped", ["plain", "module.", "state_dict", "model", "model.net."])
def test_torch_files(tmp_path, wrapped):
    source, target = net(), net()
    weights = dict(source.state_dict())
    if wrapped.endswith("."):
        weights = {wrapped + name: tensor for name, tensor in weights.items()} | {"loss.weight": torch.ones(3)}
    content = {wrapped: weights, "epoch": 3} if wrapped in ("state_dict", "model") else weights
    torch.save(content, tmp_path / "weights.pt")
    report = load_weights(target, tmp_path / "weights.pt")
    assert same(source, target)
    assert report.matched == list(source.state_dict())
    assert not report.missing
    assert report.unexpected == (["loss.weight"] if wrapped.endswith(".") else [])


def test_the_prefix_with_most_matches_wins(tmp_path):
    source, target = net(), net()
    weights = {f"student.{name}": tensor for name, tensor in source.state_dict().items()}
    torch.save(weights | {"head.bias": torch.full((3,), 7.0), "teacher.head.bias": torch.ones(3)}, tmp_path / "w.pt")
    report = load_weights(target, tmp_path / "w.pt")
    assert same(source, target)
    assert report.unexpected == ["teacher.head.bias"]


def test_safetensors_with_another_head(tmp_path):
    source, target = net(), net(classes=7)
    head = target.head.weight.clone()
    weights = source.state_dict()
    del weights["conv1.conv.weight"]
    save_file(weights | {"extra": torch.ones(1)}, tmp_path / "w.safetensors")
    report = load_weights(target, tmp_path / "w.safetensors")
    assert report.missing == ["conv1.conv.weight"]
    assert report.unexpected == ["extra"]
    assert report.wrong_shape == ["head.weight (3, 4) for (7, 4)", "head.bias (3,) for (7,)"]
    assert torch.equal(target.head.weight, head)
    assert torch.equal(target.dense.linear.weight, source.dense.linear.weight)
    lines = str(report).splitlines()
    assert len(lines) <= 6
    assert lines[4].split()[:3] == ["wrong", "shape", "2"]


class Evil:
    def __reduce__(self):
        return (print, ("code ran",))


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_refused_files(tmp_path, capsys):
    def refused(name: str, match: str) -> None:
        with pytest.raises(RequestError, match=match) as caught:
            load_weights(net(), tmp_path / name)
        assert "\n" not in str(caught.value)

    refused("none.pt", "no file")
    torch.save({"other.weight": torch.ones(2)}, tmp_path / "other.pt")
    refused("other.pt", "nothing in .* fits this model: it has names such as 'other.weight'")
    torch.save({"state_dict": net().state_dict(), "hook": Evil()}, tmp_path / "evil.pt")
    refused("evil.pt", "could run code")
    (tmp_path / "evil.pkl").write_bytes(pickle.dumps({"w": Evil()}))
    refused("evil.pkl", "could run code|cannot be read")
    (tmp_path / "text.pt").write_text("hello")
    refused("text.pt", "could run code|cannot be read")
    (tmp_path / "text.safetensors").write_text("hello")
    refused("text.safetensors", "cannot be read")
    torch.save([1, 2], tmp_path / "list.pt")
    refused("list.pt", "nothing in")
    assert "code ran" not in capsys.readouterr().out
