"""The colours of pages and figures, in light and in dark.

Every text colour has a contrast of 4.5 or more to what lies behind it; s0 to s6, for the lines of a chart, have 3.
"""

from __future__ import annotations

LIGHT = {
    "paper": "#ffffff",
    "panel": "#f5f6f4",
    "ink": "#1c2226",
    "muted": "#58626b",
    "rule": "#dfe3e4",
    "accent": "#24629e",
    "better": "#136c44",
    "worse": "#a5400b",
    "s0": "#3a6ea5", "s1": "#c2566a", "s2": "#228833", "s3": "#a06f00", "s4": "#1f8a9e", "s5": "#aa3377",
    "s6": "#777777",
}  # fmt: skip
DARK = {
    "paper": "#14181b",
    "panel": "#1d2327",
    "ink": "#e5e9eb",
    "muted": "#a4aeb6",
    "rule": "#343c42",
    "accent": "#82b6ec",
    "better": "#67cb97",
    "worse": "#f0a06d",
    "s0": "#82b6ec", "s1": "#f0909e", "s2": "#6fce7f", "s3": "#e0b04a", "s4": "#6fd0e0", "s5": "#e58abb",
    "s6": "#b0b0b0",
}  # fmt: skip
SERIES = 7  # colours, told apart without red or green
DASHES = 4  # and dashes, where there are more lines than colours

# Words and lines as well as colours tell what is what: shapes for verdicts, dashes for the control.
FIGURE = """
.fig text { font: 11px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; fill: var(--ink); }
.fig text.soft { fill: var(--muted); }
.fig text.name { font-weight: 600; }
.fig .rule { stroke: var(--rule); stroke-width: 1; fill: none; }
.fig .zero { stroke: var(--muted); stroke-width: 1; fill: none; }
.fig .edge { stroke: var(--muted); stroke-width: 1; stroke-dasharray: 1 3; fill: none; }
.fig .lead { stroke: var(--muted); stroke-width: .6; fill: none; opacity: .6; }
.fig .plain, .fig .points { color: var(--accent); }
.fig .better { color: var(--better); }
.fig .worse { color: var(--worse); }
.fig .quiet { color: var(--muted); }
.fig .whisker { stroke: currentColor; stroke-width: 1.6; fill: none; }
.fig .mark { fill: currentColor; stroke: currentColor; stroke-width: 1.4; }
.fig .open { fill: var(--paper); }
.fig .seed { fill: currentColor; opacity: .35; }
.fig .bar { fill: currentColor; opacity: .55; }
.fig .area { fill: currentColor; opacity: .16; }
.fig .dot { fill: currentColor; }
.fig .stroke { stroke: currentColor; stroke-width: 1.7; fill: none; stroke-linejoin: round; }
.fig .quiet .stroke { stroke-width: 1.2; stroke-dasharray: 4 2.5; }
.fig .d1 .stroke { stroke-dasharray: 7 3; }
.fig .d2 .stroke { stroke-dasharray: 2 2.5; }
.fig .d3 .stroke { stroke-dasharray: 8 2.5 2 2.5; }
.fig .right { fill: var(--accent); }
.fig .wrong { fill: var(--worse); }
""" + "".join(f".fig .s{i} {{ color: var(--s{i}); }}\n" for i in range(SERIES))


def series(i: int, dash: int = 0) -> str:
    """The colour and the dashes of the i-th of several lines.

    >>> series(0), series(8), series(1, dash=1)
    ('s0 d0', 's1 d1', 's1 d1')
    """
    return f"s{i % SERIES} d{(i // SERIES + dash) % DASHES}"


def variables(palette: dict[str, str]) -> str:
    """The palette as custom properties, for the page."""
    return " ".join(f"--{name}: {colour};" for name, colour in palette.items())


def alone() -> str:
    """The style of a figure in a file of its own: plain colours, since many programs know no custom properties."""
    rules = "svg.fig { background: var(--paper); }" + FIGURE
    return f"{_filled(rules, LIGHT)}@media (prefers-color-scheme: dark) {{{_filled(rules, DARK)}}}"


def _filled(rules: str, palette: dict[str, str]) -> str:
    for name, colour in palette.items():
        rules = rules.replace(f"var(--{name})", colour)
    return rules
