"""Run jupyter-book on the course and on a book of one page."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Build:
    """One run of jupyter-book: the site's folder, the exit status, all that was printed, and how long it took."""

    html: Path
    status: int
    log: str
    seconds: float

    def pages(self) -> list[Path]:
        """The pages that readers open, without the redirect at the root and the theme's own templates."""
        found = (page.relative_to(self.html) for page in self.html.rglob("*.html"))
        return sorted(self.html / page for page in found if page.parts[0] not in ("index.html", "_static"))


def jupyter_book(source: Path, output: Path, *options: str) -> Build:
    """Build strictly, as the Makefile does."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    environment.pop("TRANSFORMER_LAB_PIECES", None)
    program = "from jupyter_book.cli.main import main; main()"
    command = [sys.executable, "-c", program, "build", str(source), "-n", "-W", "--keep-going"]
    started = time.monotonic()
    run = subprocess.run(
        [*command, "--path-output", str(output), *options],
        capture_output=True,
        text=True,
        cwd=source,
        env={**environment, "NO_COLOR": "1"},
        check=False,
    )
    seconds = time.monotonic() - started
    return Build(output / "_build" / "html", run.returncode, run.stdout + run.stderr, seconds)


CONFIG = f"""
title: A small book
only_build_toc_files: true
execute: {{execute_notebooks: cache, raise_on_error: true}}
launch_buttons: {{thebe: false}}
sphinx:
  local_extensions: {{alt_text: {ROOT}/book/_ext, code_digest: {ROOT}/book/_ext, offline: {ROOT}/book/_ext}}
  recursive_update: true
  config:
    code_digest_paths: [solutions]
    code_digest_packages: [matplotlib, numpy]
"""

PAGE = """---
jupytext: {text_representation: {extension: .md, format_name: myst}}
kernelspec: {display_name: Python 3, language: python, name: python3}
---

# A page

```{code-cell} ipython3
---
mystnb: {image: {alt: A rising line.}}
---
import matplotlib.pyplot as plt
from transformer_lab import pieces, plots

plots.style()
double = pieces.load("../solutions").double
print("twice three is", double(3))
plots.lines(plots.figure(), [0, 1, 2], {"twice": [double(n) for n in range(3)]})
```
"""

SOLUTION = """---
jupytext: {text_representation: {extension: .md, format_name: myst}}
kernelspec: {display_name: Python 3, language: python, name: python3}
---

```{code-cell} ipython3
def double(n):
    return 2 * n
```
"""


def write_small_book(root: Path, page: str) -> Path:
    (root / "solutions").mkdir(parents=True)
    (root / "book").mkdir()
    (root / "_config.yml").write_text(CONFIG)
    (root / "_toc.yml").write_text("format: jb-book\nroot: book/page\n")
    (root / "book" / "page.md").write_text(page)
    (root / "solutions" / "01_double.md").write_text(SOLUTION)
    return root
