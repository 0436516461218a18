import copy
import math

import pytest
import torch
from scipy.stats import kstest, norm
from torch import nn

from fallow.base.errors import RequestError
from fallow.models import build
from fallow.weights import ByLayer, Fresh, Partition, Recorded, own_initialiser, redraw


def scnn(**options) -> nn.Module:
    """An scnn after "training": every tensor is away from where it started."""
    torch.manual_seed(0)
    model = build("scnn", shape=(1, 8, 8), classes=4, width=8, dense=64, norm="batch", **options)
    with torch.no_grad():
        for tensor in model.state_dict().values():
            tensor.add_(3)
    return model


def state(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def changed(before: dict[str, torch.Tensor], model: nn.Module) -> set[str]:
    return {name for name, tensor in model.state_dict().items() if not torch.equal(before[name], tensor)}


def he_net() -> nn.Sequential:
    """A user's network: torch layers, initialised by hand with kaiming_normal_."""
    net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.LayerNorm(64), nn.Linear(64, 3))
    for layer in net:
        if isinstance(layer, nn.Linear):
            nn.init.kaiming_normal_(layer.weight)
    return net


def test_the_late_part_is_drawn_from_the_models_own_initialisation():
    model = scnn()
    partition = Partition(model, 0.5)
    before, identities = state(model), [id(p) for p in model.parameters()]
    model.conv4.conv.weight.requires_grad_(False)  # frozen: it could never relearn, so it stays
    names = redraw(model, partition.late, seed=1)
    assert changed(before, model) == set(names)
    assert set(partition.late.names) - {"conv4.conv.weight"} == set(names) & set(partition.late.names)
    assert not set(partition.early.names) & set(names)
    assert [id(p) for p in model.parameters()] == identities
    assert [p.requires_grad for p in model.parameters()].count(False) == 1
    for weight, fan_in in [
        (model.conv3.conv.weight, 72),
        (model.dense.linear.weight, 64),
        (model.head.weight, 64),
    ]:
        expected = norm(0, math.sqrt(2 / fan_in)).cdf
        assert kstest(weight.detach().flatten().numpy(), expected).pvalue > 0.01
    assert model.head.bias.eq(0).all()
    assert model.conv3.norm.weight.eq(1).all()
    assert model.conv3.norm.running_mean.eq(0).all()
    assert model.conv3.norm.running_var.eq(1).all()
    assert model.conv3.norm.num_batches_tracked.eq(0)


def test_policies_keep_what_they_say():
    everything = redraw(scnn())
    kinds = {
        "biases": {"head.bias"},
        "norm_affine": {name for name in everything if ".norm." in name and name.endswith(("weight", "bias"))},
        "norm_buffers": {name for name in everything if "running" in name or "tracked" in name},
    }
    assert set(everything) == set(scnn().state_dict())
    for policy, kept in kinds.items():
        model = scnn()
        before = state(model)
        names = redraw(model, **{policy: False})
        assert kept
        assert set(everything) - set(names) == kept
        assert changed(before, model) == set(names)


def test_a_part_of_another_model_is_refused():
    model = scnn()
    late = Partition(model, 0.5).late
    with pytest.raises(RequestError, match="of another model, or of one that this is a copy of"):
        redraw(copy.deepcopy(model), late)


def test_a_frozen_norm_keeps_its_statistics():
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))
    model(torch.randn(8, 4) + 1)
    model[:2].requires_grad_(False)
    before = state(model)
    assert redraw(model) == ["2.weight", "2.bias"]
    assert changed(before, model) == {"2.weight", "2.bias"}


def test_paths_and_the_whole_model():
    model = scnn()
    assert redraw(model, ["head", "dense"], norm_buffers=False) == [
        "dense.linear.weight", "dense.norm.weight", "dense.norm.bias", "head.weight", "head.bias",
    ]  # fmt: skip
    assert redraw(model, "head") == ["head.weight", "head.bias"]
    assert redraw(model, "all") == redraw(model, None) == redraw(model)
    with pytest.raises(RequestError, match="unknown module 'haed': did you mean 'head'"):
        redraw(model, "haed")


def test_masks_change_only_their_elements():
    model = scnn()
    weight = model.dense.linear.weight
    weight.data[0, 0] = torch.nan  # even a NaN that is kept stays
    before = state(model)
    mask = torch.rand(weight.shape) < 0.2
    mask[0, 0] = False
    assert redraw(model, where={"dense.linear.weight": mask}) == ["dense.linear.weight"]
    assert changed(before, model) <= {"dense.linear.weight"}
    old = before["dense.linear.weight"]
    assert torch.equal(weight[~mask].nan_to_num(), old[~mask].nan_to_num())
    assert weight[0, 0].isnan()
    assert (weight[mask] != old[mask]).all()
    assert weight[mask].std().item() == pytest.approx(math.sqrt(2 / 64), rel=0.1)
    with pytest.raises(RequestError, match=r"unknown parameter in where 'dense\.weight'"):
        redraw(model, where={"dense.weight": mask})
    with pytest.raises(RequestError, match=r"should be torch.bool of shape \(4, 64\)"):
        redraw(model, where={"head.weight": mask})
    assert redraw(model, "head", where={"dense.linear.weight": mask}) == []


