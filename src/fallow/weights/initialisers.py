"""Fresh values for a layer, from the model's *own* initialisation.

Public code re-draws every layer with its ``reset_parameters``. In a network that was initialised with
``kaiming_normal_`` that makes the new weights √6 = 2.45 times too small, since torch's default is
``kaiming_uniform_(a=√5)``. Here the values come from the model (``model.initialise``), from a new model
(``Fresh``), from what the model was at its start (``Recorded``), or from the user's function (``ByLayer``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from fallow.base.errors import RequestError
from fallow.weights.layers import join, layers


class Initialiser(Protocol):
    """Anything that draws fresh parameters for layers."""

    def draw(self, layers: Mapping[str, nn.Module]) -> dict[str, Tensor]:
        """Fresh values on the CPU, by the path and name of the parameter; the layers stay as they are."""


class ByLayer:
    """Draws each layer with a function that fills one layer in place, such as ``model.initialise``."""

    def __init__(self, init: Callable[[nn.Module], object]) -> None:
        self.init = init

    def draw(self, layers: Mapping[str, nn.Module]) -> dict[str, Tensor]:
        """Fill a blank copy of every layer."""
        drawn: dict[str, Tensor] = {}
        inner: dict[str, Tensor] = {}  # what a layer draws of the layers inside it, as attention does its last bias
        for path, layer in layers.items():
            blank = _filled(layer, self.init)
            for name, value in _parameters(blank).items():
                if value.isnan().any():
                    raise RequestError(
                        f"nothing draws {join(path, name)}, which no reset_parameters fills: "
                        "pass init=, a function that fills one layer, Fresh(factory) or Recorded(model)"
                    )
                drawn[join(path, name)] = value.detach()
            for name, value in blank.named_parameters():
                if "." in name and not value.isnan().any():
                    inner.setdefault(join(path, name), value.detach())  # the outermost layer is drawn last, and decides
        return drawn | {name: value for name, value in inner.items() if name in drawn}


class Fresh:
    """Draws by building a new model with ``factory()`` and taking its values."""

    def __init__(self, factory: Callable[[], nn.Module]) -> None:
        self.factory = factory

    def draw(self, layers: Mapping[str, nn.Module]) -> dict[str, Tensor]:
        """The values of one new model."""
        new = dict(self.factory().named_parameters(remove_duplicate=False))
        drawn: dict[str, Tensor] = {}
        for path, layer in layers.items():
            for name, parameter in _parameters(layer).items():
                value = new.get(join(path, name))
                if value is None or value.shape != parameter.shape:
                    raise RequestError(
                        f"the factory's model has no {join(path, name)} of shape {tuple(parameter.shape)}: "
                        "Fresh needs a factory of the same architecture"
                    )
                drawn[join(path, name)] = value.detach().cpu()
        return drawn


class Recorded:
    """Draws from the distribution of the model's values at the moment of recording: the start of training.

    A tensor whose layer has a ``reset_parameters`` that agrees with the recorded values is drawn with it;
    any other tensor becomes a random permutation of its recorded values, which has the same distribution
    element by element (a structure between elements, such as orthogonality, is lost). What was 0 stays 0: the row
    of a padding, what a mask takes out, all around an identity.

    ``tensors`` are the recorded values by name, ``by_reset`` the names that ``reset_parameters`` draws.
    """

    def __init__(self, model: nn.Module) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.by_reset: set[str] = set()
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            for path, layer in layers(model).items():
                values = _parameters(_filled(layer, reset))
                for name, parameter in _parameters(layer).items():
                    start = parameter.detach().cpu().clone()
                    self.tensors[join(path, name)] = start
                    if _agree(start, values[name]):
                        self.by_reset.add(join(path, name))

    def draw(self, layers: Mapping[str, nn.Module]) -> dict[str, Tensor]:
        """New values for every layer, by ``reset_parameters`` or by permutation."""
        drawn: dict[str, Tensor] = {}
        for path, layer in layers.items():
            names = {name: join(path, name) for name in _parameters(layer)}
            missing = [name for name in names.values() if name not in self.tensors]
            if missing:
                raise RequestError(f"{missing[0]} was not recorded: Recorded needs the model as it was at the start")
            values = _parameters(_filled(layer, reset)) if self.by_reset.intersection(names.values()) else {}
            for own, name in names.items():
                drawn[name] = values[own].detach() if name in self.by_reset else _permuted(self.tensors[name])
        return drawn

    def state_dict(self) -> dict[str, Any]:
        """What was recorded, for a checkpoint."""
        return {"tensors": self.tensors, "by_reset": sorted(self.by_reset)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Draw from what another process recorded."""
        self.tensors, self.by_reset = state["tensors"], set(state["by_reset"])


