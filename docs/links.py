"""A site with a dead link does not build: every link, image and anchor of its own pages must be there."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError


class Page(HTMLParser):
    """What a page points to, and what can be pointed to on it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.anchors = {""}
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect it."""
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.links.add(value)
            elif value and (name == "id" or (tag == "a" and name == "name")):
                self.anchors.add(value)


def dead(site: Path) -> list[str]:
    """The links within a folder of pages that lead nowhere, as "page: link"."""
    made = (path for path in site.rglob("*.html") if "_static" not in path.parts)  # there are the theme's templates
    pages = {path.resolve(): Page(path) for path in made}
    found = []
    for path, page in pages.items():
        for link in sorted(page.links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            there = pages.get(target)
            if not target.exists() or (there and unquote(parts.fragment) not in there.anchors):
                found.append(f"{path.relative_to(site.resolve())}: {link}")
    return found


def check(app: Sphinx, error: Exception | None) -> None:
    """Refuse the site if a link of its own is dead."""
    if error is None and app.builder.format == "html" and (found := dead(Path(app.outdir))):
        raise ExtensionError(f"{len(found)} dead links: {'; '.join(found)}")


def setup(app: Sphinx) -> dict[str, bool]:
    """Sphinx calls this."""
    app.connect("build-finished", check)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
