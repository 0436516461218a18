"""One look for every page: a base page, one style, one way to draw, and words for numbers.

>>> from fallow.report.page import Page, Section
>>> from fallow.report.pieces import paragraph
>>> page = Page("A < B?", "fallow demo", "A is no larger.", [Section("Numbers", [paragraph("1 < 2")])])
>>> b"A &lt; B?" in page.render()
True
"""
