"""The README promises nothing that is not so: links, commands, options, outputs and the picture are held to the code."""

import importlib
import importlib.metadata
import re
import shlex
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from markdown_it import MarkdownIt
from rich.console import Console
from typer.main import get_command

import transformer_lab.__main__ as lab
from autograder import cli, registry, runner, samples
from autograder.student import LocalStudent
from transformer_lab import pieces, tiny
from transformer_lab.cells import read_cells, read_notebook
from transformer_lab.results import load as load_result

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
TOKENS = MarkdownIt().enable("table").parse(README)
INLINE = [child for token in TOKENS for child in token.children or []]
SPANS = [token.content for token in INLINE if token.type == "code_inline"]
FENCES = [token for token in TOKENS if token.type == "fence"]
PICTURE = ROOT / "book/_static/overview.svg"
SVG = "{http://www.w3.org/2000/svg}"

# The learner of the README's example is one of the sample submissions.
EXAMPLE, CHAPTER, PIECE = "mask_after_softmax", "03_attention", "scaled_dot_product_attention"


def commands():
    """The commands of the README's code blocks, as lists of words: every line of sh, and what follows a $ in console."""
    for fence in FENCES:
        for line in fence.content.splitlines():
            if fence.info == "sh" or line.startswith("$ "):
                yield shlex.split(line.removeprefix("$ "), comments=True)


def outputs(command):
    """What the README shows under ``command``, up to the next command, in stretches between its lines of “…”."""
    text = next(fence.content for fence in FENCES if f"$ {command}\n" in fence.content)
    shown = text.split(f"$ {command}\n")[1].split("\n$ ")[0]
    return [part.strip("\n") for part in re.split(r"^…$", shown, flags=re.M) if part.strip()]


def images():
    """Address and alternative text of every picture, be it Markdown or HTML."""
    found = [(i.attrs["src"], i.content) for i in INLINE if i.type == "image"]
    for tag in re.findall(r"<img\b[^>]*>", README):
        attributes = dict(re.findall(r'(\w+)="([^"]*)"', tag))
        found.append((attributes["src"], attributes.get("alt", "")))
    return found


def in_order(parts, text):
    """Whether ``text`` holds all of ``parts``, one after the other; ends of lines are compared without their blanks."""
    text = "\n".join(line.rstrip() for line in text.splitlines())
    place = 0
    for part in parts:
        place = text.find(part, place)
        assert place >= 0, f"Not, or not here, in the real output:\n{part}\n\nThe real output:\n{text}"
        place += len(part)


@pytest.fixture(scope="module")
def handed_in(tmp_path_factory):
    """The notebook that the README's learner has written."""
    sample = next(sample for sample in samples.samples([CHAPTER]) if sample.student == EXAMPLE)
    path = tmp_path_factory.mktemp("readme") / CHAPTER / f"{CHAPTER}.ipynb"
    path.parent.mkdir()
    path.write_text(samples.notebook_text(sample, ROOT / "notebooks"), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def results(handed_in):
    return runner.run_checks(LocalStudent(pieces.load(handed_in)), chapter=CHAPTER)


# --------------------------------------------------------------------------------------------------- links and pictures


def test_every_local_link_leads_somewhere():
    targets = [token.attrs["href"] for token in INLINE if token.type == "link_open"] + [
        source for source, _ in images()
    ]
    local = [target for target in targets if not target.startswith(("https://", "#"))]
    assert len(local) >= 8
    assert not [target for target in local if not (ROOT / target.split("#")[0]).exists()]


def test_every_picture_is_described():
    assert images()
    assert not [source for source, words in images() if len(words) < 80]


# -------------------------------------------------------------------------------------------------------------- commands


LAB = next(action for action in lab.parser()._actions if action.choices).choices


def targets_of_make():
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))


def check_make(words):
    assert set(words) <= targets_of_make()


def check_autograder(words):
    name, *arguments = words
    # Parses as the real command does and runs nothing: an unknown option, a missing argument or a bad value raises.
    get_command(cli.app).commands[name].make_context(name, arguments)


