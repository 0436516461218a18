"""Write docs/evidence.md, the atlas' picture and the README's lines on it from what is stored here.

That is claims.toml, tables/*.csv, atlas.csv and sections/*.md.

python docs/evidence/build.py                        the page
python docs/evidence/build.py add reproduced/NAME    the tables of a folder that `fallow reproduce` left, then the page
python docs/evidence/build.py add comparisons/NAME   what `fallow compare` left, then the page
python docs/evidence/build.py add FOLDER … --measured 'commit 1fd46eb'      where it is not the commit at hand
python docs/evidence/build.py add FOLDER …           of `--seed 2 --seeds 1`, where seeds 0 and 1 are here: pooled
python docs/evidence/build.py add atlas              the rows that `fallow atlas` left, then the page

A section is Markdown with {{table NAME}}, {{comparison NAME}}, {{claims PAPER}}, {{verdicts}}, {{short}}, {{without}},
{{atlas}}, {{counted METHOD}} or {{unfitted}} where something made from the files belongs; a table that no section names
comes at the end. No table of the page is written by hand.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from fallow.atlas import rows
from fallow.atlas.drawing import drawing
from fallow.atlas.findings import Atlas
from fallow.atlas.page import markdown, named
from fallow.base import toml
from fallow.base.errors import FallowError, RequestError
from fallow.report.words import listed, percent
from fallow.reproduce import TABLES as TABLES_OF
from fallow.reproduce import stored
from fallow.reproduce.table import Table

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
import compared  # noqa: E402

PAGE = HERE.parent / "evidence.md"
TABLES, SECTIONS, COMPARISONS = HERE / "tables", HERE / "sections", HERE / "comparisons"
ROWS, PICTURE = HERE / "atlas.csv", HERE / "atlas.svg"
FITTED = 0.99  # of the training examples, below which a baseline is not judged
VERDICTS = ("holds", "does not hold here", "explained by", "could not be tried")
KEYS = {"paper", "where", "claim", "tried", "command", "minutes", "theirs", "verdict", "why"}
README = HERE.parents[1] / "README.md"
START, END = "<!-- atlas: made by docs/evidence/build.py -->", "<!-- end of the atlas -->"
PLACE = re.compile(r"\{\{(\w+)(?: ([\w.-]+))?\}\}")
MADE = "<!-- made by docs/evidence/build.py: change the files in docs/evidence/, not this page -->"


def claims() -> dict[str, Any]:
    """What the papers claim, with our verdicts."""
    return toml.read(HERE / "claims.toml", "list of claims")


def table(name: str) -> Table:
    """A stored table."""
    return stored.read(TABLES / f"{name}.csv")


def page() -> str:
    """The whole page."""
    whole = "\n\n".join(path.read_text("utf-8").strip() for path in sorted(SECTIONS.glob("*.md")))
    shown = {name for what, name in PLACE.findall(whole) if what == "table"}
    if rest := [path.stem for path in sorted(TABLES.glob("*.csv")) if path.stem not in shown]:
        whole += "\n\n## More tables\n\n" + "\n\n".join(f"{_head(name)}\n\n{{{{table {name}}}}}" for name in rest)
    shown = {name for what, name in PLACE.findall(whole) if what == "comparison"}
    if rest := [path.stem for path in sorted(COMPARISONS.glob("*.csv")) if path.stem not in shown]:
        whole += "\n\n## More comparisons\n\n" + "\n\n".join(f"{{{{comparison {name}}}}}" for name in rest)
    made = {
        "table": _table,
        "comparison": _comparison,
        "claims": _claims,
        "verdicts": _verdicts,
        "short": _short,
        "without": _without,
        "atlas": _atlas,
        "counted": _counted,
        "unfitted": _unfitted,
    }
    return f"{PLACE.sub(lambda found: made[found[1]](*filter(None, [found[2]])), whole)}\n\n{MADE}\n"


def _head(name: str) -> str:
    """What a table shows, where no section says it."""
    of = shlex.split(table(name).command)[2]
    return f"{TABLES_OF[of].paper}: {TABLES_OF[of].shows}."


def _table(name: str) -> str:
    """As `fallow reproduce` prints it, with what it was measured with."""
    found = table(name)
    spent = f"; its runs took {minutes(found.seconds / 60)}, one after another" if found.seconds else ""
    return f"```\n{found}\n```\n\n`{found.command}`, measured with {found.measured}{spent}."


def _comparison(name: str) -> str:
    return compared.markdown(COMPARISONS / f"{name}.csv")


def _claims(paper: str) -> str:
    lines = ["| where | claim | tried | theirs | ours | verdict |", "|---|---|---|---|---|---|"]
    for claim in claims()["claim"]:
        if claim["paper"] == paper:
            tried = f"{claim['tried']}: `{claim['command']}`, {cost(claim)}"
            verdict = f"**{claim['verdict']}**{': ' if claim['verdict'] in VERDICTS[2:] else '; '}{claim['why']}"
            cells = [_where(claim["where"]), claim["claim"], tried, claim["theirs"], ours(claim), verdict]
            lines.append(f"| {' | '.join(text.replace('|', chr(92) + '|') for text in cells)} |")
    return "\n".join(lines)


def _where(places: list[str]) -> str:
    """Tables and figures in a few words.

    >>> _where(["table 1", "table 2", "figure A.1"])
    'tables 1, 2; figure A.1'
    """
    kinds: dict[str, list[str]] = {}
    for place in places:
        kind, _, name = place.partition(" ")
        kinds.setdefault(kind, []).append(name)
    return "; ".join(f"{kind}{'s' * (len(names) > 1)} {', '.join(names)}" for kind, names in kinds.items())


def ours(claim: dict[str, Any]) -> str:
    """Our number: cells of a stored table, rows of a stored comparison, counts of the atlas."""
    said = []
    if "cells" in claim:
        found = table(claim["table"])
        shown = _named({f"{c.row} | {c.column}": c for c in found.cells}, claim["cells"], claim["table"])
        numbers = [f"{c.row}, {c.column}: {c.shown(found.unit)}" for c in shown]
        said.append(f"{'; '.join(numbers)} ({found.measured})".replace(": -", ": −"))
    if "rows" in claim:
        about, lines = compared.read(COMPARISONS / f"{claim['comparison']}.csv")
        shown = _named({line["method"]: line for line in lines}, claim["rows"], claim["comparison"])
        said.append(f"{'; '.join(map(compared.said, shown))} ({about['measured']})")
    if "atlas" in claim:
        atlas = Atlas(rows.read(ROWS))
        said.append(f"In the atlas, {'; '.join(_counted(method, atlas) for method in claim['atlas'])}")
    return ". ".join(said) or "–"


def _named(found: dict[str, Any], names: list[str], place: str) -> list[Any]:
    """What is found under the names."""
    for name in names:
        if name not in found:
            raise RequestError(f"{place} has no {name!r}, which claims.toml names: {list(found)}")
    return [found[name] for name in names]


def _counted(method: str, atlas: Atlas | None = None) -> str:
    """In how many settings a method is better than as much plain training, by where training starts."""
    atlas = atlas or Atlas(rows.read(ROWS))
    by: dict[str, list[str]] = {}
    for row in atlas.judged(method):
        start = "from scratch" if row.start == rows.SCRATCH else f"on features of {row.model}"
        by.setdefault(start, []).append(row.verdict)
    counts = [f"{verdicts.count('better')} of {len(verdicts)} {start}" for start, verdicts in by.items()]
    return f"{method} is better in {', '.join(counts)}"


def cost(claim: dict[str, Any]) -> str:
    """What the runs of the stored table took, one after another on a busy machine, or the CPU time to expect."""
    taken = table(claim["table"]).seconds / 60 if "table" in claim else 0.0
    return f"took {minutes(taken)}" if taken else f"about {minutes(claim['minutes'])}"


def minutes(count: float) -> str:
    """A time in words."""
    if count >= 2880:
        return f"{count / 1440:.0f} days"
    if count >= 90:
        return f"{count / 60:.1f} hours".replace(".0 ", " ")
    return "a minute" if count < 1.5 else f"{count:.0f} minutes"


def _verdicts() -> str:
    found = claims()
    counts = {paper: Counter(c["verdict"] for c in found["claim"] if c["paper"] == paper) for paper in found["papers"]}
    lines = [f"| | {' | '.join(VERDICTS)} | claims |", "|---|" + "---|" * (len(VERDICTS) + 1)]
    for paper, each in counts.items():
        lines.append(f"| {paper} | {' | '.join(str(each[v]) for v in VERDICTS)} | {each.total()} |")
    whole = sum(counts.values(), Counter())
    lines.append(f"| all | {' | '.join(str(whole[v]) for v in VERDICTS)} | {whole.total()} |")
    return "\n".join(lines)


def _short() -> str:
    """What holds, and what has another explanation, a line each."""
    said = {
        "holds": "**What holds here:**",
        "explained by": "**Where a control explains what is seen, whether the effect appears or not:**",
    }
    lines = []
    for verdict, head in said.items():
        found = [claim for claim in claims()["claim"] if claim["verdict"] == verdict]
        lines += [head, ""]
        for claim in found:
            why = re.split(r"[.;:] |, for example|$", claim["why"], maxsplit=1)[0] if verdict != "holds" else ""
            place = f"{claim['paper']}, {_where(claim['where'])}"
            lines.append(f"- {place}: {claim['claim'].rstrip('.')}{f' (explained by {why})' if why else ''}.")
        lines.append("")
    return "\n".join(lines).rstrip()


def _without() -> str:
    return "; ".join(f"{where}: {why}" for where, why in claims()["without"].items()) + "."


def _atlas() -> str:
    """The picture, what to do with it, and the tables behind it."""
    if not ROWS.exists():
        return "It has not been run at a size worth publishing."
    atlas = Atlas(rows.read(ROWS))
    return f"![{atlas.sentences[0]}](evidence/{PICTURE.name})\n\n{markdown(atlas)}"


def _unfitted() -> str:
    """Where plain training of the atlas has not fitted its examples: what was not trained is not judged."""
    atlas = Atlas(rows.read(ROWS))
    fits = {setting: row.training for setting in atlas.settings if (row := atlas.at("long", setting)) is not None}
    short = {setting: fit for setting, fit in fits.items() if fit is not None and fit < FITTED}
    said = listed([f"{named(setting)} ({percent(fit)} %)" for setting, fit in short.items()])
    whole = f"Plain training (`long`) has fitted {100 * FITTED:.0f} % of its examples or more in"
    return f"{whole} {len(fits) - len(short)} of {len(fits)} settings" + (f", all but {said}." if short else ".")


def picture() -> str:
    """The atlas as it is drawn today."""
    return drawing(Atlas(rows.read(ROWS))).file().decode()


def readme() -> str:
    """The README with the picture of the atlas in its first screen, once there is one."""
    before, _, rest = README.read_text("utf-8").partition(START)
    _, _, after = rest.partition(END)
    shown = ""
    if ROWS.exists():
        atlas = Atlas(rows.read(ROWS))
        seen = f"![Where does which method help?](docs/evidence/{PICTURE.name})"
        use = "Find the column most like your data, and compare its ▲: `fallow compare DATA --methods …`."
        shown = "\n".join([seen, "", " ".join(atlas.sentences[:-1]), f"{use} [The atlas](docs/atlas.md)", ""])
    return f"{before}{START}\n{shown}{END}{after}"


def add(folder: Path, measured: str = "") -> list[Path]:
    """Take what a command left: the files that were written here. ``measured`` says by which version, else this one."""
    if (folder / ROWS.name).is_file():
        return [Path(shutil.copy(folder / ROWS.name, ROWS))]
    if (folder / "summary.csv").is_file():
        COMPARISONS.mkdir(exist_ok=True)
        path = COMPARISONS / f"{folder.resolve().name}.csv"
        path.write_text(compared.text(folder, measured or _commit().strip("()")), "utf-8")
        return [path]
    found = [folder] if folder.is_file() else sorted(folder.glob("*.csv")) or sorted(folder.glob("*.json"))
    if not found:
        raise RequestError(f"{folder} holds no table: give a folder that fallow reproduce or fallow atlas has left")
    written = []
    for path in found:
        made = stored.read(path) if path.suffix == ".csv" else stored.of(json.loads(path.read_text("utf-8")))
        made.measured = measured or " ".join(filter(None, [made.measured, _commit()]))
        made.command = _public(made.command or f"fallow reproduce {made.name}")
        written.append(TABLES / f"{made.name}.csv")
        if _seed(made.command) and written[-1].exists():
            made = _with_earlier(made)
        written[-1].write_text(stored.text(made), "utf-8")
    return written


def _seed(command: str) -> int:
    """The first seed of a table.

    >>> _seed("fallow reproduce lw-table2 --seed=2 --seeds 1"), _seed("fallow reproduce lw-table2 --seeds 1")
    (2, 0)
    """
    found = re.search(r"--seed[ =](\d+)", command)
    return int(found[1]) if found else 0


def _with_earlier(made: Table) -> Table:
    """A table of later seeds, pooled with that of the earlier ones; its command is the one that has them all."""
    before = table(made.name)
    start, first = _seed(before.command), _seed(made.command)
    next_ = start + max(c.seeds for c in before.cells)
    if first != next_:
        raise RequestError(f"{made.name} begins with seed {first}, and {start} to {next_ - 1} are stored: add {next_}")
    whole = stored.pooled(before, made)
    begins = f" --seed {start}" if start else ""
    command = re.sub(r" --seeds?[ =]\d+", "", made.command)
    whole.command = f"{command}{begins} --seeds {max(c.seeds for c in whole.cells)}"
    return whole


def _commit() -> str:
    """The commit of the working tree that a table is added to, which is about what measured it."""
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=HERE, capture_output=True, text=True, check=False
    )
    return f"(commit {done.stdout.strip()})" if done.returncode == 0 else ""


def _public(command: str) -> str:
    """A command without the paths of the machine that it ran on, nor what changes no number.

    >>> _public("fallow reproduce fam-rte --data-dir /home/me/data --out /tmp/x --workers 2 --seeds 3")
    'fallow reproduce fam-rte --data-dir DIR --seeds 3'
    """
    command = re.sub(r"--data-dir[ =]\S+", "--data-dir DIR", command)
    return re.sub(r" --(?:out|workers|engine|address)[ =]\S+| --(?:quiet|json)\b", "", command)


def main(words: list[str]) -> None:
    """Add what is named, and write the page."""
    measured = words.pop() if "--measured" in words[-2:-1] else ""
    folders = [Path(word) for word in words[1:] if word != "--measured"]
    if words and (words[0] != "add" or not folders):
        raise RequestError("python docs/evidence/build.py [add FOLDER … [--measured 'commit 1fd46eb']]")
    for folder in folders:
        for path in add(folder, measured):
            print(path)
    drawn = [(PICTURE, picture())] if ROWS.exists() else []
    for path, text in ((PAGE, page()), (README, readme()), *drawn):
        path.write_text(text, "utf-8")
        print(path)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except FallowError as error:
        sys.exit(str(error))