def test_a_seed_repeats_and_leaves_the_global_generator_alone():
    first, second, third = scnn(), scnn(), scnn()
    random = torch.get_rng_state()
    redraw(first, seed=5)
    assert torch.equal(torch.get_rng_state(), random)
    torch.rand(3)
    redraw(second, seed=5)
    redraw(third, seed=6)
    assert not changed(state(first), second)
    assert changed(state(first), third)
    redraw(first)
    torch.set_rng_state(random)
    redraw(second)
    assert changed(state(first), second)  # the global generator had moved on
    torch.set_rng_state(random)
    redraw(third)
    assert not changed(state(third), second)


def test_dtypes_stay():
    model = scnn().double()
    redraw(model, seed=0)
    assert model.head.weight.dtype == torch.float64
    assert model.head.weight.float().double().ne(model.head.weight).any()  # drawn in double precision


def test_public_codes_error_of_2_45_is_caught():
    torch.manual_seed(0)
    net = he_net()
    recorded = Recorded(net)
    assert recorded.by_reset == {"3.weight", "3.bias", "0.bias", "2.bias"}
    right = net[0].weight.std().item()
    redraw(net)  # without knowledge of the start: torch's reset_parameters
    assert right / net[0].weight.std().item() == pytest.approx(math.sqrt(6), rel=0.05)
    before = state(net)
    redraw(net, init=recorded, seed=1)
    assert net[0].weight.std().item() == pytest.approx(right, rel=1e-4)
    assert {"0.weight", "2.weight", "4.weight"} <= changed(before, net)
    start = recorded.tensors["0.weight"]
    assert torch.equal(net[0].weight.flatten().sort().values, start.flatten().sort().values)
    assert not torch.equal(net[0].weight, start)


def test_recorded_uses_reset_parameters_where_they_agree():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.Linear(16, 64))
    nn.init.constant_(net[2].bias, -2.0)
    random = torch.get_rng_state()
    recorded = Recorded(net)
    assert torch.equal(torch.get_rng_state(), random)
    assert recorded.by_reset == {"0.weight", "1.weight", "1.bias", "2.weight"}  # 0.bias has too few elements
    drawn = recorded.draw({"2": net[2], "0": net[0]})
    assert drawn["2.bias"].eq(-2).all()
    assert not set(drawn["0.weight"].flatten().tolist()) & set(recorded.tensors["0.weight"].flatten().tolist())
    assert kstest(drawn["2.weight"].flatten().numpy(), "uniform", (-0.25, 0.5)).pvalue > 0.01
    with pytest.raises(RequestError, match=r"9\.weight was not recorded"):
        recorded.draw({"9": net[2]})


def test_a_deviation_near_that_of_reset_parameters_is_told_from_it() -> None:
    """Orthogonal rows of 200 numbers deviate by 1/√200, and what reset_parameters draws for 100 inputs by 1/√300."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(100, 200), nn.ReLU(), nn.Linear(200, 100))
    nn.init.orthogonal_(net[0].weight)
    before = state(net)
    recorded = Recorded(net)
    assert recorded.by_reset == {"0.bias", "2.weight", "2.bias"}
    redraw(net, init=recorded, seed=1)
    assert changed(before, net) == set(before)
    torch.testing.assert_close(net[0].weight.std(), before["0.weight"].std())


def test_what_was_zero_at_the_start_is_zero_again() -> None:
    """The row of a padding learns nothing, and an identity is one again."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Embedding(9, 8, padding_idx=0), nn.Linear(8, 8), nn.Linear(8, 2))
    with torch.no_grad():
        nn.init.normal_(net[0].weight, std=0.02)[0] = 0
        nn.init.eye_(net[1].weight)
    before = state(net)
    recorded = Recorded(net)
    with torch.no_grad():
        net[0].weight[1:] += 1
        net[1].weight.add_(1)
    redraw(net, init=recorded, seed=0)
    assert torch.equal(net[1].weight, before["1.weight"])
    assert torch.equal(net[0].weight[0], torch.zeros(8))
    assert not torch.equal(net[0].weight, before["0.weight"])
    assert torch.equal(net[0].weight.flatten().sort()[0], before["0.weight"].flatten().sort()[0])


def test_fresh_builds_a_new_model():
    net = he_net()
    built = []

    def factory() -> nn.Module:
        built.append(he_net())
        return built[-1]

    names = redraw(net, ["0", "4"], init=Fresh(factory), seed=3)
    assert names == ["0.weight", "0.bias", "4.weight", "4.bias"]
    assert len(built) == 1
    assert torch.equal(net[0].weight, built[0][0].weight)
    assert not torch.equal(net[2].weight, built[0][2].weight)
    with pytest.raises(RequestError, match=r"the factory's model has no 0\.weight of shape \(128, 64\)"):
        redraw(net, init=Fresh(lambda: nn.Sequential(nn.Linear(2, 2))))


