"""How to look at a page: its elements, its text, and itself in a browser."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

EVIL = "<script>alert(1)</script>"


def plain(page: str) -> str:
    """The text of a page with single spaces."""
    page = re.sub(r"<style>.*?</style>|<wbr>", "", page, flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page).replace("&nbsp;", " "))


class Elements(HTMLParser):
    """Every element with its attributes and those that it lies in."""

    VOID = {"meta", "link", "img", "br", "wbr"}

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.all: list[tuple[str, dict[str, str | None], tuple[str, ...]]] = []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.all.append((tag, dict(attrs), tuple(self.open)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.all.append((tag, dict(attrs), tuple(self.open)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def named(self, *tags: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes, _ in self.all if tag in tags]


OVERFLOW = """() => {
  const found = [];
  const note = (what, e) => found.push(`${what}: ${e.tagName} ${e.textContent.trim().slice(0, 60)}`);
  for (const e of document.querySelectorAll('main *')) {
    if (e.closest('svg, details') || e.matches('pre, .scroll')) continue;
    if (getComputedStyle(e).display !== 'inline' && e.scrollWidth > e.clientWidth + 1) note('too long', e);
    if (!e.closest('.scroll, pre') && e.getBoundingClientRect().right > innerWidth + 1) note('beyond the page', e);
  }
  for (const e of document.querySelectorAll('svg.fig text')) {
    const box = e.getBoundingClientRect(), outer = e.closest('svg.fig').getBoundingClientRect();
    const beside = box.left < outer.left - 2 || box.right > outer.right + 2;
    if (beside || box.top < outer.top - 3 || box.bottom > outer.bottom + 3) note('outside its figure', e);
  }
  return found;
}"""


def opens(browser: Any, page_file: Path) -> None:
    """Narrow and wide, light, dark and printed: nothing is said, asked for or cut off."""
    grounds = {}
    for width, scheme in ((375, "light"), (1200, "dark")):
        context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme, offline=True)
        page = context.new_page()
        said: list[str] = []
        asked: list[str] = []
        page.on("console", lambda message, said=said: said.append(message.text))
        page.on("pageerror", lambda error, said=said: said.append(str(error)))
        page.on("dialog", lambda dialog, said=said: (said.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request, asked=asked: asked.append(request.url))
        page.goto(page_file.as_uri())
        assert said == []
        assert [url for url in asked if not url.startswith("data:")] == [page_file.as_uri()]
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(OVERFLOW) == []
        assert page.evaluate("[...document.images].every(image => image.complete && image.naturalWidth > 0)")
        ground = "getComputedStyle(document.body).backgroundColor"
        grounds[scheme] = (page.evaluate(ground), page.screenshot(clip={"x": 0, "y": 0, "width": 8, "height": 8}))
        page.emulate_media(media="print")
        assert page.evaluate(ground) == "rgb(255, 255, 255)"  # paper is white in the dark, too
        context.close()
    assert grounds["light"][0] != grounds["dark"][0]
    assert grounds["light"][1] != grounds["dark"][1]
