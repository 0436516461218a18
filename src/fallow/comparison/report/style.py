"""The colours of page and figures, in light and in dark; every text colour has a contrast of 4.5 or more."""

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
}
DARK = {
    "paper": "#14181b",
    "panel": "#1d2327",
    "ink": "#e5e9eb",
    "muted": "#a4aeb6",
    "rule": "#343c42",
    "accent": "#82b6ec",
    "better": "#67cb97",
    "worse": "#f0a06d",
}

# Words and lines as well as colours tell what is what: shapes for verdicts, dashes for the control.
FIGURE = """
.fig text { font: 11px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; fill: var(--ink); }
.fig text.soft { fill: var(--muted); }
.fig text.name { font-weight: 600; }
.fig .rule { stroke: var(--rule); stroke-width: 1; fill: none; }
.fig .zero { stroke: var(--muted); stroke-width: 1; fill: none; }
.fig .edge { stroke: var(--muted); stroke-width: 1; stroke-dasharray: 1 3; fill: none; }
.fig .lead { stroke: var(--muted); stroke-width: .6; fill: none; opacity: .6; }
.fig .plain { color: var(--accent); }
.fig .better { color: var(--better); }
.fig .worse { color: var(--worse); }
.fig .quiet { color: var(--muted); }
.fig .whisker { stroke: currentColor; stroke-width: 1.6; fill: none; }
.fig .mark { fill: currentColor; stroke: currentColor; stroke-width: 1.4; }
.fig .open { fill: var(--paper); }
.fig .seed { fill: currentColor; opacity: .35; }
.fig .band { fill: var(--accent); opacity: .18; }
.fig .curve { stroke: var(--accent); stroke-width: 1.7; fill: none; stroke-linejoin: round; }
.fig .control { stroke: var(--muted); stroke-width: 1.2; fill: none; stroke-dasharray: 4 2.5; }
.fig .right { fill: var(--accent); }
.fig .wrong { fill: var(--worse); }
"""


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