class Rewound:
    """Gives back what a pretrained model held at its start; what it had not learned before is drawn by ``inner``.

    ``names`` are the tensors that were learned, statistics of norms among them.
    """

    def __init__(self, model: nn.Module, names: Iterable[str], inner: Initialiser) -> None:
        state, self.inner = model.state_dict(), inner
        self.start = {name: state[name].detach().cpu().clone() for name in names}

    def draw(self, layers: Mapping[str, nn.Module]) -> dict[str, Tensor]:
        """The values of the start, or drawn ones."""
        drawn = self.inner.draw(layers)
        return drawn | {name: self.start[name] for name in drawn if name in self.start}

    def state_dict(self) -> dict[str, Any]:
        """What the inner one keeps; the start is that of the weights, which a run names."""
        return self.inner.state_dict() if hasattr(self.inner, "state_dict") else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """For the inner one."""
        if hasattr(self.inner, "load_state_dict"):
            self.inner.load_state_dict(state)


def own_initialiser(
    model: nn.Module, factory: Callable[[], nn.Module] | None = None, *, pretrained: bool = False
) -> Initialiser:
    """The best available source of a model's own initialisation.

    ``model.initialise`` if the model has it, else new models from ``factory``, else the values that the
    model has now, which should be those of the start. Pretrained values are no initialisation: without the
    first two, a pretrained model's layers are drawn with their ``reset_parameters``.
    """
    inner = model
    while not callable(getattr(inner, "initialise", None)) and len(inner._modules) == 1:
        inner = next(inner.children())  # a wrapper such as DistributedDataParallel
    if callable(initialise := getattr(inner, "initialise", None)):
        return ByLayer(initialise)
    if factory is not None:
        return Fresh(factory)
    return ByLayer(reset) if pretrained else Recorded(model)


def reset(layer: nn.Module) -> None:
    """Call the layer's ``reset_parameters``, if it has one (``_reset_parameters`` in torch's attention)."""
    for name in ("reset_parameters", "_reset_parameters"):
        if callable(method := getattr(layer, name, None)):
            method()
            return


def _filled(layer: nn.Module, init: Callable[[nn.Module], object]) -> nn.Module:
    """A copy of the layer as ``init`` draws it; what it does not draw is NaN."""
    blank = _blank(layer)
    with torch.no_grad():
        init(blank)
    return blank


def _blank(module: nn.Module) -> nn.Module:
    """A copy on the CPU whose parameters are NaN; drawing into it leaves the module and its children alone.

    Made without ``deepcopy``, which fails on modules that hold a tensor with a history.
    """
    copy = object.__new__(type(module))
    copy.__dict__.update(module.__dict__)
    copy._parameters = {
        name: parameter if parameter is None else nn.Parameter(_nan_like(parameter), requires_grad=False)
        for name, parameter in module._parameters.items()
    }
    copy._buffers = {
        name: None if buffer is None else buffer.detach().cpu().clone() for name, buffer in module._buffers.items()
    }
    copy._modules = {name: None if child is None else _blank(child) for name, child in module._modules.items()}
    return copy


def _nan_like(tensor: Tensor) -> Tensor:
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return tensor.detach().cpu().clone()  # quantised weights: there is no NaN, and nothing draws them
    return torch.full_like(tensor, torch.nan, device="cpu")


def _parameters(module: nn.Module) -> dict[str, nn.Parameter]:
    return {name: parameter for name, parameter in module._parameters.items() if parameter is not None}


def _agree(start: Tensor, drawn: Tensor) -> bool:
    """Whether two tensors seem to come from one distribution; too few elements to tell counts as no.

    Two draws of n normal numbers differ in their deviation by 1/√n of it (uniform ones by less), and in their mean by
    1.4/√n: five times that is no chance.
    """
    if not drawn.isfinite().all():
        return False
    if start.is_complex():
        start, drawn = torch.view_as_real(start), torch.view_as_real(drawn)
    if start.min() == start.max() or drawn.min() == drawn.max():
        return torch.equal(start, drawn)
    if start.numel() < 64:
        return False
    spread = start.double().std()
    shift = (drawn.double().mean() - start.double().mean()).abs()
    error = start.numel() ** -0.5
    near = (drawn.double().std() - spread).abs() <= min(0.25, 5 * error) * spread
    return bool(near and shift <= min(0.5, 7 * error) * spread)


def _permuted(tensor: Tensor) -> Tensor:
    values = tensor.flatten()
    (live,) = values.nonzero(as_tuple=True)
    return values.index_copy(0, live, values[live[torch.randperm(len(live))]]).view_as(tensor)
