"""Malformed requests and damaged folders: no traceback, no hang, no nonsense that is accepted.

A request is a small command that works, of which one to three words were changed by chance: numbers that are huge,
negative or no numbers, mistyped names, empty and foreign text, missing values, paths that lead nowhere. What every
option may be is written down here, beside the code that is attacked: a request with a value outside of it must end
with exit code 2, one line on standard error, and nothing else. A damaged folder is a small run or comparison, finished
or not, of which a file lost bytes, had some changed, is empty or is gone: each verb that reads it may go on, or say in
one line what is wrong.

Each case has ``SECONDS`` of the processor (and ``PATIENCE`` times as long where the machine is busy, or something
waits); the cases run in this process, through ``main()``, in processes of ``BATCH`` cases.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

REQUESTS, FOLDERS, BATCH, SECONDS, PATIENCE = 520, 80, 130, 20, 10
Valid = Callable[[str], bool]


# ---- what an option may be ---------------------------------------------------------------------------------------


def whole(least: int, most: int = 10**6) -> Valid:
    return lambda text: _number(int, text, lambda value: least <= value <= most)


def real(fits: Callable[[float], bool]) -> Valid:
    return lambda text: _number(float, text, lambda value: math.isfinite(value) and fits(value))


def one_of(*names: str) -> Valid:
    return lambda text: text in names


def _number(kind: Any, text: str, fits: Callable[[Any], bool]) -> bool:
    try:
        return fits(kind(text))
    except (ValueError, OverflowError):
        return False


SEED = whole(0, 2**62)
SHARE = real(lambda value: 0 <= value < 1)
INSIDE = real(lambda value: 0 < value < 1)
ABOVE = real(lambda value: value > 0)
FROM_0 = real(lambda value: value >= 0)
WORKERS = whole(1, 8 * (os.cpu_count() or 1))
DEVICE = one_of("cpu", "auto", "cpu:0")
METHODS = one_of("ema", "llf", "seal", "normal", "ema,llf", "ema llf", "llf:late=0.5")
AUGMENT = one_of("none", "auto", "flip", "crop", "flip+crop", "try")
ENGINE = one_of("local")
TABLES = one_of("lw-table1")
MLP = one_of("mlp:hidden=4", "mlp", "mlp:hidden=4,4")

TRAINING: dict[str, Valid] = {
    "--epochs": whole(1), "--batch-size": whole(1), "--lr": ABOVE, "--weight-decay": FROM_0,
    "--label-smoothing": SHARE, "--augment": AUGMENT, "--seed": SEED, "--device": DEVICE,
}  # fmt: skip
EXPERIMENT: dict[str, Valid] = {"--engine": ENGINE, "--workers": WORKERS, "--address": one_of()}
READING: dict[str, Valid] = {
    "--as": one_of("features"), "--groups": one_of(), "--target": one_of("classes"), "--drop": one_of(),
}  # fmt: skip
LAYERS: dict[str, Valid] = {
    "--split": one_of("auto"), "--freeze": one_of("head"), "--redraw-from": one_of("weights", "init"),
    "--input-size": one_of(),
}  # fmt: skip

# verb → the words of a small command, and its options with what they may be
COMMANDS: dict[str, tuple[list[str], dict[str, Valid]]] = {
    "train": (
        ["synthetic:n_test=16", "--train", "32", "--epochs", "1", "--generations", "2", "--model", "mlp:hidden=4",
         "--method", "llf"],
        TRAINING | READING | LAYERS | {
            "--train": whole(1, 200), "--val": SHARE, "--generations": whole(1), "--model": MLP, "--method": METHODS,
            "--test": SHARE, "--minutes": ABOVE, "--size": one_of(), "--track": one_of(),
            "--loss": one_of(),
            "--momentum": SHARE, "--warmup": FROM_0, "--clip": ABOVE, "--accumulate": whole(1, 32),
            "--patience": whole(1), "--evaluate-every": whole(1), "--checkpoint-every": FROM_0,
            "--workers": whole(0, 8 * (os.cpu_count() or 1)), "--threads": whole(1, os.cpu_count() or 1),
            "--devices": one_of("1"), "--optimizer": one_of("sgd", "adamw"), "--precision": one_of("float32"),
            "--schedule": one_of("cosine", "constant", "plateau", "one-cycle"), "--metric": one_of("accuracy"),
            "--settings": one_of(), "--weights": one_of(),
        },
    ),
    "compare": (
        ["synthetic:n_test=16", "--train", "32", "--epochs", "1", "--generations", "1", "--models", "mlp:hidden=4",
         "--methods", "ema", "--seeds", "1", "--workers", "1"],
        TRAINING | EXPERIMENT | READING | LAYERS | {
            "--train": whole(1, 200), "--val": INSIDE, "--generations": whole(1), "--models": MLP, "--methods": METHODS,
            "--optimizer": one_of("sgd", "adamw"), "--same": FROM_0, "--minutes": ABOVE, "--folds": one_of(),
            "--tune": lambda text: whole(0, 1000)(text) and int(text) != 1, "--tasks": one_of(),
            "--transfer-to": one_of(),
            "--seeds": whole(1, 1000), "--budget": one_of("passes", "steps"), "--score": one_of("last", "best"),
            "--metric": one_of("accuracy"), "--set": one_of("clip=1", "momentum=0.5"), "--plan": one_of(),
            "--size": one_of(), "--weights": one_of(),
        },
    ),
    "tune": (
        ["synthetic:n_test=16", "--train", "32", "--epochs", "4", "--model", "mlp:hidden=4", "--grid", "2",
         "--inner", "2", "--workers", "1", "--batch-size", "16"],
        {key: TRAINING[key] for key in TRAINING if key != "--weight-decay"} | EXPERIMENT | READING | {
            "--train": whole(1, 200), "--val": INSIDE, "--model": MLP, "--grid": whole(2, 1000),
            "--seeds": whole(1, 1000), "--inner": whole(1), "--per": one_of("layer", "weight"),
            "--solver": one_of("identity", "neumann", "cg", "minres", "nystrom"),
        },
    ),
    "semi": (
        ["digits", "--labels", "20", "--val", "30", "--images", "40", "--epochs", "1", "--steps", "1", "--model",
         "mlp:hidden=4", "--method", "fixmatch:ratio=2", "--workers", "1", "--batch-size", "10"],
        {key: TRAINING[key] for key in TRAINING if key not in ("--augment", "--label-smoothing")} | EXPERIMENT | {
            "--labels": whole(10, 1400), "--val": whole(10), "--images": whole(20, 1400), "--ood-share": INSIDE,
            "--steps": whole(1), "--model": MLP, "--method": one_of("fixmatch:ratio=2"),
            "--ood": one_of(), "--ood-classes": one_of(), "--unlabelled": one_of(".", ".."), "--size": one_of(),
            "--as": one_of("images"), "--groups": one_of(), "--network": one_of(), "--augment": AUGMENT,
        },
    ),
    "fewshot": (
        ["sinusoid", "--iterations", "2", "--every", "1", "--meta-batch", "1", "--steps", "1", "--val-tasks", "2",
         "--episodes", "2"],
        {
            "--iterations": whole(1, 10**7), "--every": whole(1, 10**7), "--meta-batch": whole(1), "--lr": ABOVE,
            "--val-tasks": whole(1), "--episodes": whole(1), "--shots": whole(1, 10**4), "--queries": whole(1, 10**4),
            "--steps": whole(1, 1000), "--rate": ABOVE, "--clip": ABOVE, "--seed": SEED, "--device": DEVICE,
            "--checkpoint-every": FROM_0, "--threads": whole(1, os.cpu_count() or 1), "--devices": one_of("1"),
            "--model": MLP, "--method": one_of("maml", "l2f"), "--splits": one_of(), "--weights": one_of(),
            "--schedule": one_of("cosine", "constant", "plateau"), "--data-dir": one_of(), "--ways": one_of(),
            "--size": one_of(), "--minutes": ABOVE,
        },
    ),
    "diagnose": (
        ["RUN", "--quick", "--what", "weights", "--examples", "20"],
        {
            "--examples": whole(1), "--what": one_of("weights", "margins", "depth"),
            "--weights": one_of("last", "best"), "--data": one_of(), "--model": one_of(),
        },
    ),
    "transfer": (
        ["RUN", "--to", "synthetic:n_test=16", "--train", "100", "--workers", "1"],
        {
            "--to": one_of("synthetic:n_test=16"), "--train": whole(8, 200), "--val": INSIDE, "--seed": SEED,
            "--protocol": one_of("logistic", "ridge", "nearest", "neighbours", "seal"), "--episodes": whole(2),
            "--ways": whole(2), "--queries": whole(1), "--layer": one_of("all", "hidden1"), "--device": DEVICE,
            "--score": one_of("last", "best"), "--weights": one_of(), "--shots": one_of(), "--adapt": one_of(),
            "--size": one_of(), "--model": one_of(), "--input-size": one_of(), **READING, **EXPERIMENT,
        },
    ),
    "atlas": (
        ["synthetic:n_test=16", "--labels", "32", "--quick", "--methods", "ema", "--seeds", "1", "--workers", "1"],
        {
            "--labels": one_of("32"), "--data-dir": one_of(), "--add-to": one_of(), "--methods": METHODS,
            "--seeds": whole(1, 1000), "--tune": lambda text: whole(0, 1000)(text) and int(text) != 1,
            "--device": DEVICE, **EXPERIMENT,
        },
    ),
    "predict": (["RUN", "image.png"], {"--model": one_of("mlp:hidden=4")}),
    "export": (
        ["RUN", "--format", "torch", "--to", "model.pt2"],
        {
            "--format": one_of("torch"), "--to": one_of("model.pt2"), "--weights": one_of("last", "best"),
            "--model": one_of("mlp:hidden=4"),
        },
    ),
    "reproduce": (
        ["lw-table1", "--seeds", "0"],  # never valid: a table takes minutes
        {"--seeds": whole(1, 1000), "--data-dir": one_of(), **EXPERIMENT},
    ),
    "list": (["methods"], {}),
}  # fmt: skip
FIRST: dict[str, Valid] = {  # the argument
    "train": one_of("synthetic:n_test=16"), "compare": one_of("synthetic:n_test=16"),
    "tune": one_of("synthetic:n_test=16"), "semi": one_of("digits"), "fewshot": one_of("sinusoid"),
    "diagnose": one_of("RUN"), "transfer": one_of("RUN"), "export": one_of("RUN"),
    "predict": one_of("RUN"), "reproduce": TABLES, "atlas": one_of("synthetic:n_test=16"),
    "list": one_of("methods", "models", "data"),
}  # fmt: skip
NOISE = [
    "nan", "inf", "-inf", "-1", "0", "-0.5", "1e999", "-1e300", "9" * 26, "-" + "9" * 26, "1000000001", "9" * 5000,
    "1.5", "two", "", " ", ",,,", ":", "=", "+", "a=b", "x:y", "None", "true", "[]", "ünïcode", "０", "\u202e", "🌾",
    "no/such/path", "~nosuch/x", "/dev/null", "/", ".", "..", "--", "-", "$HOME", "%s%n", "{0}", "\\", "'", "mlp:",
    "mlp:hidden=", "mlp:hidden=-1", "mlp:hidden=1e9", "mlp:hidden=999999999999", "cpu:99", "cuda:77", "meta",
    "llf:late=nan", "seal:scale=1e999", "ema+ema+ema", "llf++", "os:system", "nosuchmodule:net", "9e99", "1e-400",
]  # fmt: skip


@dataclass
class Case:
    """A request, and whether every value in it is one that its option may have."""

    words: list[str]
    valid: bool


def requests(count: int, seed: int = 0) -> list[Case]:
    """Commands of which one to three words were changed by chance, and that are not valid any more."""
    rng = random.Random(seed)
    found: list[Case] = []
    while len(found) < count:
        verb = rng.choice([*COMMANDS, "train", "compare", "semi", "tune", "fewshot"])
        words, options = COMMANDS[verb]
        words = [verb, *words]
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            words = _changed(words, options, rng)
        case = Case(words, is_valid(words))
        if not case.valid or rng.random() < 0.02:  # most work would be to train what is right
            found.append(case)
    return found


def _changed(words: list[str], options: dict[str, Valid], rng: random.Random) -> list[str]:
    if not words:
        return words
    words = list(words)
    at = rng.randrange(len(words))
    ways = ["option"] * 6 + ["mistype", "lose", "replace", "twice", "verb"]
    way = rng.choice(ways if options else ways[6:])
    if way == "option":
        name = rng.choice(list(options))
        if name in words and rng.random() < 0.8 and words.index(name) + 1 < len(words):
            words[words.index(name) + 1] = rng.choice(NOISE)
        else:
            words += [name, rng.choice(NOISE)] if rng.random() < 0.95 else [name]
    elif way == "mistype" and words[at]:
        letter = rng.randrange(len(words[at]))
        words[at] = words[at][:letter] + rng.choice("qzé=:,-") + words[at][letter + rng.randrange(2) :]
    elif way == "lose":
        del words[at]
    elif way == "replace":
        words[at] = rng.choice(NOISE)
    elif way == "twice":
        words.insert(at, words[at])
    elif way == "verb":
        words[:1] = [rng.choice(["", "trian", "COMPARE", "-x", "--quiet=3", "help", "нет"])]
    return words


def is_valid(words: list[str]) -> bool:
    """Whether the words are a command, by the tables above; flags that are not in them were mistyped."""
    if not words or words[0] not in COMMANDS:
        return words in ([], ["--help"], ["--version"])
    verb, *rest = words
    options, plain = COMMANDS[verb][1], []
    given: dict[str, str] = {}
    while rest:
        word = rest.pop(0)
        if word == "--quick" and verb in ("diagnose", "atlas"):
            continue
        if word.startswith("-") and word != "-":
            name, equals, value = word.partition("=")
            if name not in options or not (equals or rest):
                return False
            given[name] = value if equals else rest.pop(0)
        else:
            plain.append(word)
    most = {"predict": 2, "compare": 1, "diagnose": 1}.get(verb, 1)
    if not (len(plain) == most and FIRST[verb](plain[0]) and all(options[name](given[name]) for name in given)):
        return False
    return verb not in ("predict", "reproduce") or plain[1:] == ["image.png"] or verb == "reproduce"


# ---- folders -----------------------------------------------------------------------------------------------------

TINY = ["synthetic:n_test=16", "--train", "32", "--epochs", "2", "--generations", "2"]
MAKE = {
    "run": ["train", *TINY, "--model", "mlp:hidden=4", "--method", "llf"],
    "comparison": ["compare", *TINY, "--models", "mlp:hidden=4", "--methods", "ema", "--seeds", "1", "--workers", "1"],
}


def prepare(home: Path) -> None:
    """A finished and an unfinished run and comparison, and an image."""
    from PIL import Image

    Image.new("L", (8, 8)).save(home / "image.png")
    for name, words in MAKE.items():
        code, _, said = call([*words, "--out", str(home / name)], seconds=300)
        assert code == 0, said
        shutil.copytree(home / name, home / f"unfinished-{name}")
    half = home / "unfinished-run"
    for path in ("result.json", "last.safetensors", "best.safetensors", "outputs.safetensors"):
        (half / path).unlink()
    half = home / "unfinished-comparison"
    shutil.rmtree(half / "best")
    (half / "report.html").unlink()
    first = sorted((half / "runs").iterdir())[0]
    for path in ("outcome.json", "result.json"):
        (first / path).unlink()
    with contextlib.closing(sqlite3.connect(half / "experiment.db")) as database, database:
        database.execute("DELETE FROM runs WHERE name = ?", (first.name,))


@dataclass
class Damage:
    """What is done to a file of a folder, and the verb that is called then."""

    folder: str
    file: str
    how: str
    seed: int
    verb: str


def damages(home: Path, count: int, seed: int = 0) -> list[Damage]:
    """Files of all four folders, each damaged in some way; every file's turn comes before one comes again."""
    rng = random.Random(seed)
    skipped = (".svg", ".csv", ".html")  # nothing reads them
    files = [
        (name, str(path.relative_to(home / name)))
        for kind in MAKE
        for name in (kind, f"unfinished-{kind}")
        for path in sorted((home / name).rglob("*"))
        if path.is_file() and not path.name.endswith(skipped)
    ]
    found: list[Damage] = []
    while len(found) < count:
        rng.shuffle(files)
        for name, file in files:
            verbs = ["again", "again", "predict", "diagnose", "transfer"]
            how = rng.choice(["truncate", "flip", "flip", "empty", "delete", "foreign", "folder"])
            found.append(Damage(name, file, how, rng.randrange(10**6), rng.choice(verbs)))
    return found[:count]


