"""A learner's machine: a Python that has the libraries of this one, or some of them, and nothing of the course."""

from __future__ import annotations

import os
import subprocess
import sysconfig
import venv
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import pytest

#: What torch itself imports.
TORCH = ("torch", "torchgen", "functorch", "filelock", "fsspec", "jinja2", "markupsafe", "mpmath", "networkx", "sympy")
TORCH += ("typing_extensions.py", "setuptools", "nvidia*")


@dataclass(frozen=True)
class Elsewhere:
    """A Python of its own with no course in it; pip reaches no network from there."""

    python: Path

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PIP_"))}
        return {**kept, "PIP_NO_INDEX": "1", "PIP_ROOT_USER_ACTION": "ignore"}

    def run(self, code: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run ``code`` with ``folder`` as the working directory, which is where a notebook's kernel starts."""
        return subprocess.run(
            [self.python, "-c", code],
            cwd=folder,
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )


@pytest.fixture(scope="session")
def make_elsewhere(tmp_path_factory) -> Callable[..., Elsewhere]:
    """A function of two patterns, what to have and what not, for the names in this Python's folder of packages."""

    def make(have: tuple[str, ...] = ("*",), lack: tuple[str, ...] = ()) -> Elsewhere:
        root = tmp_path_factory.mktemp("elsewhere")
        venv.create(root / "venv", symlinks=True)
        libraries = root / "libraries"
        libraries.mkdir()
        lack = (*lack, "transformer_piece_by_piece*", "__editable__*", "*.pth")
        for package in {Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")}:
            for entry in package.iterdir():
                wanted, unwanted = ([fnmatch(entry.name, pattern) for pattern in some] for some in (have, lack))
                if any(wanted) and not any(unwanted):
                    (libraries / entry.name).symlink_to(entry)
        python = root / "venv" / "bin" / "python"
        packages = subprocess.run(
            [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
            capture_output=True,
            text=True,
            check=True,
        )
        Path(packages.stdout.strip(), "libraries.pth").write_text(f"{libraries}\n")
        return Elsewhere(python)

    return make
