"""Streams: the same bits wherever an epoch is resumed and however many processes share it."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, RandomSampler, TensorDataset

from fallow.base.errors import RequestError
from fallow.data import Data, Examples, Stream, load, memory, stream
from fallow.data.normalise import normalise, statistics

Batches = list[tuple[Tensor, Tensor]]


def images(n: int = 101, shape: tuple[int, ...] = (3, 16, 16)) -> Data:
    x = torch.randint(0, 256, (n, *shape), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    mean, std = statistics(x)
    # Distinct "labels" identify the examples.
    return Data("images", Examples(x, torch.arange(n)), None, None, ["a", "b"], shape, mean, std)


def open_stream(data: Data, **changes: Any) -> Stream:
    return stream(data.train, data, **({"batch_size": 16, "seed": 5} | changes))


def assert_same(left: Batches, right: Batches) -> None:
    assert len(left) == len(right)
    for (x, y), (u, v) in zip(left, right, strict=True):
        assert torch.equal(x, u)
        assert torch.equal(y, v)


@pytest.fixture(params=["one chunk", "many chunks", "one batch per chunk"])
def chunks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = {"one chunk": 4096, "many chunks": 40, "one batch per chunk": 1}[request.param]
    monkeypatch.setattr(memory, "CHUNK_EXAMPLES", limit)


@pytest.mark.usefixtures("chunks")
@pytest.mark.parametrize("augment", ["none", "flip+crop"])
def test_resumes_anywhere_with_the_same_bits(augment: str) -> None:
    whole = list(open_stream(images(), augment=augment).epoch(3))
    other = open_stream(images(), augment=augment)
    for start in range(other.steps + 1):
        torch.rand(start)  # what others draw does not matter
        assert_same(list(other.epoch(3, start)), whole[start:])


@pytest.mark.usefixtures("chunks")
@pytest.mark.parametrize("augment", ["none", "flip+crop"])
@pytest.mark.parametrize("world", [2, 3])
def test_ranks_together_are_one_process(augment: str, world: int) -> None:
    one = open_stream(images(), augment=augment)
    ranks = [open_stream(images(), augment=augment, rank=rank, world=world) for rank in range(world)]
    assert {rank.steps for rank in ranks} == {one.steps}
    epochs = [list(rank.epoch(1)) for rank in ranks]
    for step, (x, y) in enumerate(one.epoch(1)):
        assert torch.equal(torch.cat([epoch[step][0] for epoch in epochs]), x)
        assert torch.equal(torch.cat([epoch[step][1] for epoch in epochs]), y)
        for rank, epoch in zip(ranks, epochs, strict=True):
            assert rank.share(step) == pytest.approx(len(epoch[step][1]) * world / len(y))
        # Averaging weighted means over ranks gives the mean over the batch: that is what shares are for.
        weighted = sum(r.share(step) * e[step][0].mean() for r, e in zip(ranks, epochs, strict=True)) / world
        assert torch.allclose(weighted, x.mean(), atol=1e-6)
    ordered = [torch.cat([y for _, y in rank.ordered()]) for rank in ranks]
    assert torch.cat(ordered).tolist() == list(range(101))


@pytest.mark.parametrize(("n", "batch_size"), [(101, 16), (17, 16), (10, 16), (64, 16), (5, 1)])
def test_batches_are_balanced_and_complete(n: int, batch_size: int) -> None:
    batches = open_stream(images(n), batch_size=batch_size)
    epoch = list(batches.epoch(0))
    sizes = [len(y) for _, y in epoch]
    assert len(epoch) == batches.steps == -(-n // batch_size)
    assert max(sizes) - min(sizes) <= 1
    assert max(sizes) <= batch_size
    assert sorted(torch.cat([y for _, y in epoch]).tolist()) == list(range(n))
    assert all(batches.share(step) == 1.0 for step in range(batches.steps))


def test_order_depends_on_seed_and_epoch_alone() -> None:
    def order(epoch: int, **changes: Any) -> list[int]:
        return torch.cat([y for _, y in open_stream(images(), **changes).epoch(epoch)]).tolist()

    torch.manual_seed(1)
    first = order(0)
    torch.manual_seed(2)
    before = torch.get_rng_state()
    assert order(0) == first
    assert order(0, augment="flip+crop") == first
    assert torch.equal(torch.get_rng_state(), before)
    assert order(1) != first
    assert order(0, seed=6) != first


def test_augmentation_differs_between_epochs_but_not_labels() -> None:
    data = images(40)
    batches = open_stream(data, augment="flip+crop", batch_size=40)
    seen = []
    for epoch in (0, 1):
        ((x, y),) = batches.epoch(epoch)
        seen.append(x[y.argsort()])
    plain = next(iter(batches.ordered()))[0]
    assert not torch.equal(seen[0], seen[1])
    assert not torch.equal(seen[0], plain)


def test_every_chunk_draws_its_own_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "CHUNK_EXAMPLES", 16)
    data = images(64)
    assert isinstance(data.train, Examples)
    data.train = Examples(data.train.x[:1].repeat(64, 1, 1, 1), data.train.y)  # only the moves tell them apart
    batches = [x for x, _ in open_stream(data, augment="flip+crop").epoch(0)]
    assert len(batches) == 4
    assert not any(torch.equal(batches[0], other) for other in batches[1:])


@pytest.mark.parametrize("ready", [0, 1 << 30])
def test_normalised_by_the_training_statistics(ready: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "READY_BYTES", ready)
    data = images()
    assert isinstance(data.train, Examples)
    exact = data.train.x.double()
    mean = exact.mean((0, 2, 3), keepdim=True)
    exact = (exact - mean) / exact.var((0, 2, 3), keepdim=True, correction=0).sqrt()
    batches = open_stream(data)
    for x, y in [*batches.epoch(0), *batches.ordered()]:
        assert x.dtype == torch.float32
        assert torch.allclose(x.double(), exact[y], atol=1e-5)
        x.zero_()  # a model may work in place; the next epoch must not see it
    x = torch.cat([x for x, _ in batches.ordered()])
    assert torch.allclose(x.double(), exact, atol=1e-5)


def test_constant_features_give_zeros() -> None:
    x = torch.randn(20, 3) * torch.tensor([1.0, 0.0, 1e-9]) + torch.tensor([0.0, 1e6, 0.0])
    out = normalise(x, *statistics(x))
    assert out.isfinite().all()
    assert (out[:, 1] == 0).all()
    assert torch.allclose(out[:, 2].std(correction=0), torch.ones(()), atol=1e-3)  # small is not constant


def test_evaluation_batches_are_large_but_bounded() -> None:
    data = images(2500, (1, 4, 4))
    assert [len(y) for _, y in open_stream(data).ordered()] == [512] * 4 + [452]


def test_refusals() -> None:
    data = images(10)
    with pytest.raises(RequestError, match="batch_size ≥ 4"):
        open_stream(data, batch_size=2, world=4).epoch(0)
    with pytest.raises(RequestError, match="at least 1"):
        open_stream(data, batch_size=0)
    with pytest.raises(RequestError, match="ranks go from 0"):
        open_stream(data, rank=2, world=2)
    with pytest.raises(RequestError, match="unknown augmentation"):
        open_stream(data, augment="flipp")


def as_given(x: Tensor, data: Data) -> Tensor:
    """Before it was scaled."""
    assert data.mean is not None
    assert data.std is not None
    return x * data.std + data.mean


class Noisy(Dataset[tuple[Tensor, int]]):
    """Items with a random transform from the default generator, as users write them."""

    def __len__(self) -> int:
        return 23

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.full((2,), float(index)) + torch.rand(2), index % 4


@pytest.mark.parametrize("workers", [0, 2])
def test_dataset_resumes_with_the_same_random_transforms(workers: int) -> None:
    data = load(Noisy(), val=0, test=0)
    assert (data.shape, data.classes) == ((2,), ["0", "1", "2", "3"])
    torch.manual_seed(0)
    whole = list(open_stream(data, batch_size=5).epoch(2))
    assert [len(y) for _, y in whole] == [5, 5, 5, 4, 4]
    torch.manual_seed(1)
    before = torch.get_rng_state()
    other = open_stream(data, batch_size=5, workers=workers)
    assert other.resumable
    for start in (0, 3):
        assert_same(list(other.epoch(2, start)), whole[start:])
    assert torch.equal(torch.get_rng_state(), before)
    ranks = [list(open_stream(data, batch_size=5, rank=rank, world=2).epoch(2)) for rank in (0, 1)]
    for step, (x, y) in enumerate(whole):
        assert torch.equal(torch.cat([rank[step][0] for rank in ranks]), x)
        assert torch.equal(torch.cat([rank[step][1] for rank in ranks]), y)
    assert as_given(torch.cat([x for x, _ in other.ordered()]), data)[:, 0].floor().tolist() == list(range(23))


def test_dataset_that_turns_bad_midway() -> None:
    class Bad(Noisy):
        targets = list(range(4)) * 5 + [0, 1, 2]
        good = 23

        def __getitem__(self, index: int) -> Any:
            return super().__getitem__(index) if index < self.good else torch.zeros(2)

    data = load(Bad(), val=0, test=0)
    Bad.good = 20
    with pytest.raises(RequestError, match="no \\(x, label\\) pair"):
        list(open_stream(data).epoch(0))
    with pytest.raises(RequestError, match="item 20 of the Dataset is a Tensor"):
        load(Bad(), val=0, test=0)


@pytest.mark.parametrize("own", [False, True])
def test_loader_resumes_whatever_is_drawn_between(own: bool) -> None:
    def fresh() -> DataLoader[Any]:
        source = torch.Generator() if own else None
        return DataLoader(Noisy(), batch_size=5, shuffle=True, generator=source)

    loader = fresh()
    data = load(loader)
    assert data.val is None
    assert data.test is None
    torch.manual_seed(0)
    whole = list(open_stream(data).epoch(1))
    assert len(whole) == 5
    other = load(fresh())
    for start in (0, 2, 4):
        batches = []
        for batch in open_stream(other).epoch(1, start):
            torch.rand(3)  # dropout, say
            batches.append(batch)
        assert_same(batches, whole[start:])
    before = torch.get_rng_state()
    second = list(open_stream(data).epoch(2))
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.equal(second[0][0], whole[0][0])


@pytest.mark.parametrize("sampler", [False, True])
def test_a_loaders_own_generator_is_only_lent(sampler: bool) -> None:
    """What is read, and in which order it is evaluated, does not depend on where it stands; it comes back so."""
    own = torch.Generator()
    order: Any = {"sampler": RandomSampler(Noisy(), generator=own)} if sampler else {"shuffle": True, "generator": own}
    loader = DataLoader(Noisy(), batch_size=5, **order)
    found = []
    for seed in (1, 2):
        own.manual_seed(seed)
        before = own.get_state()
        data = load(loader)
        batches = open_stream(data)
        found.append([*batches.epoch(0), *batches.ordered()])
        assert torch.equal(own.get_state(), before)
    assert_same(*found)


def test_loader_needs_a_distributed_sampler_for_several_processes() -> None:
    data = load(DataLoader(Noisy(), batch_size=5))
    with pytest.raises(RequestError, match="DistributedSampler"):
        open_stream(data, rank=0, world=2)
    seen: list[Tensor] = []
    scales: list[Any] = []
    for rank in (0, 1):
        sampler: DistributedSampler[Any] = DistributedSampler(Noisy(), num_replicas=2, rank=rank)
        shared = load(DataLoader(Noisy(), batch_size=5, sampler=sampler))
        batches = open_stream(shared, rank=rank, world=2)
        first, second = (as_given(torch.cat([x for x, _ in batches.epoch(e)]), shared).floor() for e in (0, 1))
        assert not torch.equal(first, second)
        seen.append(first[:, 0])
        assert batches.share(0) == 1.0
        scales.append(shared.normalisation())
    assert set(torch.cat(seen).tolist()) == set(range(23))
    assert scales[0] == scales[1]  # though each process sees its own half


class Endless(IterableDataset[tuple[Tensor, int]]):
    def __iter__(self) -> Iterator[tuple[Tensor, int]]:
        yield torch.zeros(2), 0


def test_bad_loaders() -> None:
    with pytest.raises(RequestError, match="classes=NUMBER"):
        load(DataLoader(Endless()))
    with pytest.raises(RequestError, match="no length"):
        load(DataLoader(Endless()), classes=2)
    with pytest.raises(RequestError, match="wrap it in a DataLoader"):
        load(Endless())
    three = TensorDataset(torch.zeros(4, 2), torch.zeros(4), torch.zeros(4))
    with pytest.raises(RequestError, match="two tensors"):
        load(DataLoader(three), classes=2)
    with pytest.raises(RequestError, match="pass its Dataset"):
        load(DataLoader(Noisy()), train=5)


def test_augmentation_of_a_users_data_is_the_users() -> None:
    data = load(DataLoader(Noisy()))
    assert open_stream(data, augment="auto").steps == 23
    with pytest.raises(RequestError, match="inside the Dataset"):
        open_stream(Data("d", TensorDataset(torch.zeros(2)), None, None, [], (3, 8, 8)), augment="flip")