def damage(folder: Path, one: Damage) -> None:
    """Do it."""
    path, rng = folder / one.file, random.Random(one.seed)
    content = bytearray(path.read_bytes())
    path.unlink()
    if one.how == "delete":
        if rng.random() < 0.3 and path.parent != folder:
            shutil.rmtree(path.parent)
        return
    if one.how == "folder":
        path.mkdir()
        return
    if one.how == "truncate":
        content = content[: rng.randrange(len(content) + 1)]
    elif one.how == "empty":
        content = bytearray()
    elif one.how == "foreign":
        foreign = (b"[]", b"null", b"{}", b"\xff\xfe\x00", b"3", b'{"identity": 3}', b"\x00" * 64)
        content = bytearray(rng.choice(foreign))
    else:
        for _ in range(rng.choice((1, 4, 64))):
            if content:
                content[rng.randrange(len(content))] = rng.randrange(256)
    path.write_bytes(content)


def command(one: Damage, folder: Path, home: Path) -> list[str]:
    """The verb on the damaged folder."""
    if one.verb == "predict":
        return ["predict", str(folder), str(home / "image.png")]
    if one.verb == "diagnose":
        return ["diagnose", str(folder), "--quick", "--what", "weights", "--examples", "10"]
    if one.verb == "transfer":
        return ["transfer", str(folder), "--to", "synthetic:n_test=16", "--train", "60", "--workers", "1"]
    words = MAKE[one.folder.removeprefix("unfinished-")]
    return [*words, "--out", str(folder), *["--resume"] * (words[0] == "train")]


