"""Networks of other libraries, with small stand-ins that are called as the real ones are."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fallow.base.errors import RequestError, WorkError
from fallow.models import Foreign, Inputs, build
from fallow.models.libraries import logits_of
from fallow.weights import Partition

MEAN, STD = [0.2, 0.4, 0.6], [0.1, 0.2, 0.3]
SHAPE = (3, 16, 16)


class Net(nn.Module):
    """Two convolutions and a head; ``answer`` makes of the logits what a library returns."""

    def __init__(self, classes: int, channels: int = 3, answer: Any = lambda logits: logits) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(channels, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.AdaptiveAvgPool2d(1))
        self.classifier = nn.Linear(4, classes)
        self.answer = answer

    def forward(self, x: Tensor) -> Any:
        return self.answer(self.classifier(self.body(x).flatten(1)))


def install(monkeypatch: pytest.MonkeyPatch, name: str, **held: Any) -> ModuleType:
    library = ModuleType(name)
    vars(library).update(held)
    monkeypatch.setitem(sys.modules, name, library)
    return library


@pytest.fixture
def calls() -> list[Any]:
    return []


@pytest.fixture
def transformers(monkeypatch: pytest.MonkeyPatch, calls: list[Any]) -> None:
    def config(name: str, **options: Any) -> Any:
        if name == "nobody/nothing":
            raise OSError("nobody/nothing is not a model\nand a long explanation")
        calls.append(("config", name, options))
        return SimpleNamespace(num_channels=3, image_size=16, labels=options["num_labels"])

    def answer(logits: Tensor) -> Any:
        return SimpleNamespace(loss=None, logits=logits)

    def pretrained(name: str, *, config: Any, **options: Any) -> nn.Module:
        calls.append(("weights", name, options))
        return Net(config.labels, answer=answer)

    def processor(name: str, **options: Any) -> Any:
        if name == "plain/net":
            raise OSError("no preprocessor_config.json")
        return {"size": {"shortest_edge": 20}, "crop_size": {"height": 18}, "image_mean": MEAN, "image_std": STD}, {}

    install(
        monkeypatch,
        "transformers",
        AutoConfig=SimpleNamespace(from_pretrained=config),
        AutoModelForImageClassification=SimpleNamespace(
            from_pretrained=pretrained, from_config=lambda config: Net(config.labels, answer=answer)
        ),
        ImageProcessingMixin=SimpleNamespace(get_image_processor_dict=processor),
    )


@pytest.mark.usefixtures("transformers")
def test_hugging_face(calls, tmp_path):
    model = build("hf:some/net:dropout=0.1", shape=SHAPE, classes=5)
    assert model(torch.randn(2, *SHAPE)).shape == (2, 5)
    assert model.inputs == Inputs(18, tuple(255 * m for m in MEAN), tuple(255 * s for s in STD))
    place = {"local_files_only": False}
    assert calls == [
        ("config", "some/net", {"num_labels": 5, "dropout": 0.1} | place),
        ("weights", "some/net", {"ignore_mismatched_sizes": True, "use_safetensors": True} | place),
    ]
    assert build("hf:plain/net", shape=SHAPE, classes=5).inputs is None
    calls.clear()
    build(f"hf:{tmp_path}", shape=SHAPE, classes=5, pretrained=False)  # a folder: no network, and here no weights
    assert calls == [("config", str(tmp_path), {"num_labels": 5, "local_files_only": True})]


@pytest.mark.usefixtures("transformers")
def test_wrapping_keeps_blocks_head_and_grey_images():
    model = build("hf:some/net", shape=(1, 16, 16), classes=5)
    x = torch.randn(2, 1, 16, 16)
    torch.testing.assert_close(model(x), model.network(x.expand(-1, 3, -1, -1)).logits)
    assert model.inputs.mean == pytest.approx((0.4 * 255,))
    assert list(Partition(model, 1, inputs=x).head.modules) == ["network.classifier"]
    assert [block.path for block in Partition(model, 1, inputs=x).blocks] == ["network.body.0", "network.body.2"]


def test_timm(monkeypatch, calls):
    def create_model(name: str, **options: Any) -> nn.Module:
        calls.append((name, options))
        net = Net(options["num_classes"], options["in_chans"])
        net.pretrained_cfg = {"input_size": (3, 24, 24), "mean": MEAN, "std": STD}
        return net

    install(monkeypatch, "timm", create_model=create_model)
    model = build("timm:tiny:img_size=16", shape=SHAPE, classes=5)
    assert model(torch.randn(2, *SHAPE)).shape == (2, 5)
    assert model.inputs.size == 24
    grey = build("timm:tiny:pretrained=false", shape=(1, 16, 16), classes=5)
    assert grey(torch.randn(2, 1, 16, 16)).shape == (2, 5)
    assert grey.inputs.mean == pytest.approx((0.4 * 255,))
    assert build("timm:tiny", shape=(4, 16, 16), classes=5).inputs is None
    options = {"pretrained": True, "num_classes": 5, "in_chans": 3, "img_size": 16}
    assert calls[:2] == [("tiny", options), ("tiny", {"pretrained": False, "num_classes": 5, "in_chans": 1})]
    with pytest.raises(RequestError, match="pretrained of timm:tiny cannot be 'maybe'"):
        build("timm:tiny:pretrained=maybe", shape=SHAPE, classes=5)


def test_torchvision(monkeypatch, calls):
    def get_model(name: str, *, weights: Any) -> nn.Module:
        calls.append((name, weights is not None))
        return nn.Sequential(nn.Conv2d(3, 4, 1)) if name == "conv" else Net(1000, answer=lambda logits: (logits, None))

    transforms = SimpleNamespace(crop_size=[28], mean=MEAN, std=STD)
    weights = SimpleNamespace(DEFAULT=SimpleNamespace(transforms=lambda: transforms))
    install(monkeypatch, "torchvision")
    install(monkeypatch, "torchvision.models", get_model=get_model, get_model_weights=lambda name: weights)
    model = build("torchvision:tiny", shape=SHAPE, classes=5)
    assert model(torch.randn(2, *SHAPE)).shape == (2, 5)  # the head is new, and of the tuple the first is taken
    assert model.inputs.size == 28
    build("torchvision:tiny", shape=SHAPE, classes=5, pretrained=False)
    assert calls == [("tiny", True), ("tiny", False)]
    with pytest.raises(RequestError, match="torchvision:conv ends in a Conv2d, not in a linear layer"):
        build("torchvision:conv", shape=SHAPE, classes=5)
    with pytest.raises(RequestError, match="the network takes 3 channels and the images have 4"):
        build("torchvision:tiny", shape=(4, 16, 16), classes=5)


@pytest.mark.usefixtures("transformers")
@pytest.mark.parametrize(
    ("spec", "shape", "message"),
    [
        ("hf:nobody/nothing", SHAPE, "hf:nobody/nothing cannot be built: OSError: nobody/nothing is not a model"),
        ("hf:", SHAPE, "hf: names no network: write hf:NAME"),
        ("hf:some/net", (64,), r"hf:some/net cannot take shape \(64,\): .*an image"),
        ("hf:some/net:depth", SHAPE, "'depth' in 'some/net:depth' is not a setting"),
        ("hf:some/net:classes=4", SHAPE, "follows from the data: leave it out"),
        ("hf:some/net:num_labels=4", SHAPE, "cannot be built: TypeError"),
    ],
)
def test_wrong_requests(spec, shape, message):
    with pytest.raises(RequestError, match=message) as caught:
        build(spec, shape=shape, classes=5)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "package"), [("hf", "transformers"), ("timm", "timm"), ("torchvision", "torchvision")]
)
def test_a_missing_library_is_named(monkeypatch, kind, package):
    class Missing:
        def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
            if name.partition(".")[0] == package:
                raise ModuleNotFoundError(f"No module named {name!r}", name=package)

    monkeypatch.setattr(sys, "meta_path", [Missing(), *sys.meta_path])
    monkeypatch.delitem(sys.modules, package, raising=False)
    with pytest.raises(RequestError, match=f"{kind}:net needs {package}: pip install {package}$"):
        build(f"{kind}:net", shape=SHAPE, classes=5)


def test_a_library_that_fails_to_import_is_named(monkeypatch, tmp_path):
    (tmp_path / "timm.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    with pytest.raises(RequestError, match="needs timm, which fails to import: operator torchvision::nms"):
        build("timm:net", shape=SHAPE, classes=5)


def test_what_networks_return():
    x = torch.ones(2)
    for output in (x, (x, 1), [x], {"logits": x}, {"out": x, "aux": 0 * x}, SimpleNamespace(logits=x)):
        assert logits_of(output) is x
    for output in ("text", {}, (), {"other": x}, None):
        with pytest.raises(WorkError, match=r"a tensor, or something with \.logits, is needed"):
            logits_of(output)


def test_a_factorys_hugging_face_model_is_unwrapped(monkeypatch):
    class Theirs(Net):
        pass

    Theirs.__module__ = "transformers.models.tiny"
    made = {"theirs": lambda classes: Theirs(classes, answer=lambda logits: SimpleNamespace(logits=logits))}
    install(monkeypatch, "my_factories", **made, mine=lambda classes: Net(classes))
    model = build("my_factories:theirs", shape=SHAPE, classes=5)
    assert isinstance(model, Foreign)
    assert model(torch.randn(2, *SHAPE)).shape == (2, 5)
    assert isinstance(build("my_factories:mine", shape=SHAPE, classes=5), Net)
