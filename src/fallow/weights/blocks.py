"""The blocks of a model from input to output: as the model names them, or found in its structure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from torch import nn

from fallow.base.errors import RequestError
from fallow.weights.fixed_norm import FixedNorm
from fallow.weights.layers import has_matrix, is_norm, join, layers, owner


class Block(NamedTuple):
    """A step of a network: ``modules`` are the paths of what it is made of, in order."""

    path: str
    modules: tuple[str, ...]

    @property
    def output(self) -> str:
        """The path of the module whose output is the block's output."""
        return self.modules[-1]

    def __contains__(self, layer: object) -> bool:
        return any(inside(str(layer), module) for module in self.modules)


def inside(path: str, parent: str) -> bool:
    """Whether ``path`` is ``parent`` or lies inside it."""
    return not parent or path == parent or path.startswith(parent + ".")


def find_blocks(model: nn.Module, order: Mapping[str, int]) -> list[Block]:
    """The blocks of ``model`` in order, the head excluded when there are others.

    A model may name them in ``model.blocks``, a tuple of paths. Otherwise they are found: containers
    (Sequential, ModuleList) and modules that hold a stack of alike modules are opened, any other module is
    a block, and a bare norm or activation belongs to the block before it. While that gives only one block,
    as for a wrapper or a backbone with a head, that block is opened too.
    """
    declared = _declared(model)
    if declared:
        return declared
    owned = layers(model)
    head = head_of(model, order)
    paths = list(_opened(model, "", stacked=False))
    while True:
        blocks = _joined(model, sorted(paths, key=lambda path: _rank(path, owned, order)))
        others = [block for block in blocks if _matrices(block, owned) != [head]]
        if len(others) != 1 or not (only := model.get_submodule(others[0].path))._modules:
            return others or blocks
        at = paths.index(others[0].path)
        paths[at : at + 1] = _children(only, others[0].path, stacked=False)


def head_of(model: nn.Module, order: Mapping[str, int]) -> str:
    """The path of the head: the last layer that runs and has a weight matrix, or else simply the last."""
    owned = layers(model)
    if not owned:
        raise RequestError("the model has no layers with weights: there is nothing to train")
    with_matrix = [path for path, layer in owned.items() if has_matrix(layer)]
    running = [path for path in with_matrix if order[path] < len(order)]
    return owner(max(running or with_matrix or owned, key=lambda path: order[path]))


def late_from(model: nn.Module) -> str | float:
    """Where the late layers begin as the model, or the one that a wrapper holds, says; else at half of the blocks."""
    prefix, module = "", model
    while not hasattr(module, "late_from"):
        children = list(module.named_children())
        if len(children) != 1:
            return 0.5
        prefix, module = join(prefix, children[0][0]), children[0][1]
    found: str | float = module.late_from  # type: ignore[assignment]
    return join(prefix, found) if isinstance(found, str) else found


def _declared(model: nn.Module) -> list[Block]:
    """The blocks that the model, or the one model that a wrapper holds, names itself."""
    prefix, module = "", model
    while True:
        names = getattr(module, "blocks", None)  # in other libraries' models this may be a module
        if isinstance(names, tuple | list) and names and all(isinstance(name, str) for name in names):
            known = dict(module.named_modules())
            for name in names:
                if name not in known:
                    raise RequestError(f"model.blocks names {name!r}: it should name modules of the model")
            paths = [join(prefix, name) for name in names]
            return [Block(path, (path,)) for path in paths]
        children = list(module.named_children())
        if len(children) != 1:
            return []
        prefix, module = join(prefix, children[0][0]), children[0][1]


def _opened(module: nn.Module, path: str, *, stacked: bool) -> Iterator[str]:
    """The paths of the candidates for blocks inside ``module``; a member of a stack is not opened further."""
    if (
        (not path and module._modules)
        or isinstance(module, nn.Sequential | nn.ModuleList)
        or (not stacked and _holds_stack(module))
    ):
        yield from _children(module, path, stacked=stacked or _is_stack(module))
    else:
        yield path


def _children(module: nn.Module, path: str, *, stacked: bool) -> Iterator[str]:
    for name, child in module.named_children():
        yield from _opened(child, join(path, name), stacked=stacked)


def _is_stack(module: nn.Module) -> bool:
    """Whether ``module`` is a container of two or more composite modules of one class."""
    if not isinstance(module, nn.Sequential | nn.ModuleList):
        return False
    kinds = [type(m) for m in module.children() if m._modules and not isinstance(m, nn.Sequential)]
    return len(kinds) > len(set(kinds))


def _holds_stack(module: nn.Module) -> bool:
    return any(_is_stack(inner) for inner in module.modules())


def _joined(model: nn.Module, paths: list[str]) -> list[Block]:
    """Blocks from candidates in order: what has no weight matrix of its own joins the one before it."""
    blocks: list[Block] = []
    for path in paths:
        module = model.get_submodule(path)
        children = [child for child in module.children() if not isinstance(child, FixedNorm)]  # LW may add one
        bare = not children and (is_norm(module) or not has_matrix(module))
        if not bare:
            blocks.append(Block(path, (path,)))
        elif blocks and (module._parameters or _in_sequential(model, path)):
            blocks[-1] = Block(blocks[-1].path, (*blocks[-1].modules, path))
    return blocks


def _in_sequential(model: nn.Module, path: str) -> bool:
    """Elsewhere the place of a module without parameters does not tell when, or how often, it is called."""
    return isinstance(model.get_submodule(path.rpartition(".")[0]), nn.Sequential)


def _matrices(block: Block, owned: Mapping[str, nn.Module]) -> list[str]:
    return [owner(path) for path, layer in owned.items() if path in block and has_matrix(layer)]


def _rank(path: str, owned: Mapping[str, nn.Module], order: Mapping[str, int]) -> int:
    return min((order[layer] for layer in owned if inside(layer, path)), default=order[path])