# ---- calls -------------------------------------------------------------------------------------------------------


class Hang(BaseException):
    """The time is over."""


@contextlib.contextmanager
def watchdog(seconds: int) -> Iterator[None]:
    def bark(*_: object) -> None:
        raise Hang

    timers = ((signal.ITIMER_PROF, signal.SIGPROF, seconds), (signal.ITIMER_REAL, signal.SIGALRM, PATIENCE * seconds))
    before = {number: signal.signal(number, bark) for _, number, _ in timers}
    for timer, _, time in timers:
        signal.setitimer(timer, time)
    try:
        yield
    finally:
        for timer, number, _ in timers:
            signal.setitimer(timer, 0)
            signal.signal(number, before[number])


def call(words: list[str], seconds: int = SECONDS) -> tuple[int | str, str, str]:
    """The command line in this process: exit code, or "traceback" or "hang"; what it printed."""
    from fallow.cli.main import main

    out, err = io.StringIO(), io.StringIO()
    before, path = sys.argv, list(sys.path)
    sys.argv = ["fallow", *words]
    code: int | str = "no exit"
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), watchdog(seconds):
            main()
    except SystemExit as end:
        code = int(end.code or 0)
    except Hang:
        code = "hang"
    except BaseException:
        code = "traceback"
        err.write(traceback.format_exc())
    finally:
        sys.argv, sys.path[:] = before, path
    return code, out.getvalue(), err.getvalue()