def check_nbgrader(words):
    from nbgrader.apps.nbgraderapp import NbGraderApp

    name, *arguments = words
    assert name in NbGraderApp.subcommands
    where = NbGraderApp.subcommands[name][0]
    app = (
        importlib.import_module(where.rpartition(".")[0]).__dict__[where.rpartition(".")[2]]
        if isinstance(where, str)
        else where
    )
    assert {word[2:] for word in arguments if word.startswith("--")} <= {*app().flags, *app().aliases}


def check_jupyter(words):
    assert words[0] == "lab"
    assert importlib.metadata.version("jupyterlab")


def check_python(words):
    """``python -m transformer_lab …``, with all options; nothing is run."""
    assert words[:2] == ["-m", "transformer_lab"]
    lab.parser().parse_args(words[2:])


CHECKERS = {
    "python": check_python,
    "torchrun": lambda words: check_python(words[2:]) if words[0] == "--nproc-per-node" else check_python(words),
    "make": check_make,
    "autograder": check_autograder,
    "nbgrader": check_nbgrader,
    "jupyter": check_jupyter,
    **dict.fromkeys(("cd", "cp", "mkdir", "source"), lambda words: None),
}


@pytest.mark.parametrize("words", list(commands()), ids=" ".join)
def test_every_command_exists_with_its_options(words):
    program = Path(words[0])
    assert program.parts[:-1] in ((), (".venv", "bin"))
    CHECKERS[program.name](words[1:])
    assert all((ROOT / word).exists() for word in words[1:] if word.startswith("notebooks/"))


def test_what_the_text_calls_by_name_exists():
    flags = {flag for command in get_command(cli.app).commands.values() for p in command.params for flag in p.opts}
    flags |= {flag for command in LAB.values() for action in command._actions for flag in action.option_strings}
    seen = 0
    for words in map(str.split, SPANS):
        if Path(words[0]).name == "autograder" and len(words) > 1:
            check_autograder(words[1:])
        elif words[0] == "make":
            check_make(words[1:])
        elif words[0] in ("python", "torchrun"):
            CHECKERS[words[0]](words[1:])
        elif words[0].startswith("--"):
            assert words[0] in flags
        else:
            continue
        seen += 1
    assert seen >= 5


# ------------------------------------------------------------------------------------------------------ facts and outputs


def test_the_chapters_named_are_the_chapters_there():
    sentence, rest = re.search(r"\*\*What is there now:\*\* chapters (.*), complete(.*)", README).groups()
    named, to_read = (
        {f"{int(number):02}_{re.sub('[ -]', '_', name)}" for number, name in re.findall(r"(\d+) \(([a-z -]+)\)", text)}
        for text in (sentence, rest)
    )
    for folder, pattern, chapters in (
        ("solutions", "[0-9][0-9]_*.md", named),
        ("notebooks", "[0-9][0-9]_*", named),
        ("book", "[0-9][0-9]_*.md", named | to_read),
    ):
        assert chapters == {path.stem for path in (ROOT / folder).glob(pattern)}


def test_the_pythons_named_are_those_allowed():
    low, high = re.search(r"Python 3\.(\d+), .* or 3\.(\d+) on Linux", README).groups()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["requires-python"] == f">=3.{low},<3.{int(high) + 1}"


def test_the_mutants_are_counted_as_the_result_has_them():
    shown = re.search(r"of (\d+) mutants .* they catch (\d+); the other (\d+) do what", README).groups()
    rows = load_result("mutation").select()
    counted = [sum(row[column] for row in rows) for column in ("mutants", "killed", "equivalent")]
    assert [int(number) for number in shown] == counted
    assert sum(counted[1:]) == counted[0]


def test_check_prints_what_the_readme_shows(results, monkeypatch, capsys):
    monkeypatch.setattr(cli, "out", Console(width=90))
    cli._print_results(results)
    in_order(outputs(".venv/bin/autograder check notebooks/03_attention"), capsys.readouterr().out)


