import subprocess
import sys

import pytest
import torch
from torch import nn

from fallow.base.errors import RequestError
from fallow.base.spec import parse
from fallow.models import MODELS, build, default

HERE = [name for name in MODELS if name != "minilm"]  # which needs an extra, and has a file of its own
IMAGES = ("scnn", "vgg16", "mobilenet", "resnet18", "resnet50", "wideresnet", "conv4", "resnet12", "lite0", "unet")
SHAPES = {"mlp": (3, 8), "resnet1d": (3, 20), "resnet3d": (2, 20, 8, 4), "autoencoder3d": (1, 8, 8, 8), "bag": (2, 40)}
SHAPES |= dict.fromkeys(IMAGES, (3, 16, 16))
DENSE = {"unet": nn.Conv2d, "autoencoder3d": nn.ConvTranspose3d}  # their heads: a class for every pixel
NARROW = {
    "mlp": {"hidden": (16, 16)},
    "scnn": {"width": 4, "dense": 16},
    "vgg16": {"width": 4, "dense": 16},
    "mobilenet": {"width": 4},
    "resnet18": {"width": 4},
    "resnet50": {"width": 4},
    "wideresnet": {"depth": 10, "widen": 1},
    "conv4": {"width": 4},
    "resnet1d": {"width": 4, "dense": 16},
    "resnet3d": {"width": 4, "dense": 16},
    "resnet12": {"width": 4},
    "lite0": {"pretrained": False},
    "unet": {"width": 4},
    "autoencoder3d": {"width": 4, "depth": 2},
    "bag": {"words": 8, "width": 4, "hidden": 8},
}
NORMED = {"lite0": "batch", "bag": "none"}  # what others have there is not to be chosen
BLOCKS = {"mlp": 2, "scnn": 5, "vgg16": 15, "mobilenet": 7, "resnet18": 8, "resnet50": 16, "wideresnet": 3}
BLOCKS |= {
    "conv4": 4,
    "resnet1d": 5,
    "resnet3d": 5,
    "resnet12": 4,
    "lite0": 17,
    "unet": 5,
    "autoencoder3d": 5,
    "bag": 2,
}


def narrow(name: str, **options) -> nn.Module:
    return build(name, shape=SHAPES[name], classes=5, **NARROW[name], **options)


def examples(name: str, count: int) -> torch.Tensor:
    if name == "bag":  # every word of it in both texts, or some would have no gradient
        segment, word = torch.arange(16) // 8, torch.arange(16) % 8
        return torch.stack([word, torch.ones_like(word), segment]).expand(count, -1, -1)
    return torch.randn(count, *SHAPES[name])


@pytest.mark.parametrize("name", HERE)
@pytest.mark.parametrize("norm", ["none", "batch", "layer"])
def test_logits_and_gradients(name, norm):
    if norm == "none" and "resnet" in name and name != "resnet12":
        with pytest.raises(RequestError, match="unknown norm 'none'"):
            narrow(name, norm=norm)
        return
    if name in NORMED and norm != NORMED[name]:
        with pytest.raises(RequestError, match=f"unknown setting of model {name} 'norm'"):
            narrow(name, norm=norm)
        return
    model = narrow(name) if name in NORMED else narrow(name, norm=norm)
    logits = model(examples(name, 4))
    assert logits.shape[:2] == (4, 5)
    assert (logits.ndim == 2) == (name not in DENSE)
    logits.square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())
    norms = [m for m in model.modules() if isinstance(m, nn.GroupNorm | nn.modules.batchnorm._BatchNorm)]
    assert bool(norms) == (norm != "none")
    assert all(isinstance(m, nn.GroupNorm) == (norm == "layer") for m in norms)


