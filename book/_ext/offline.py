"""Serve everything that a page needs from the build itself.

The formulas are set by MathJax 3 out of the package sphinx-mathjax-offline; of its 24 MB only the one component that
reads TeX and the fonts that it draws with go into the build. Thebe and the comment services, which Jupyter Book always
loads and which name other hosts, are taken out of the pages.
"""

from __future__ import annotations

import shutil
from importlib.metadata import files
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.errors import ExtensionError

PACKAGE = "sphinx-mathjax-offline"
#: All TeX extensions in one file, so that no macro on a page needs a second one.
COMPONENT = "tex-chtml-full.js"
FONTS = "output/chtml/fonts/woff-v2"
#: Extensions that Jupyter Book always loads and that would add other hosts' scripts to the pages.
UNWANTED = ("sphinx_thebe", "sphinx_comments")


def mathjax() -> Path:
    """The folder of MathJax in the installed package."""
    for file in files(PACKAGE) or ():
        if file.name == COMPONENT:
            return Path(str(file.locate())).parent
    raise ExtensionError(f"{PACKAGE} holds no {COMPONENT}: install it again (pip install --force-reinstall {PACKAGE}).")


def configure(app: Sphinx, config: Config) -> None:
    config.mathjax_path = f"mathjax/{COMPONENT}"
    config.mathjax3_config = {
        # The menu would fetch its speech engine, which is not part of the build; MathML for screen readers is.
        "options": {"enableMenu": False, "enableAssistiveMml": True},
        "tex": {"macros": config.mathjax_macros},
    }


def copy_mathjax(app: Sphinx) -> None:
    if app.builder.format != "html":
        return
    source, target = mathjax(), Path(app.outdir) / "_static" / "mathjax"
    (target / FONTS).mkdir(parents=True, exist_ok=True)
    for file in [source / COMPONENT, *(source / FONTS).glob("*.woff")]:
        copy = target / file.relative_to(source)
        if not copy.exists() or copy.stat().st_size != file.stat().st_size:
            shutil.copyfile(file, copy)


def silence_thebe(app: Sphinx, config: Config) -> None:
    for listeners in app.events.listeners.values():
        listeners[:] = [one for one in listeners if getattr(one.handler, "__module__", "") not in UNWANTED]


def drop_assets(app: Sphinx, pagename: str, templatename: str, context: dict, doctree) -> None:
    context["css_files"] = [css for css in context.get("css_files", []) if "thebe" not in str(css)]


def setup(app: Sphinx) -> dict:
    app.add_config_value("mathjax_macros", {}, "html", types=[dict])
    app.connect("config-inited", configure)
    app.connect("config-inited", silence_thebe)
    app.connect("builder-inited", copy_mathjax)
    app.connect("html-page-context", drop_assets, priority=900)  # after the extensions that add files to the page
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
