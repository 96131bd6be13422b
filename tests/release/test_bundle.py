"""The zip for a class: what is in it, what is not, and that a notebook begins to work where it is all there is."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
from jupyter_client import KernelManager
from jupyter_client.kernelspec import KernelSpecManager

from autograder import bundle, release
from transformer_lab.cells import read_cells, read_notebook

from .conftest import TORCH

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "solutions").glob("[0-9][0-9]_*.md"))
STUBS = [f"notebooks/{source.stem}/{source.stem}.ipynb" for source in SOURCES]
NAME = "transformer-piece-by-piece.zip"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    path = tmp_path_factory.mktemp("bundle") / "a folder" / NAME
    bundle.write_bundle(path, ROOT / "notebooks", ROOT / "solutions")
    return path


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A copy of the package, which is what goes into the bundle from now on."""
    copy = tmp_path / "copy" / "transformer_lab"
    shutil.copytree(bundle.PACKAGE, copy)
    monkeypatch.setattr(bundle, "PACKAGE", copy)
    return copy


def contents(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


# -------------------------------------------------------------------------------------------------------- what is in it


def test_it_holds_the_stubs_the_package_and_a_page_to_begin_with(made):
    files = contents(made)
    package = [path for path in (ROOT / "transformer_lab").rglob("*") if path.is_file() and path.suffix != ".pyc"]
    code = {path.relative_to(ROOT).as_posix() for path in package}  # and the page and the data that lie beside it
    assert files.keys() == {"README.txt", *STUBS, *code}
    assert all(files[name] == (ROOT / name).read_bytes() for name in [*STUBS, *code])
    readme = files["README.txt"].decode()
    assert max(map(len, readme.splitlines())) <= 80
    assert "{" not in readme
    for source in SOURCES:
        title = read_notebook(source).cells[0].source.splitlines()[0].removeprefix("# ")
        [line] = [line for line in readme.splitlines() if title in line]
        assert line.split()[0] == source.stem


def test_the_same_content_gives_the_same_bytes(made, tmp_path):
    time.sleep(2.1)  # a zip counts in steps of two seconds
    again = tmp_path / "again.zip"
    environment = {**os.environ, "TZ": "Asia/Tokyo", "PYTHONHASHSEED": "7", "PYTHONPATH": str(ROOT)}
    code = "import sys; from pathlib import Path; from autograder import bundle; bundle.write_bundle(*map(Path, sys.argv[1:]))"
    command = [sys.executable, "-c", code, again, ROOT / "notebooks", ROOT / "solutions"]
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, umask=0o077)
    assert again.read_bytes() == made.read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["again.zip"]


def test_caches_and_hidden_files_stay_behind(package, tmp_path):
    for name in ("__pycache__/tiny.cpython-311.pyc", ".ipynb_checkpoints/tiny.py", ".tiny.py.swp"):
        (package / name).parent.mkdir(exist_ok=True)
        (package / name).write_bytes(b"\xff")
    names = bundle.write_bundle(tmp_path / NAME, ROOT / "notebooks", ROOT / "solutions")
    assert names == sorted(contents(tmp_path / NAME))
    assert not [name for name in names if "cache" in name or "/." in name]


# ---------------------------------------------------------------------------------------------------------- what is not


@pytest.mark.parametrize("source", [pytest.param(source, id=source.stem) for source in SOURCES])
def test_an_answer_in_the_package_is_refused(source, package, tmp_path):
    """Every answer of the course that is long enough to be one, under a name of its own."""
    converted = release.convert_source(source)
    answers = [text for text in release.regions(converted).solutions if release.repeats([text], text)]
    assert answers
    told = r"transformer_lab/notes\.py repeats a solution"
    for answer in answers:
        text = f"def mine(q, k, v):\n{answer}\n"
        with pytest.raises(release.LeakError, match=told):
            bundle.refuse_leaks({"transformer_lab/notes.py": text.encode()}, [release.regions(converted)])
    (package / "notes.py").write_text(text)
    with pytest.raises(release.LeakError, match=told):
        bundle.write_bundle(tmp_path / NAME, ROOT / "notebooks", ROOT / "solutions")
    assert not (tmp_path / NAME).exists()


def test_a_hidden_test_in_the_package_is_refused(package, tmp_path):
    (package / "tiny.py").write_text("from autograder.award import award\n")
    with pytest.raises(release.LeakError, match=r"transformer_lab/tiny\.py shows the line .* of a hidden test"):
        bundle.write_bundle(tmp_path / NAME, ROOT / "notebooks", ROOT / "solutions")
    assert not (tmp_path / NAME).exists()


def test_only_stubs_as_they_were_released_go_in(tmp_path):
    source, output, notebooks = SOURCES[0], tmp_path / NAME, tmp_path / "notebooks"
    stub = notebooks / source.stem / f"{source.stem}.ipynb"
    with pytest.raises(FileNotFoundError, match="There is no stub"):
        bundle.write_bundle(output, notebooks, source)
    stub.parent.mkdir(parents=True)
    text = (ROOT / "notebooks" / source.stem / stub.name).read_text(encoding="utf-8")
    stub.write_text(text.replace("raise NotImplementedError()", "return 1", 1), encoding="utf-8")
    with pytest.raises(ValueError, match="someone has worked in it"):
        bundle.write_bundle(output, notebooks, source)
    notebook = json.loads(text)
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "3.14"}]
    stub.write_text(json.dumps(notebook), encoding="utf-8")
    with pytest.raises(release.LeakError, match="has outputs"):
        bundle.write_bundle(output, notebooks, source)
    assert not output.exists()


