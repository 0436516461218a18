"""The site: ``sphinx-build -W docs build/site`` (extra: docs)."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import fallow

HERE = Path(__file__).parent
ROOT = HERE.parent

sys.path.insert(0, str(HERE))

project = "fallow"
author = "the fallow developers"
copyright = "the fallow developers"
version = release = fallow.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_gallery.gen_gallery",
    "links",
]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
exclude_patterns = ["_report", "gallery/*.ipynb", "gallery/*.py", "gallery/*.json", "**/README.txt", "evidence/**"]
suppress_warnings = ["config.cache"]  # sphinx-gallery's settings hold functions

autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_class_signature = "mixed"
python_use_unqualified_type_names = True

sphinx_gallery_conf = {
    "examples_dirs": str(ROOT / "examples"),
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py",
    "ignore_pattern": r"(augmented|few_labels)\.py",  # commands with arguments, for data of one's own
    "download_all_examples": False,
    "show_memory": False,
    "min_reported_time": 3600,  # times of one machine say nothing of another
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "remove_config_comments": True,
}

html_theme = "pydata_sphinx_theme"
html_title = "fallow"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_extra_path = ["_report"]
html_theme_options = {
    "navbar_align": "left",
    "show_toc_level": 2,
    "header_links_before_dropdown": 7,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
}
html_sidebars = {page: [] for page in ("index", "start", "which", "evidence", "reference")}
maximum_signature_line_length = 100


def _a_real_report() -> None:
    """The report that the start page links to: of a comparison that was made already, or of a quick one."""
    made, kept = ROOT / "comparisons" / "digits" / "report.html", HERE / "_report" / "digits-report.html"
    kept.parent.mkdir(exist_ok=True)
    if not made.exists() and not kept.exists():
        out = ROOT / "build" / "digits"
        words = ["compare", "digits", "--quick", "--methods", "llf,lw,mixup,ema", "--out", str(out)]
        subprocess.run([sys.executable, "-m", "fallow", *words], check=True, stdout=subprocess.DEVNULL)
        made = out / "report.html"
    if made.exists():
        shutil.copyfile(made, kept)


_a_real_report()
