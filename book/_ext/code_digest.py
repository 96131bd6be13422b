"""Let the execution cache follow the code that the pages run.

jupyter-cache knows a page by its code cells only, so a figure would stay as it was after an edit of the piece that it
draws. Here the cache is one folder per digest of everything else that a page's output depends on: the files under
``code_digest_paths`` and the versions of Python and of ``code_digest_packages``. The folder's name is part of the
environment's configuration, so Sphinx itself reads all pages again when it changes, and none when it does not.
"""

from __future__ import annotations

import hashlib
import platform
import shutil
from importlib.metadata import version
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.util import logging

LOGGER = logging.getLogger(__name__)

SUFFIXES = (".py", ".md", ".csv", ".json", ".html")
#: Folders kept: the digest in use and the one before, so that going back and forth between two states costs nothing.
KEEP = 2


def digest(root: Path, paths: list[str], packages: list[str]) -> str:
    """16 hexadecimal digits of the contents of ``paths`` (folders or files below ``root``) and the versions in use.

    A path that does not exist counts as an empty folder: a course that has no results yet. Raises
    ``importlib.metadata.PackageNotFoundError`` when a package is not installed.
    """
    total = hashlib.sha256(f"python {platform.python_version()}\n".encode())
    for package in sorted(packages):
        total.update(f"{package} {version(package)}\n".encode())
    for file in sorted({file for path in paths for file in _files(root / path)}):
        total.update(f"{file.relative_to(root).as_posix()} {hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return total.hexdigest()[:16]


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    hidden = (".", "__pycache__")
    return [
        file
        for file in path.rglob("*")
        if file.suffix in SUFFIXES
        and file.is_file()
        and not any(part.startswith(hidden) for part in file.relative_to(path).parts)
    ]


def choose_cache(app: Sphinx, config: Config) -> None:
    caches = Path(app.outdir).parent / ".jupyter_cache"
    folder = caches / digest(Path(app.srcdir), config.code_digest_paths, config.code_digest_packages)
    folder.mkdir(parents=True, exist_ok=True)
    folder.touch()
    config.nb_execution_cache_path = str(folder)
    others = sorted((f for f in caches.iterdir() if f.is_dir() and f != folder), key=lambda f: f.stat().st_mtime)
    for old in others[: max(0, len(others) - (KEEP - 1))]:
        shutil.rmtree(old)
        LOGGER.info("[code digest] removed the outputs of older code: %s", old.name)


def setup(app: Sphinx) -> dict:
    app.add_config_value("code_digest_paths", [], "env", types=[list])
    app.add_config_value("code_digest_packages", [], "env", types=[list])
    app.connect("config-inited", choose_cache)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
