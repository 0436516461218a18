import json

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import spectral_norm, weight_norm

from fallow.base.errors import RequestError
from fallow.models import build
from fallow.weights import Partition, execution_order


class HeadFirst(nn.Module):
    """Registered in the wrong order, with a dropout, a counting buffer and a head that is called last."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(6, 2)
        self.unused = nn.Linear(3, 3)
        self.body2 = nn.Linear(5, 6)
        self.body1 = nn.Linear(4, 5)
        self.norm = nn.BatchNorm1d(5)
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("last", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.last = x.mean(0)
        x = F.dropout(torch.relu(self.norm(self.body1(x))), 0.5, training=True)
        return self.head(torch.relu(self.body2(x)))


class Transformer(nn.Module):
    """An embedding, a nested encoder with a final norm, and a head."""

    def __init__(self, depth: int = 3) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, depth, norm=nn.LayerNorm(8), enable_nested_tensor=False)
        self.head = nn.Linear(8, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.encoder(self.embed(tokens)).mean(1))


def sequential() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(),
        nn.Conv2d(4, 4, 3), nn.LayerNorm((4, 4, 4)), nn.ReLU(), nn.Flatten(),
        nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 2),
    )  # fmt: skip


def paths(partition: Partition) -> list[str]:
    return [block.path for block in partition.blocks]


@pytest.mark.parametrize(
    ("name", "shape", "options", "half", "late_starts"),
    [
        ("mlp", (9,), {"hidden": (4, 4, 4)}, 2, "hidden3.linear"),
        ("scnn", (1, 8, 8), {"width": 2, "dense": 4}, 2, "conv3.conv"),
        ("resnet18", (1, 8, 8), {"width": 2}, 4, "layer3.0.conv1"),
        ("resnet50", (1, 8, 8), {"width": 2}, 8, "layer3.1.conv1"),
    ],
)
def test_fallows_own_models(name, shape, options, half, late_starts):
    model = build(name, shape=shape, classes=3, **options)
    partition = Partition(model, 0.5)
    assert paths(partition) == list(model.blocks)
    assert next(iter(partition.late.modules)) == late_starts
    assert list(partition.head.modules) == ["head"]
    assert "head" in partition.late.modules
    everything = {id(p) for p in model.parameters()}
    early, late = ({id(p) for p in part.parameters} for part in (partition.early, partition.late))
    assert early | late == everything
    assert not early & late
    assert partition.early.numel + partition.late.numel == sum(p.numel() for p in model.parameters())
    assert partition.early.names == Partition(model, half).early.names
    traced = Partition(model, 0.5, inputs=torch.randn(2, *shape))
    assert list(traced.early.modules) == list(partition.early.modules)
    assert list(traced.late.modules) == list(partition.late.modules)


def test_the_stem_is_early_and_a_path_is_a_threshold():
    model = build("resnet18", shape=(1, 8, 8), classes=3, width=2)
    first = Partition(model, 1)
    assert set(first.early.modules) == {
        "conv1", "bn1", "layer1.0.conv1", "layer1.0.bn1", "layer1.0.conv2", "layer1.0.bn2",
    }  # fmt: skip
    assert Partition(model, "layer3").early.names == Partition(model, 4).early.names
    assert list(Partition(model, 8).late.modules) == list(Partition(model, "head").late.modules) == ["head"]
    assert "layer1.0.bn1" in Partition(model, "layer1.0.conv2").early.modules


def test_blocks_are_found_in_a_plain_sequential():
    partition = Partition(sequential(), 2)
    assert paths(partition) == ["0", "3", "7"]
    assert [block.output for block in partition.blocks] == ["2", "6", "8"]
    assert list(partition.early.modules) == ["0", "1", "3", "4"]
    assert list(partition.late.modules) == ["7", "9"]
    assert list(partition.head.modules) == ["9"]
    assert list(Partition(sequential(), "5").late.modules) == ["7", "9"]  # a layer without parameters


def test_wrappers_backbones_and_stacks_are_opened():
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.branch = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))

    class Backbone(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Linear(4, 4)
            self.stages = nn.ModuleList([nn.Sequential(Residual(), Residual()), nn.Sequential(Residual())])
            self.norm = nn.LayerNorm(4)

    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.backbone = Backbone()
            self.head = nn.Linear(4, 2)

    found = ["stem", "stages.0.0", "stages.0.1", "stages.1.0"]
    assert paths(Partition(Classifier())) == [f"backbone.{path}" for path in found]
    wrapped = nn.Module()
    wrapped.module = Classifier()
    assert paths(Partition(wrapped)) == [f"module.backbone.{path}" for path in found]
    assert Partition(Classifier(), 4).blocks[-1].modules == ("backbone.stages.1.0", "backbone.norm")

    wrapped.module = build("mlp", shape=(3,), classes=2, hidden=(4, 4))
    assert paths(Partition(wrapped)) == ["module.hidden1", "module.hidden2"]

    plain = nn.Module()
    plain.a, plain.b, plain.c = nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2)
    both = nn.Module()
    both.backbone, both.head = plain, nn.Linear(2, 2)
    assert paths(Partition(both)) == ["backbone.a", "backbone.b", "backbone.c"]


def test_a_module_called_blocks_is_no_declaration():
    model = nn.Module()
    model.patch = nn.Linear(2, 2)
    model.blocks = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model.head = nn.Linear(2, 2)
    assert paths(Partition(model)) == ["patch", "blocks.0", "blocks.1"]


def test_execution_order_beats_registration():
    model = HeadFirst().train()
    model.norm.eval()
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    random = torch.get_rng_state()
    partition = Partition(model, 1, inputs=torch.randn(3, 4, generator=torch.Generator().manual_seed(0)))
    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(buffers[name], buffer) for name, buffer in model.named_buffers())
    assert model.training
    assert not model.norm.training
    assert model.body1.training
    assert not any(module._forward_pre_hooks for module in model.modules())
    assert list(partition.early.modules) == ["", "body1", "norm"]
    assert list(partition.late.modules) == ["body2", "head", "unused"]
    assert list(partition.head.modules) == ["head"]
    assert paths(partition) == ["body1", "body2", "unused"]
    blind = Partition(model, 1)
    assert "head" in blind.early.modules


def test_hooks_go_even_when_the_forward_fails():
    model = HeadFirst()
    with pytest.raises(RuntimeError):
        Partition(model, 1, inputs=torch.randn(3, 5))
    assert model.training
    assert not any(module._forward_pre_hooks for module in model.modules())


@pytest.mark.parametrize("traced", [False, True])
def test_a_transformer_whose_projections_are_never_called(traced):
    model = Transformer()
    partition = Partition(model, 0.5, inputs=torch.zeros(2, 5, dtype=torch.long) if traced else None)
    assert paths(partition) == ["embed", *(f"encoder.layers.{i}" for i in range(3))]
    assert all(path.startswith(("embed", "encoder.layers.0.")) for path in partition.early.modules)
    assert "encoder.layers.0.self_attn.out_proj" in partition.early.modules
    assert list(partition.late.modules)[-2:] == ["encoder.norm", "head"]
    bare = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 4, enable_nested_tensor=False)
    assert paths(Partition(bare)) == ["layers.0", "layers.1", "layers.2", "layers.3"]


def test_inputs_may_be_several():
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.b, self.a = nn.Linear(2, 2), nn.Linear(2, 2)

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return self.b(self.a(x) + y)

    x = torch.zeros(1, 2)
    for inputs in ((x, x), {"x": x, "y": x}):
        assert execution_order(Two(), inputs) == {"": 0, "a": 1, "b": 2}


def test_a_predicate_chooses_layers():
    partition = Partition(sequential(), lambda path, layer: isinstance(layer, nn.Conv2d))
    assert list(partition.early.modules) == ["0", "3"]
    assert list(partition.late.modules) == ["1", "4", "7", "9"]


def test_table_and_description():
    partition = Partition(build("mlp", shape=(8,), classes=4, hidden=(16, 1024)), 1)
    table = str(partition).splitlines()
    assert table[0].split() == ["part", "layers", "tensors", "parameters", "share"]
    assert table[2].split()[:4] == ["late", "hidden2.linear", "…", "head"]
    assert "21,508" in table[2]
    assert (
        len({line.index(word) + len(word) for line, word in zip(table, ["share", "0.7%", "99.3%"], strict=True)}) == 1
    )
    described = json.loads(json.dumps(partition.describe()))
    assert described["blocks"] == ["hidden1", "hidden2"]
    assert described["early"] == {"layers": ["hidden1.linear"], "tensors": 2, "parameters": 144}
    assert described["head"]["parameters"] == 4 * 1024 + 4


def test_tied_parameters():
    model = sequential()
    model[9] = nn.Linear(8, 8)
    model.append(nn.Linear(8, 8))
    model[10].weight = model[9].weight
    partition = Partition(model, 1)
    assert partition.late.names.count("9.weight") == 1
    assert "10.weight" not in partition.late.names
    assert partition.late.numel == sum(p.numel() for p in model[3:].parameters())
    with pytest.raises(RequestError, match=r"9\.weight \(early\) and 10\.weight \(late\) are tied"):
        Partition(model, "10")


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ("laeyr3", "unknown module 'laeyr3': did you mean 'layer3'"),
        (0, "split=0 does not fit a model of 8 blocks: 1 to 8 would"),
        (9, "split=9 does not fit a model of 8 blocks"),
        (-1, "split=-1"),
        (0.0, "between 0 and 1"),
        (1.0, "between 0 and 1"),
        (float("nan"), "between 0 and 1"),
        ("conv1", "leaves no early layer"),
        (lambda path, layer: True, "leaves no late layer"),
    ],
)
def test_wrong_splits_say_what_would_be_right(split, message):
    with pytest.raises(RequestError, match=message) as caught:
        Partition(build("resnet18", shape=(1, 8, 8), classes=3, width=2), split)
    assert "\n" not in str(caught.value)


def test_models_that_cannot_be_split():
    with pytest.raises(RequestError, match="has no parameters"):
        Partition(nn.ReLU())
    with pytest.raises(RequestError, match="pass one batch"):
        Partition(nn.Sequential(nn.LazyLinear(3), nn.Linear(3, 2)))
    with pytest.raises(RequestError, match="leaves no late layer"):
        Partition(nn.Linear(2, 2), 0.5)


def test_a_small_fraction_is_one_block():
    assert list(Partition(sequential(), 0.01).early.modules) == ["0", "1"]


def test_auto_cuts_known_models_as_the_papers_do() -> None:
    resnet = build("resnet50", shape=(1, 8, 8), classes=3, width=2)
    assert Partition(resnet, "auto").early.names == Partition(resnet, "layer3").early.names
    assert Partition(resnet, "auto").early.names != Partition(resnet, 0.5).early.names
    wrapped = nn.Sequential(resnet)
    assert Partition(wrapped, "auto").early.names == [f"0.{name}" for name in Partition(resnet, "auto").early.names]
    mlp = build("mlp", shape=(8,), classes=4)
    assert Partition(mlp, "auto").early.names == Partition(mlp, 0.5).early.names
    assert Partition(sequential(), "auto").early.names == Partition(sequential(), 0.5).early.names


@pytest.mark.parametrize("wrap", [weight_norm, spectral_norm])
def test_a_parametrised_weight_belongs_to_its_layer(wrap) -> None:
    """torch keeps it in a module of its own, inside the layer: the head is the layer, its bias included."""
    net = sequential()
    plain = Partition(net, 0.5)
    head = next(iter(plain.head.modules))
    wrap(net.get_submodule(head))
    parts = Partition(net, 0.5)
    assert paths(parts) == paths(plain)
    assert next(iter(parts.head.modules)) == head
    assert f"{head}.bias" in parts.head.names
    assert set(parts.head.parameters) == set(net.get_submodule(head).parameters())


def test_models_that_cannot_be_cut_say_so_in_words() -> None:
    with pytest.raises(RequestError, match=r"no late layer with parameters \(layers: the model itself\)"):
        Partition(nn.Linear(2, 2))
    with pytest.raises(RequestError, match="the model has no weight matrix, and so no blocks"):
        Partition(nn.Sequential(nn.LayerNorm(2), nn.ReLU(), nn.LayerNorm(2)))
    with pytest.raises(RequestError, match=r"a script of torch\.jit"):
        Partition(torch.jit.script(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))), inputs=torch.zeros(1, 2))