def one_line(said: str) -> bool:
    """Whether the error is a line, after what was remarked before it."""
    lines = said.splitlines()
    return bool(lines) and lines[-1].startswith("fallow: ") and "Traceback" not in said


def verdict(case: Case, home: Path) -> tuple[str, str]:
    """Of a request: "refused", "done", or what must not be."""
    words = [str(home / "run") if word == "RUN" else word for word in case.words]
    code, out, said = call(words)
    if isinstance(code, str):
        return code, said
    if code == 2:
        clean = said.count("\n") == 1 and one_line(said) and not out
        return ("refused" if clean else "more than a line"), said
    if case.valid:
        return "done", said
    return ("accepted nonsense", said) if code in (0, 1) else (f"exit {code}", said)


def damaged(one: Damage, home: Path) -> tuple[str, str]:
    """Of a folder: "said" or "went on", or what must not be."""
    with tempfile.TemporaryDirectory(dir=home) as name:
        folder = Path(name) / "folder"
        shutil.copytree(home / one.folder, folder)
        damage(folder, one)
        code, _, said = call(command(one, folder, home))
        if isinstance(code, str):
            return code, said
        if code == 0:
            return "went on", said
        if not one_line(said):
            return "more than a line", said
        if one.verb == "again" and (advised := advice(said)) is not None:
            shutil.rmtree(advised) if advised.is_dir() else advised.unlink()
            code, _, said = call(command(one, folder, home))
            return ("said" if code == 0 else "wedged"), said
        return ("wedged" if code == 1 and one.verb == "again" else "said"), said


