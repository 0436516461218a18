"""What only a process of its own can show: imports, signals, exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import torch
from safetensors.torch import load_file

from tests.cli.conftest import Run

HEAVY = ("sklearn", "kornia", "matplotlib", "PIL", "rich", "typer", "lightning", "scipy", "jinja2", "joblib")
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}


def python(code: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=ENVIRONMENT)
    return json.loads(done.stdout.splitlines()[-1])


def test_import_is_light() -> None:
    loaded = python("import fallow, sys, json; fallow.__version__; print(json.dumps(sorted(sys.modules)))")
    assert not {*HEAVY, "torch", "numpy"} & set(loaded)


def test_the_library_needs_no_more_than_it_uses() -> None:
    loaded = python("from fallow import fit; import sys, json; print(json.dumps(sorted(sys.modules)))")
    assert not set(HEAVY) & set(loaded)


def test_help_does_not_wait_for_torch() -> None:
    loaded = python(
        "import sys, json; from fallow.cli.main import main; sys.argv = ['fallow', 'train', '--help']\n"
        "try: main()\n"
        "except SystemExit: print(json.dumps(sorted(sys.modules)))"
    )
    assert not {"torch", "numpy", "sklearn", "kornia", "matplotlib", "PIL", "lightning"} & set(loaded)


WORDS = (
    "train", "synthetic:n_test=16", "--train", "64", "--model", "mlp:hidden=8,8", "--method", "llf",
    "--generations", "2", "--epochs", "80", "--checkpoint-every", "0.1",
)  # fmt: skip


def test_ctrl_c_leaves_a_line_and_a_run_that_resumes_to_the_bit(run: Run) -> None:
    command = [sys.executable, "-m", "fallow", *WORDS, "--out", "stopped"]
    child = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # in the background it would be ignored
    )  # fmt: skip
    metrics = Path("stopped/metrics.jsonl")
    while not (metrics.exists() and metrics.stat().st_size) and child.poll() is None:
        time.sleep(0.01)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate()
    assert child.returncode == 130, err
    assert out == ""
    assert err.endswith("fallow: stopped: the same command with --out stopped --resume resumes it\n")
    assert not Path("stopped/result.json").exists()
    first, second = (
        json.loads(run(*WORDS, "--json", *more).done())["last"]
        for more in (("--out", "stopped", "--resume"), ("--out", "whole"))
    )
    assert first == second
    stopped, whole = load_file("stopped/last.safetensors"), load_file("whole/last.safetensors")
    assert all(torch.equal(stopped[name], whole[name]) for name in whole)


def test_exit_codes_of_a_real_process(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fallow", "train", "digits", "--method", "sael"],
        capture_output=True, text=True, cwd=tmp_path, env=ENVIRONMENT,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("fallow: unknown method 'sael': did you mean 'seal'?")
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_every_public_name_is_there() -> None:
    import fallow

    assert sorted(fallow.__all__) == sorted(fallow._HOME)
    assert all(getattr(fallow, name) is not None for name in fallow.__all__)


def test_a_closed_standard_error_does_not_stop_the_work(run: Run) -> None:
    command = [sys.executable, "-m", "fallow", *WORDS[:-4], "--epochs", "1", "--out", "unseen"]
    code = "import os, sys; os.close(2); os.execv(sys.argv[1], sys.argv[1:])"
    done = subprocess.run([sys.executable, "-c", code, *command], stdout=subprocess.PIPE, env=ENVIRONMENT, text=True)
    assert done.returncode == 0
    assert "kept in unseen" in done.stdout
    assert Path("unseen/result.json").exists()
