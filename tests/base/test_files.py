from __future__ import annotations

import errno
import os
import resource
import signal
from pathlib import Path

import pytest

from fallow.base import files
from fallow.base.errors import RequestError, WorkError


def test_replaces_and_leaves_nothing_beside(tmp_path: Path) -> None:
    path = tmp_path / "file"
    files.write(path, b"old")
    files.write(path, b"n", memoryview(b"ew"))
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_json_is_readable(tmp_path: Path) -> None:
    files.write_json(tmp_path / "x.json", {"ρ": "½"})
    assert (tmp_path / "x.json").read_text("utf-8") == '{\n  "ρ": "½"\n}\n'


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failing_write_leaves_the_old_file(call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    files.write(path, b"old")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, call, full)
    with pytest.raises(WorkError) as caught:
        files.write(path, b"new")
    assert "No space left on device" in str(caught.value)
    assert "make room and resume" in str(caught.value)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_write_that_the_system_cuts_short(tmp_path: Path) -> None:
    """The operating system itself refuses, in the middle of the content."""
    path = tmp_path / "file"
    files.write(path, b"old")
    child = os.fork()
    if child == 0:
        code = 3
        try:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
            files.write(path, b"x" * 100_000)
        except WorkError as error:
            code = 0 if "File too large" in str(error) else 4
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(WorkError, match="No such file or directory"):
        files.write(tmp_path / "gone" / "file", b"")


def test_sweeps_its_own_leftovers_only(tmp_path: Path) -> None:
    for name in (".bashrc.1", ".config.2024.yml", "checkpoint", "x.fallow", ".checkpoint.77.fallow"):
        (tmp_path / name).touch()
    files.sweep(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {".bashrc.1", ".config.2024.yml", "checkpoint", "x.fallow"}


def test_a_folder_in_place_of_a_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.mkdir()
    with pytest.raises(RequestError) as caught:
        files.write(path, b"{}")
    assert str(caught.value) == f"{path} is a folder, and a file should be there: delete {path}, and repeat the command"
    assert list(tmp_path.iterdir()) == [path]