def advice(said: str) -> Path | None:
    """What a line says should be deleted: that must help."""
    words = said.splitlines()[-1].removeprefix("fallow: ").split()
    if "delete" not in words:
        return None
    named = words[words.index("delete") + 1].rstrip(",:;")
    return Path(words[0] if named == "it" else named)


def spared() -> list[str]:
    """Options that the tables above do not know."""
    import typer

    from fallow.cli.main import app

    found = []
    for verb, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        known = {"--out", "--help", *COMMANDS.get(verb, ([], {}))[1]}
        options = [p for p in command.params if p.param_type_name == "option" and not p.is_flag]
        found += [f"{verb} {name}" for p in options for name in p.opts if name not in known]
    return found


GOOD = {"refused", "done", "said", "went on"}


def batch(kind: str, first: int, count: int, seed: int, home: Path) -> dict[str, Any]:
    """Some of the cases, in this process."""
    cases: list[Any] = requests(first + count, seed) if kind == "requests" else damages(home, first + count, seed)
    counts: Counter[str] = Counter()
    bad = []
    judge: Callable[[Any, Path], tuple[str, str]] = verdict if kind == "requests" else damaged
    with tempfile.TemporaryDirectory(dir=home) as name:
        os.chdir(name)
        for case in cases[first:]:
            shutil.copyfile(home / "image.png", "image.png")
            what, said = judge(case, home)
            counts[what] += 1
            if what not in GOOD:
                bad.append({"what": what, "case": asdict(case), "said": said[-1500:]})
    return {"counts": counts, "bad": bad}