def test_a_function_draws_what_it_knows_and_the_constructor_the_rest():
    net = he_net()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.fill_(7)

    def init(layer: nn.Module) -> None:
        if isinstance(layer, nn.Linear):
            nn.init.constant_(layer.weight, 0.5)

    redraw(net, init=init)
    assert net[0].weight.eq(0.5).all()
    assert net[3].weight.eq(1).all()
    assert net[0].bias.abs().max() <= 1 / 8


class Tokens(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.randn(3))
        self.linear = nn.Linear(3, 2)


def test_a_parameter_that_nothing_draws_is_refused():
    with pytest.raises(RequestError, match=r"nothing draws token.*pass init=") as caught:
        redraw(Tokens())
    assert "\n" not in str(caught.value)
    model = Tokens()
    start = model.token.detach().clone()
    redraw(model, init=Recorded(model))
    assert torch.equal(model.token.sort().values, start.sort().values)
    assert redraw(Tokens(), "linear") == ["linear.weight", "linear.bias"]
    normed = nn.utils.parametrizations.weight_norm(nn.Linear(3, 2))
    with pytest.raises(RequestError, match=r"nothing draws parametrizations\.weight\.original0"):
        redraw(normed)


def test_attention_and_recurrent_layers():
    layer = nn.TransformerEncoderLayer(8, 2, 16)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.fill_(7)
    before = state(layer)
    assert changed(before, layer) == set()
    redraw(layer, ["self_attn"], biases=False)
    assert changed(before, layer) == {"self_attn.in_proj_weight", "self_attn.out_proj.weight"}
    lstm = nn.LSTM(4, 8)
    before = state(lstm)
    assert set(redraw(lstm, biases=False)) == {"weight_ih_l0", "weight_hh_l0"} == changed(before, lstm)


def test_tied_parameters_are_drawn_once():
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    net[1].weight = net[0].weight
    assert redraw(net) == ["0.weight", "0.bias", "1.bias"]
    assert net[1].weight is net[0].weight
    assert redraw(net, "1") == ["0.weight", "1.bias"]


def test_choice_of_initialiser():
    model = build("mlp", shape=(4,), classes=2, hidden=(8,))
    chosen = own_initialiser(model, he_net)
    assert isinstance(chosen, ByLayer)
    assert chosen.init == model.initialise
    wrapper = nn.Module()
    wrapper.module = model
    assert own_initialiser(wrapper).init == model.initialise
    assert isinstance(own_initialiser(he_net(), he_net), Fresh)
    assert isinstance(own_initialiser(he_net(), he_net, pretrained=True), Fresh)
    assert isinstance(own_initialiser(he_net()), Recorded)
    pretrained = own_initialiser(he_net(), pretrained=True)
    assert isinstance(pretrained, ByLayer)
    net = he_net()
    redraw(net, init=pretrained)
    assert net[0].weight.abs().max() <= 1 / 8


@pytest.mark.parametrize("masked", [False, True])
def test_the_optimisers_state_goes_with_the_weights(masked):
    model = scnn()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    optimizer.step()
    kept = copy.deepcopy(optimizer.state_dict()["state"])
    mask = torch.rand(model.head.weight.shape) < 0.5
    where = {"head.weight": mask} if masked else None
    redraw(model, "head", optimizer=optimizer, optimizer_state="keep", where=where)
    assert all(torch.equal(kept[i]["momentum_buffer"], s["momentum_buffer"])
               for i, s in optimizer.state_dict()["state"].items())  # fmt: skip
    redraw(model, "head", optimizer=optimizer, where=where)
    assert (optimizer.state[model.dense.linear.weight]["momentum_buffer"] == 1).all()
    if masked:
        assert torch.equal(optimizer.state[model.head.weight]["momentum_buffer"], (~mask).float())
    else:
        assert optimizer.state[model.head.weight]["momentum_buffer"].eq(0).all()
    with pytest.raises(RequestError, match="unknown optimizer_state 'rest': did you mean 'reset'"):
        redraw(model, optimizer=optimizer, optimizer_state="rest")


def test_what_a_layer_draws_of_the_layers_inside_it_is_drawn_so() -> None:
    """Attention sets the bias of its last projection to 0, which a linear layer by itself would draw."""
    net = nn.TransformerEncoderLayer(16, 2, 32)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.fill_(7.0)
    redraw(net, seed=0)
    assert not net.self_attn.out_proj.bias.any()
    assert not net.self_attn.in_proj_bias.any()
    weight = net.self_attn.out_proj.weight
    assert 0.9 * 16**-0.5 < weight.abs().max() <= 16**-0.5  # a linear layer's own law
    with torch.no_grad():
        net.self_attn.out_proj.bias.fill_(7.0)
    assert "linear1.weight" in redraw(net, ["linear1"], seed=0)
    assert (net.self_attn.out_proj.bias == 7).all()


def test_complex_weights_are_drawn_as_they_were_recorded() -> None:
    net = nn.Linear(16, 16, bias=False, dtype=torch.complex64)
    with torch.no_grad():
        net.weight.mul_(5)
    start = net.weight.detach().clone()
    redraw(net, init=Recorded(net), seed=0)
    assert not torch.equal(net.weight, start)
    assert set(net.weight.flatten().tolist()) == set(start.flatten().tolist())
