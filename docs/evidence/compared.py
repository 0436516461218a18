"""A comparison as it is stored here: what a reader needs of its summary.csv, and the command that repeats it."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from fallow.base import toml
from fallow.comparison.race import plain
from fallow.report.words import p_value, percent, points

COLUMNS = ("data", "model", "method", "verdict", "seeds", "mean", "low", "high", "training", "control_to",
           "control_difference", "control_low", "control_high", "control_p_holm", "settings")  # fmt: skip
FLAGS = (
    "freeze",
    "epochs",
    "generations",
    "lr",
    "augment",
    "split",
    "metric",
)  # of the training, with options of their own


def text(folder: Path, measured: str) -> str:
    """The file of a comparison's folder: the command, with what it was measured, and a line for every row."""
    asked = command(toml.read(folder / "plan.toml", "plan"))
    out = io.StringIO(f"# command: {asked}\n# measured: {measured}\n")
    out.seek(0, io.SEEK_END)
    lines = csv.writer(out, lineterminator="\n")
    lines.writerow(COLUMNS)
    with open(folder / "summary.csv", newline="", encoding="utf-8") as file:
        lines.writerows([_short(row[name]) for name in COLUMNS] for row in csv.DictReader(file))
    return out.getvalue()


def _short(cell: str) -> str:
    """Six digits are more than any seed moves."""
    try:
        return f"{float(cell):.6g}"
    except ValueError:
        return cell


def command(plan: dict[str, Any]) -> str:
    """What repeats it, with the names of the data and no paths.

    >>> command({"data": ["/a/b.npz"], "methods": ["long", "llf", "sam"], "seeds": 5, "train": 100, "tune": 0,
    ...          "settings": {"freeze": "head", "clip": 1}})
    'fallow compare b.npz --methods llf,sam --train 100 --seeds 5 --freeze head --set clip=1'
    """
    words = ["fallow compare", *(Path(name).name for name in plan["data"])]
    words.append(f"--methods {','.join(name for name in plan['methods'] if not plain(name))}")
    words += [f"--models {','.join(plan['models'])}"] if plan.get("models") else []
    words += [f"--{key} {plan[key]}" for key in ("train", "seeds", "tune", "folds") if plan.get(key)]
    words += ["--quick"] if plan.get("quick") else []
    settings = plan.get("settings", {})
    words += [f"--{key} {settings[key]}" for key in FLAGS if key in settings]
    rest = [f"{key}={value}" for key, value in settings.items() if key not in FLAGS]
    return " ".join([*words, *([f"--set {','.join(rest)}"] if rest else [])])


def read(path: Path) -> tuple[dict[str, str], list[dict[str, str]]]:
    """The stored file: what repeats it and what it was measured with, and its rows."""
    with open(path, newline="", encoding="utf-8") as file:
        about = dict(line[2:].rstrip("\n").split(": ", 1) for line in (file.readline(), file.readline()))
        return about, list(csv.DictReader(file))


def said(row: dict[str, str]) -> str:
    """A row in words.

    >>> said({"method": "fam", "mean": "0.8", "control_to": "long", "control_difference": "0.05", "control_low": "0.03",
    ...       "control_high": "0.07"})
    'fam 80.0 %, +5.0 (+3.0 to +7.0) points to long'
    """
    difference = f", {_difference(row)} points to {row['control_to']}" if row["control_difference"] else ""
    return f"{row['method']} {percent(float(row['mean']))} %{difference}"


def _difference(row: dict[str, str]) -> str:
    """The difference to the control, with its interval."""
    gain, low, high = (row[f"control_{key}"] for key in ("difference", "low", "high"))
    return f"{points(float(gain))} ({points(float(low))} to {points(float(high))})" if gain and low and high else ""


def markdown(path: Path) -> str:
    """The stored file as a table."""
    about, rows = read(path)
    head = [
        "method",
        "seeds",
        "test, %",
        "95 % interval",
        "training, %",
        "to the control",
        "p (Holm)",
        "verdict",
        "settings",
    ]
    lines = [f"`{about['command']}`, measured with {about['measured']}:", ""]
    for setting in dict.fromkeys((row["data"], row["model"]) for row in rows if row["model"]):
        here = [row for row in rows if row["data"] == setting[0] and row["model"] in (setting[1], "")]
        lines += [f"{setting[0]}, {setting[1]}", "", f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
        lines += [f"| {' | '.join(_cells(row))} |" for row in here] + [""]
    return "\n".join(lines).rstrip()


def _cells(row: dict[str, str]) -> list[str]:
    number = {key: float(row[key]) if row[key] else None for key in ("mean", "low", "high", "training")}
    interval = f"{percent(number['low'])} to {percent(number['high'])}" if number["low"] is not None else ""
    p = row["control_p_holm"]
    return [
        row["method"], row["seeds"], percent(number["mean"]), interval,
        percent(number["training"]) if number["training"] is not None else "",
        f"{_difference(row)} {row['control_to']}".strip(), p_value(float(p)) if p else "", row["verdict"],
        row["settings"],
    ]  # fmt: skip