def test_the_command_makes_the_stubs_afresh(tmp_path):
    """Whatever is in notebooks/: the sources alone decide."""
    (tmp_path / "solutions").mkdir()
    shutil.copy(SOURCES[0], tmp_path / "solutions")
    options = [
        "--solutions",
        tmp_path / "solutions",
        "--course",
        tmp_path / "course",
        "--output",
        tmp_path / "made" / NAME,
    ]
    command = [sys.executable, "-m", "autograder", "bundle", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert f"{NAME}: 1 notebook and transformer_lab" in done.stdout
    wanted = tmp_path / "wanted.zip"
    bundle.write_bundle(wanted, ROOT / "notebooks", tmp_path / "solutions")
    assert (tmp_path / "made" / NAME).read_bytes() == wanted.read_bytes()


# ------------------------------------------------------------------------------------------------- where it is all there is


@pytest.fixture(scope="module")
def elsewhere(make_elsewhere):
    return make_elsewhere()


@pytest.fixture
def kernel(elsewhere, tmp_path, monkeypatch):
    """A function that starts the kernel of the other Python in a folder, and returns a function that runs a cell in it."""
    for name in [name for name in os.environ if name.startswith("PYTHON")]:
        monkeypatch.delenv(name)
    spec = tmp_path / "kernels" / "elsewhere"
    spec.mkdir(parents=True)
    argv = [str(elsewhere.python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    about = {"argv": argv, "display_name": "Elsewhere", "language": "python"}
    (spec / "kernel.json").write_text(json.dumps(about), encoding="utf-8")
    specs = KernelSpecManager(kernel_dirs=[str(spec.parent)], ensure_native_kernel=False)
    manager = KernelManager(kernel_name="elsewhere", kernel_spec_manager=specs)
    clients = []

    def start(folder: Path):
        manager.start_kernel(cwd=str(folder))
        client = manager.blocking_client()
        clients.append(client)
        client.start_channels()
        client.wait_for_ready(timeout=120)

        def run(code: str) -> str:
            said = []

            def hear(message):
                content = message["content"]
                said.append(content.get("text") or "\n".join(content.get("traceback", [])))

            reply = client.execute_interactive(code, timeout=200, output_hook=hear)
            assert reply["content"]["status"] == "ok", "".join(said)
            return "".join(said)

        return run

    yield start
    for client in clients:
        client.stop_channels()
    if manager.has_kernel:
        manager.shutdown_kernel(now=True)


def test_a_notebook_begins_to_work_in_a_kernel(made, kernel, tmp_path):
    """Unpacked in an empty folder, where neither the course nor its path is known."""
    folder = tmp_path / "class"
    with zipfile.ZipFile(made) as archive:
        archive.extractall(folder)
    stub = folder / "notebooks" / "02_positional_encoding" / "02_positional_encoding.ipynb"
    setup, *others = [cell.source for cell in read_cells(stub)]
    [wanted] = [source for source in others if source.startswith("PIECES = ")]
    run = kernel(stub.parent)
    assert run("import importlib.util; print(importlib.util.find_spec('transformer_lab'))") == "None\n"
    first, second = run(setup).splitlines()
    assert first.startswith("Python 3.")
    assert second == f"The course's package transformer_lab is here: {folder / 'transformer_lab'}."
    assert run(others[0]) == ""
    assert run(wanted) == ""
    shape = run("print(TokenEmbedding(6, 4, 0)(torch.tensor([[1, 2, 0]])).shape, TokenEmbedding.__module__)")
    assert shape == "torch.Size([1, 3, 4]) transformer_lab.builtin\n"


def test_the_zip_beside_a_notebook_is_enough(made, make_elsewhere, tmp_path):
    """On a hosted notebook service one file is put beside another; here with PyTorch alone on the machine."""
    shutil.copy(made, tmp_path / "transformer-piece-by-piece (1).zip")
    begins: dict[str, list[str]] = {}  # the first cell → what stubs that have it ask for
    for stub in STUBS:
        first, *others = (cell.source for cell in read_cells(ROOT / stub))
        wanted = [source for source in others if source.startswith("PIECES = ")]
        if wanted:
            begins.setdefault(first, []).extend(wanted)
    assert begins
    elsewhere = make_elsewhere(TORCH)
    for first, wanted in begins.items():
        done = elsewhere.run("\n".join([first, *dict.fromkeys(wanted)]), tmp_path)
        assert done.returncode == 0, done.stderr
        assert (
            f"transformer_lab is here: {tmp_path / 'transformer-piece-by-piece (1).zip' / 'transformer_lab'}."
            in done.stdout
        )


def test_the_whole_package_works_from_the_zip(made, elsewhere, tmp_path):
    code = f"""
import importlib, pkgutil, sys
sys.path.append({str(made)!r})
import transformer_lab
names = [module.name for module in pkgutil.walk_packages(transformer_lab.__path__, "transformer_lab.")]
for name in names:
    importlib.import_module(name)
print(*names)
assert "autograder" not in sys.modules
"""
    done = elsewhere.run(code, tmp_path)
    assert done.returncode == 0, done.stderr
    assert {"transformer_lab.pieces", "transformer_lab.plots", "transformer_lab.builtin"} <= set(done.stdout.split())