@pytest.mark.parametrize("name", HERE)
def test_blocks_run_in_order_and_cover_everything_but_stem_and_head(name):
    model = narrow(name)
    assert len(model.blocks) == BLOCKS[name]
    assert isinstance(model.head, DENSE.get(name, nn.Linear))
    calls = []
    for path, module in model.named_modules():
        module.register_forward_pre_hook(lambda *_, path=path: calls.append(path))
    model(examples(name, 2))
    assert [path for path in calls if path in model.blocks] == list(model.blocks)
    assert calls.index(model.blocks[-1]) < calls.index("head")
    outside = {
        parameter.partition(".")[0]
        for parameter, _ in model.named_parameters()
        if not any(parameter.startswith(block + ".") for block in model.blocks)
    }
    stems = {"resnet18": {"conv1", "bn1"}, "resnet50": {"conv1", "bn1"}, "wideresnet": {"conv1", "norm"}}
    stems["lite0"] = {"stem"}
    assert outside == stems.get(name, set()) | {"head"}
    registered = [path for path, module in model.named_modules() if module._parameters]
    first_calls = list(dict.fromkeys(path for path in calls if path in registered))
    assert registered == first_calls


@pytest.mark.parametrize(("name", "published"), [("resnet18", 11_689_512), ("resnet50", 25_557_032)])
def test_published_parameter_counts(name, published):
    with torch.device("meta"):
        model = build(name, shape=(3, 224, 224), classes=1000)
    assert sum(p.numel() for p in model.parameters()) == published


def test_resolution_follows_the_stem():
    sizes = {}
    for stem, side in [("small", 32), ("large", 32), ("auto", 64), ("auto", 65)]:
        model = build("resnet18", shape=(1, side, side), classes=2, width=2, stem=stem)
        model.layer1.register_forward_hook(lambda m, x, y, key=(stem, side): sizes.__setitem__(key, y.shape[-1]))
        model(torch.randn(2, 1, side, side))
    assert sizes == {("small", 32): 32, ("large", 32): 8, ("auto", 64): 64, ("auto", 65): 17}


def test_signals_get_one_dimensional_convolutions():
    model = build("scnn", shape=(2, 50), classes=3, width=4, dense=8, norm="batch", dropout=0.5)
    assert model(torch.randn(5, 2, 50)).shape == (5, 3)
    assert isinstance(model.conv1.conv, nn.Conv1d)
    assert isinstance(model.conv1.norm, nn.BatchNorm1d)
    assert model.dense.dropout.p == 0.5


def test_widths_of_scnn_are_those_of_the_paper():
    model = build("scnn", shape=(3, 32, 32), classes=10)
    assert [model.get_submodule(f"conv{i}.conv").out_channels for i in (1, 2, 3, 4)] == [32, 32, 64, 64]
    assert model.dense.linear.weight.shape == (512, 64 * 8 * 8)


@pytest.mark.parametrize("init", ["he", "xavier", "torch"])
def test_initial_spread(init):
    model = build("scnn", shape=(3, 8, 8), classes=64, width=32, dense=256, norm="none", init=init)
    for layer, fan_in, fan_out in [(model.conv3.conv, 32 * 9, 64 * 9), (model.head, 256, 64)]:
        std = {
            "he": (2 / fan_in) ** 0.5,
            "xavier": (2 / (fan_in + fan_out)) ** 0.5,
            "torch": (1 / 3 / fan_in) ** 0.5,
        }
        assert layer.weight.std().item() == pytest.approx(std[init], rel=0.05)
        assert (layer.bias.abs().sum() == 0) == (init != "torch")
        assert (layer.weight.abs().max() > fan_in**-0.5) == (init != "torch")  # torch's is uniform


def test_initialise_draws_one_layer_and_resets_a_norm():
    model = narrow("resnet18")
    model(torch.randn(4, 3, 16, 16))
    with torch.no_grad():
        model.bn1.weight.fill_(3)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.initialise(model.bn1)
    model.initialise(model.layer2[0].conv1)
    after = model.state_dict()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    reset = {f"bn1.{name}" for name in ("weight", "running_mean", "running_var", "num_batches_tracked")}
    assert changed == reset | {"layer2.0.conv1.weight"}
    assert after["bn1.weight"].eq(1).all()
    assert after["bn1.running_var"].eq(1).all()