def measure(repetitions: int | None = None) -> dict[str, Any]:
    """All of it, a process for every batch; ``repetitions`` is the seed."""
    seed = repetitions or 0
    counts: Counter[str] = Counter()
    bad: list[Any] = []
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        subprocess.run([sys.executable, "-m", "benchmarks.attack", "prepare", "0", "0", "0", name], check=True)
        for kind, total, each in (("requests", REQUESTS, BATCH), ("folders", FOLDERS, FOLDERS // 2)):
            for first in range(0, total, each):
                words = [kind, str(first), str(min(each, total - first)), str(seed), str(home)]
                ended = subprocess.run(
                    [sys.executable, "-m", "benchmarks.attack", *words], capture_output=True, text=True
                )
                if ended.returncode:
                    bad.append({"what": "the process died", "case": words, "said": ended.stderr[-1500:]})
                    continue
                found = json.loads(ended.stdout)
                bad += found["bad"]
                counts.update({f"{kind}: {what}": number for what, number in found["counts"].items()})
    for one in bad:
        print(json.dumps(one, ensure_ascii=False), file=sys.stderr)
    counts["options that are not attacked"] = len(spared())
    whats = Counter(one["what"] for one in bad)
    never = {f"never: {what}": whats[what] for what in ("traceback", "hang", "accepted nonsense", "wedged")}
    return {"ratios": {"as it should be": 1 - len(bad) / (REQUESTS + FOLDERS)}, "counts": dict(counts) | never}


if __name__ == "__main__":
    kind, first, count, seed, home = sys.argv[1:]
    if kind == "prepare":
        prepare(Path(home))
    else:
        print(json.dumps(batch(kind, int(first), int(count), int(seed), Path(home))))
