"""The first cell of every notebook, run as a learner runs it: on a machine that has nothing of the course."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import zipfile
from pathlib import Path

import pytest
import yaml

from autograder import release
from transformer_lab import pieces
from transformer_lab.cells import SKIP_TAG, read_cells, read_notebook

from .conftest import TORCH

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "solutions").glob("[0-9][0-9]_*.md"))
CHAPTERS = [pytest.param(source, id=source.stem) for source in SOURCES]
PACKAGE = ROOT / "transformer_lab"
ADDRESS = "https://example.org/owner/name"

#: What the cells of a chapter that builds on others do next.
USE = """
from transformer_lab import pieces
embedding = pieces.earlier("builtin").TokenEmbedding(5, 4)
print(type(embedding).__name__, "of", pieces.__file__)
"""


@pytest.fixture(scope="module")
def with_torch(make_elsewhere):
    """Only PyTorch and what it imports: no NumPy, no nbformat, no jupytext, no matplotlib."""
    return make_elsewhere(TORCH)


@pytest.fixture(scope="module")
def without_torch(make_elsewhere):
    return make_elsewhere(lack=("torch*", "matplotlib*"))


def text(uses_lab=True, repository=""):
    return release.first_cell(uses_lab, repository).source


def wheel(folder: Path, name: str, modules: dict[str, str]) -> Path:
    """A wheel of the distribution ``name``, version 0.1.0, as a build tool would write it."""
    about = f"{name}-0.1.0.dist-info"
    files = {
        **modules,
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.0\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    path = folder / f"{name}-0.1.0-py3-none-any.whl"
    record = []
    with zipfile.ZipFile(path, "w") as archive:
        for file, content in files.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(content.encode()).digest()).rstrip(b"=").decode()
            record.append(f"{file},sha256={digest},{len(content.encode())}\n")
            archive.writestr(file, content)
        archive.writestr(f"{about}/RECORD", "".join(record) + f"{about}/RECORD,,\n")
    return path


def package() -> dict[str, str]:
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")}


def lay_out(folder: Path) -> Path:
    for name, content in package().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")
    return folder


# --------------------------------------------------------------------------------------------------------- in the stubs


@pytest.mark.parametrize("source", CHAPTERS)
def test_it_stands_before_all_other_code_and_only_learners_run_it(source):
    notebook = release.convert_source(source)
    first = next(cell for cell in notebook.cells if cell.cell_type == "code")
    assert (first.id, first.metadata) == ("setup", {"tags": [SKIP_TAG]})
    needs = any("transformer_lab" in cell.source for cell in read_notebook(source).cells if cell.cell_type == "code")
    address = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))["repository"]["url"]
    assert first.source == text(needs, address)
    notebook.cells.remove(first)
    assert [cell.source for cell in notebook.cells] == [release._tidy(c.source) for c in read_notebook(source).cells]


def test_the_loader_passes_it_over():
    stub = ROOT / "notebooks" / SOURCES[0].stem / f"{SOURCES[0].stem}.ipynb"
    assert [cell.runs for cell in read_cells(stub) if "def set_up" in cell.source] == [False]
    assert not hasattr(pieces.load(stub), "set_up")


@pytest.mark.parametrize("uses_lab", [False, True])
@pytest.mark.parametrize("repository", ["", ADDRESS])
def test_it_is_short_and_shows_only_what_it_needs(uses_lab, repository):
    cell = text(uses_lab, repository)
    lines = cell.splitlines()
    assert len(lines) <= 35
    assert max(map(len, lines)) <= 120
    assert "%%" not in cell
    assert "REPOSITORY" not in cell
    assert lines[0].startswith("# ")
    assert ("pip" in cell) == (f"git+{ADDRESS}" in cell) == bool(uses_lab and repository)
    assert ("nothing else" in cell) != uses_lab
    names: dict = {}
    exec(compile(cell, "first cell", "exec"), names)
    assert names.keys() - {"__builtins__"} == {"set_up"}, "a name that it left behind would be missing when graded"


@pytest.mark.parametrize(
    "address", ["owner/name", "https://host/a name", 'https://host/"); x = ("', "https://host/a\nb"]
)
def test_what_is_no_address_is_refused(address):
    with pytest.raises(ValueError, match="is no address that git can fetch from"):
        release.first_cell(True, address)


@pytest.mark.parametrize(
    ("config", "address"),
    [
        (None, ""),
        ("", ""),
        ("title: Course\n", ""),
        ("repository:\n", ""),
        ('repository:\n  url: ""\n', ""),
        (f"repository:\n  url: {ADDRESS}\n", ADDRESS),
    ],
)
def test_the_address_is_that_of_the_book(config, address, tmp_path):
    source = tmp_path / "solutions" / "02_positional_encoding.md"
    source.parent.mkdir()
    source.write_bytes((ROOT / "solutions" / source.name).read_bytes())
    if config is not None:
        (tmp_path / "_config.yml").write_text(config, encoding="utf-8")
    assert release.repository_of(source) == address
    setup = next(cell for cell in release.convert_source(source).cells if cell.id == "setup")
    assert (f'"git+{address}"' in setup.source) == bool(address)


# -------------------------------------------------------------------------------------------------------- when it is run


def test_pytorch_is_enough_for_some(with_torch, without_torch, tmp_path):
    done = with_torch.run(text(uses_lab=False), tmp_path)
    assert done.returncode == 0
    first, second = done.stdout.splitlines()
    assert first.startswith("Python 3.")
    assert first.endswith(" are here.")
    assert second == "This notebook needs nothing else."
    done = without_torch.run(text(uses_lab=False), tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "PyTorch cannot be imported (No module named 'torch')" in done.stdout
    assert "restart the kernel" in done.stdout


@pytest.mark.parametrize("nested", [".", "notebooks/02_positional_encoding"])
def test_a_folder_around_the_notebook_is_found(nested, with_torch, tmp_path):
    """With PyTorch and nothing else on the machine, earlier chapters' pieces work."""
    place = lay_out(tmp_path) / nested
    place.mkdir(parents=True, exist_ok=True)
    (place / "transformer_lab").mkdir(exist_ok=True)  # an empty folder of that name is not taken for it
    done = with_torch.run(text() + USE, place)
    assert done.returncode == 0, done.stderr
    assert f"transformer_lab is here: {tmp_path / 'transformer_lab'}." in done.stdout
    assert f"TokenEmbedding of {tmp_path / 'transformer_lab' / 'pieces.py'}" in done.stdout


