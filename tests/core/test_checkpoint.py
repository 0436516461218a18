from __future__ import annotations

import hashlib
import io
import os
from pathlib import Path

import pytest
import torch

from fallow.base.errors import RequestError, WorkError
from fallow.core import checkpoint

STATE = {
    "tensor": torch.arange(6.0).view(2, 3),
    "bytes": torch.zeros(3, dtype=torch.uint8),
    "nested": {"list": [1, 2.5, None, "text", True], "tuple": (1, 2)},
    0: {"step": torch.tensor(3)},
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    checkpoint.save(tmp_path / "checkpoint", STATE)
    return tmp_path / "checkpoint"


def refusal(path: Path) -> str:
    with pytest.raises(RequestError) as caught:
        checkpoint.load(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_comes_back_as_it_was(path: Path) -> None:
    found = checkpoint.load(path)
    assert torch.equal(found.pop("tensor"), STATE["tensor"])
    assert torch.equal(found.pop("bytes"), STATE["bytes"])
    assert found == {"nested": STATE["nested"], 0: {"step": torch.tensor(3)}}
    assert [entry.name for entry in path.parent.iterdir()] == ["checkpoint"]


def test_shared_tensors_are_stored_once(tmp_path: Path) -> None:
    big = torch.randn(10_000)
    checkpoint.save(tmp_path / "one", {"a": big})
    checkpoint.save(tmp_path / "two", {"a": big, "b": big})  # the best of a generation is often the best of all
    assert (tmp_path / "two").stat().st_size < 1.1 * (tmp_path / "one").stat().st_size


def test_the_header_names_format_and_digest(path: Path) -> None:
    header, _, payload = path.read_bytes().partition(b"\n")
    assert header.decode() == f"fallow checkpoint 1 {hashlib.sha256(payload).hexdigest()}"


def test_the_one_before_is_kept(path: Path) -> None:
    checkpoint.save(path, {"number": 2})
    checkpoint.save(path, {"number": 3})
    assert checkpoint.load(path) == {"number": 3}
    assert checkpoint.load(path.with_name("checkpoint.previous")) == {"number": 2}


def test_without_hard_links_one_checkpoint_is_kept(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    checkpoint.save(path, {"number": 2})
    assert checkpoint.load(path) == {"number": 2}
    assert not path.with_name("checkpoint.previous").exists()


def test_a_failing_write_leaves_both(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint.save(path, {"number": 2})

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(WorkError, match="No space left on device"):
        checkpoint.save(path, {"number": 3})
    assert checkpoint.load(path) == {"number": 2}
    assert checkpoint.load(path.with_name("checkpoint.previous")) == {"number": 2}


@pytest.mark.parametrize("share", [0.0, 0.03, 0.5, 0.999])
def test_truncated(path: Path, share: float) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    words = refusal(path)
    assert words.startswith(str(path))
    assert "delete it to start this run again" in words


@pytest.mark.parametrize("place", [90, 400, -1])
def test_a_flipped_bit(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 4
    path.write_bytes(content)
    assert "is damaged" in refusal(path)
    checkpoint.save(path.with_name("checkpoint.previous"), {"number": 1})
    assert "move checkpoint.previous over it to go on from the one before" in refusal(path)


def test_another_format(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"checkpoint 1 ", b"checkpoint 7 ", 1))
    words = refusal(path)
    assert "has checkpoint format 7, this fallow reads format 1" in words
    assert "run.json" in words


@pytest.mark.parametrize("content", [b"", b"hello", b"fallow checkpoint", b"\x00" * 4096, b"\xff\n\xfe"])
def test_no_checkpoint_at_all(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    assert "is not a checkpoint of fallow" in refusal(path)


def test_unreadable(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").mkdir()
    assert "cannot be read: Is a directory" in refusal(tmp_path / "checkpoint")


class Bomb:
    """Unpickling this would make a file."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self):
        return Path.touch, (self.target,)


def test_pickled_code_is_refused_and_not_run(tmp_path: Path) -> None:
    """The digest keeps damage out, not people: whoever writes a checkpoint writes its digest too."""
    path, made = tmp_path / "checkpoint", tmp_path / "made"
    checkpoint.save(path, {"model": Bomb(made)})
    assert "holds more than tensors and plain values" in refusal(path)
    assert not made.exists()
    payload = path.read_bytes().partition(b"\n")[2]
    torch.load(io.BytesIO(payload), weights_only=False)
    assert made.exists()  # the bomb was a real one