def test_grade_prints_what_the_readme_shows(results, monkeypatch, capsys):
    record = {
        "student": "s001",
        "results": [result.as_dict() for result in results],
        "score": sum(result.earned for result in results),
        "max_score": sum(result.points for result in results),
        "remarks": [],
    }
    monkeypatch.setattr(cli, "out", Console(width=96))
    cli._print_class(CHAPTER, [record])
    in_order(outputs("autograder grade --course ../my-course"), capsys.readouterr().out)


def test_a_visible_test_says_what_the_readme_quotes(handed_in):
    namespace = dict(vars(pieces.load(handed_in)))
    stub = read_notebook(ROOT / "notebooks" / CHAPTER / f"{CHAPTER}.ipynb")
    setup = next(cell.source for cell in read_cells(handed_in) if cell.runs and "import torch" in cell.source)
    test = next(c.source for c in stub.cells if c.metadata.get("nbgrader", {}).get("grade_id") == f"test_{PIECE}")
    exec(setup, namespace)
    with pytest.raises(AssertionError) as raised:
        exec(test, namespace)
    assert f"“{raised.value}”" in README or f'"{raised.value}"' in README


# ------------------------------------------------------------------------------------------------------------ the picture


@pytest.fixture(scope="module")
def picture():
    return ElementTree.parse(PICTURE).getroot()


def words_of(element):
    return " ".join("".join(text.itertext()).strip() for text in element.iter(f"{SVG}text"))


def test_the_picture_needs_nothing_else(picture):
    text = PICTURE.read_text(encoding="utf-8").replace(SVG.strip("{}"), "")
    assert not re.search(r"https?:|@import|<script|<image|<foreignObject", text)
    assert len(picture.find(f"{SVG}title").text) > 20
    assert len(picture.find(f"{SVG}desc").text) > 80


def test_the_picture_has_the_attention_weights_of_the_sentence(picture):
    group = picture.find(f".//{SVG}g[@id='weights']")
    drawn = torch.tensor([float(square.get("fill-opacity")) for square in group]).reshape(6, 6)
    q, k = tiny.EMBEDDED @ tiny.W_Q.T, tiny.EMBEDDED @ tiny.W_K.T
    weights = torch.softmax(q @ k.T / tiny.D_K**0.5, dim=-1)
    assert torch.allclose(drawn, weights / weights.max(), atol=0.0051, rtol=0)


def test_the_picture_shows_the_example_of_the_text(picture, results):
    hints = {known.hint for known in registry.misconceptions() if known.piece == PIECE}
    assert words_of(picture.find(f".//{SVG}g[@id='hint']")) in hints
    scores = re.findall(r"(\d)/(\d)", words_of(picture))
    ours = [(int(r.earned), int(r.points)) for r in results if r.piece == PIECE]
    first, second, *rest = ours  # the picture takes output and weights without a mask together
    assert [(int(a), int(b)) for a, b in scores] == [(first[0] + second[0], first[1] + second[1]), *rest]
    points = f"{sum(a for a, _ in ours)} of {sum(b for _, b in ours)} points"
    assert points in words_of(picture)
    assert points in dict(images())["book/_static/overview.svg"]


def luminance(colour):
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4
        for c in (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_the_picture_reads_by_day_and_by_night():
    light, dark = (
        dict(re.findall(r"--(\w+): (#\w{6})", rule))
        for rule in re.findall(r"svg \{(.*?)\}", PICTURE.read_text(encoding="utf-8"))
    )
    assert light.keys() == dark.keys()
    assert luminance(light["ground"]) > 0.9
    assert luminance(dark["ground"]) < 0.02
    for scheme in (light, dark):
        for ink in ("ink", "soft", "blue", "wrong"):
            for ground in ("ground", "tint"):
                one, other = sorted((luminance(scheme[ink]), luminance(scheme[ground])))
                assert (other + 0.05) / (one + 0.05) >= 4.5, f"{ink} on {ground}"
