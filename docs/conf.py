"""The site: `make docs` builds it, with warnings as errors and without the network."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))
# Before torch: threads that wait for each other spin, which is ruinous on a busy machine.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

from pages import REPOSITORY  # noqa: E402

import crumb  # noqa: E402

project = "CRUMB"
author = "The CRUMB developers"
copyright = author
version = release = crumb.__version__

extensions = ["sphinx.ext.autodoc", "sphinx.ext.autosummary", "numpydoc", "myst_parser"]
extensions += ["sphinx_design", "sphinx_gallery.gen_gallery", "pages"]
exclude_patterns = ["_build"]
templates_path = ["_templates"]
nitpicky = True

# Pages are Markdown that a code host shows too. `#section` links need anchors of headings.
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
# README.md of the experiments is a page; report.html beside it is a file.
suppress_warnings = ["config.cache"]  # functions in sphinx_gallery_conf cannot be cached

# Reference: types and defaults come from the docstrings.
autosummary_generate = True
autodoc_typehints = "none"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False


def house_style(_conf: dict[str, Any], _script: str) -> None:
    """One look for the pictures of the gallery."""
    import matplotlib as mpl

    ink, lines = "#333a45", "#9aa1ac"
    mpl.rcParams.update({"figure.dpi": 110, "savefig.bbox": "tight", "figure.figsize": (8, 4.2)})
    mpl.rcParams.update({"font.size": 10, "axes.titlesize": 11, "axes.titlelocation": "left"})
    mpl.rcParams.update({"text.color": ink, "axes.labelcolor": ink, "axes.titlecolor": ink})
    mpl.rcParams.update(dict.fromkeys(("xtick.color", "ytick.color", "axes.edgecolor"), lines))
    mpl.rcParams.update(dict.fromkeys(("xtick.labelcolor", "ytick.labelcolor"), ink))
    mpl.rcParams.update(dict.fromkeys(("axes.spines.top", "axes.spines.right"), False))
    mpl.rcParams.update({"legend.frameon": False, "figure.constrained_layout.use": True})
    colours = ["#e6730f", "#2166ac", "#1b8a78", "#5e3c8a", "#6b7785", "#b2182b"]
    mpl.rcParams["axes.prop_cycle"] = mpl.cycler(color=colours)


sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "within_subsection_order": "FileNameSortKey",
    "reset_modules": ("matplotlib", house_style),
    "only_warn_on_example_error": False,
    "abort_on_example_error": False,
    "download_all_examples": False,
    "show_signature": False,
    "remove_config_comments": True,
    "min_reported_time": 5,
    "thumbnail_size": (520, 300),
    "copyfile_regex": r"",
}
warnings.filterwarnings("ignore", message="FigureCanvasAgg is non-interactive")

html_theme = "pydata_sphinx_theme"
html_title = "CRUMB"
html_static_path = ["_static"]
html_css_files = ["crumb.css"]
html_favicon = "_static/logo.svg"
html_show_sourcelink = False
html_theme_options = {
    "logo": {"image_light": "_static/logo.svg", "image_dark": "_static/logo.svg", "text": "CRUMB"},
    "icon_links": [
        {"name": "Source", "url": REPOSITORY, "icon": "fa-brands fa-github"},
        {"name": "PyPI", "url": "https://pypi.org/project/crumb-pfn/", "icon": "fa-solid fa-box"},
    ],
    "show_toc_level": 2,
    "header_links_before_dropdown": 6,
    "navigation_with_keys": False,
    "footer_start": ["copyright"],
    "footer_end": ["sphinx-version"],
    "secondary_sidebar_items": ["page-toc"],
}
html_sidebars = {"index": [], "start": []}
