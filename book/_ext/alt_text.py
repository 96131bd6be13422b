"""Warn, and so fail the strict build, where a picture on a page has no text that says what it shows."""

from __future__ import annotations

from pathlib import PurePosixPath

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging

LOGGER = logging.getLogger(__name__)


def check(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    for image in doctree.findall(nodes.image):
        alt = str(image.get("alt", "")).strip()
        if not alt or alt in (image.get("uri"), PurePosixPath(image.get("uri", "")).name):
            LOGGER.warning(
                "picture without alt text: give the cell `mystnb: {image: {alt: …}}`, the figure `:alt: …`",
                location=image,
                type="alt_text",
            )


def setup(app: Sphinx) -> dict:
    app.connect("doctree-resolved", check)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