def test_the_loader_of_pieces_needs_python_alone(make_elsewhere, tmp_path):
    done = make_elsewhere(have=()).run("from transformer_lab import pieces; print(pieces.__name__)", lay_out(tmp_path))
    assert (done.returncode, done.stdout) == (0, "transformer_lab.pieces\n"), done.stderr


def test_a_wheel_beside_the_notebook_is_found(without_torch, tmp_path):
    place = tmp_path / "some folder"
    place.mkdir()
    path = wheel(tmp_path, "transformer_piece_by_piece", package())
    done = without_torch.run(text() + "\nfrom transformer_lab import pieces", place)
    assert done.returncode == 0, done.stderr
    assert f"transformer_lab is here: {path / 'transformer_lab'}." in done.stdout


@pytest.mark.parametrize("repository", ["", "file:///nowhere/at/all"])
def test_where_there_is_nothing_it_says_what_to_do(repository, without_torch, tmp_path):
    (tmp_path / "transformers-4.0.0-py3-none-any.whl").write_bytes(b"")
    done = without_torch.run(text(repository=repository), tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"transformer_lab is missing: put transformer-piece-by-piece.zip into {tmp_path}" in done.stdout
    assert ("ERROR: " in done.stdout) == bool(repository), "what pip says is shown"


BACKEND = '''
"""Builds the wheel of the folder that it lies in, with nothing but Python."""
import shutil, sys
from pathlib import Path

def build_wheel(directory, config_settings=None, metadata_directory=None):
    [made] = Path("made").iterdir()
    shutil.copy(made, directory)
    return made.name
'''


@pytest.fixture
def repository(tmp_path):
    """The address of a git repository from which pip can install transformer_lab without a network."""
    folder = tmp_path / "repository"
    (folder / "made").mkdir(parents=True)
    wheel(folder / "made", "transformer_piece_by_piece", package())
    (folder / "backend.py").write_text(BACKEND)
    (folder / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]'
    )
    who = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "commit.gpgsign=false"]
    for command in (["init", "-q"], ["add", "."], [*who, "commit", "-q", "-m", "All"]):
        subprocess.run(["git", *command], cwd=folder, check=True)
    return folder.as_uri()


def test_it_is_fetched_from_the_public_address(repository, without_torch, tmp_path):
    """With git and pip; of all else only what is light and missing, and never PyTorch, though it is on offer."""
    offers = tmp_path / "offers"
    offers.mkdir()
    for name in ("torch", "nbformat", "matplotlib"):
        wheel(offers, name, {f"{name}.py": "offered = True\n"})
    place = tmp_path / "notebooks"
    place.mkdir()
    ask = """
import importlib.util, json, sys
names = ("transformer_lab", "matplotlib", "nbformat", "torch")
found = {name: importlib.util.find_spec(name) for name in names}
print(json.dumps({name: spec and spec.origin for name, spec in found.items()}))
"""
    done = without_torch.run(text(repository=repository) + ask, place, PIP_FIND_LINKS=str(offers))
    assert (done.returncode, done.stderr) == (0, "")
    *said, found = done.stdout.splitlines()
    assert said[1:3] == [f"pip install --no-deps git+{repository}", "pip install matplotlib"]
    assert said[-1].startswith("The course's package transformer_lab is here: ")
    origins = json.loads(found)
    installed = without_torch.python.parents[1].as_posix()
    assert origins["transformer_lab"].startswith(installed)
    assert origins["matplotlib"].startswith(installed)
    assert not origins["nbformat"].startswith(installed), "nbformat was there"
    assert origins["torch"] is None