def test_the_seed_decides_the_weights():
    def drawn(seed):
        torch.manual_seed(seed)
        return torch.cat([p.flatten() for p in narrow("scnn").parameters()])

    assert torch.equal(drawn(1), drawn(1))
    assert not torch.equal(drawn(1), drawn(2))


def test_settings_in_the_name():
    model = build("resnet18:width=2,norm=layer", shape=(1, 8, 8), classes=3)
    assert model.conv1.out_channels == 2
    assert isinstance(model.bn1, nn.GroupNorm)
    assert build("mlp:hidden=7", shape=(4,), classes=3).blocks == ("hidden1",)
    assert build("mlp:hidden=()", shape=(4,), classes=3).blocks == ()
    assert build("mlp:hidden=7,9", shape=(4,), classes=3, hidden=(5,)).hidden1.linear.out_features == 5


@pytest.mark.parametrize(
    ("name", "shape", "options", "message"),
    [
        ("scn", (1, 8, 8), {}, "unknown model 'scn': did you mean 'scnn'?"),
        ("scn:width=3", (1, 8, 8), {}, "unknown model 'scn': did you mean 'scnn'?"),
        ("scnn", (1, 8, 8), {"widht": 3}, "unknown setting of model scnn 'widht': did you mean 'width'?"),
        ("scnn", (64,), {}, r"a signal \(C, L\) or an image \(C, H, W\) would fit"),
        ("scnn", (1, 3, 3), {}, "at least 4 pixels"),
        ("resnet18", (3, 100), {}, r"an image \(C, H, W\) would fit"),
        ("mlp", (), {}, "every size should be at least 1"),
        ("mlp", (4, 0), {}, "every size should be at least 1"),
        ("scnn", (1, 8, 8), {"norm": "bach"}, "did you mean 'batch'"),
        ("scnn", (1, 8, 8), {"init": "He"}, "did you mean 'he'"),
        ("resnet18", (1, 8, 8), {"stem": "big"}, "unknown stem 'big'"),
        ("scnn:width=16,oops", (1, 8, 8), {}, "width of model scnn cannot be '16,oops': something like 32"),
        ("scnn:width=0", (1, 8, 8), {}, "width of model scnn cannot be 0"),
        ("scnn:dropout=a", (1, 8, 8), {}, "something like 0.0"),
        ("scnn:dropout=1", (1, 8, 8), {}, "from 0 to below 1"),
        ("mlp:hidden=(64,x)", (4,), {}, "hidden of model mlp cannot be"),
        ("mlp:norm=1", (4,), {}, "something like 'none'"),
        ("mlp:", (4,), {}, "is not a setting"),
    ],
)  # fmt: skip
def test_wrong_requests_say_what_would_be_right(name, shape, options, message):
    with pytest.raises(RequestError, match=message) as caught:
        build(name, shape=shape, classes=3, **options)
    assert "\n" not in str(caught.value)


def test_defaults():
    assert default((64,)) == "mlp"
    assert default((1, 28, 28)) == default((2, 128)) == "scnn"
    assert default((4, 2, 3, 3)) == "mlp"
    assert default((1, 3)) == "mlp"  # too short to pool twice


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("a:x=1e-3,y=(1, 2),z=[3,4]", ("a", {"x": 1e-3, "y": (1, 2), "z": [3, 4]})),
        ("a:x='b,c',y=true,z=False", ("a", {"x": "b,c", "y": True, "z": False})),
        ("a: x = 1 , y = b ", ("a", {"x": 1, "y": "b"})),
        ("a:path=/tmp/x:y", ("a", {"path": "/tmp/x:y"})),
    ],
)
def test_parse(text, parsed):
    assert parse(text) == parsed


@pytest.mark.parametrize("text", ["", ":x=1", "a:x", "a:=1", "a:x=", "a:x=1,x=2", "a:1=2"])
def test_parse_refuses(text):
    with pytest.raises(RequestError):
        parse(text)


def test_importing_the_models_imports_only_torch():
    heavy = ("safetensors", "scipy", "sklearn", "kornia", "matplotlib", "rich")
    code = f"import sys, fallow.models; print([name for name in {heavy} if name in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == "[]"
