"""The command line: exit statuses, one sentence for every mistake, and the diagnosis that a learner came for."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from autograder import cli, release, samples

ROOT = Path(__file__).resolve().parents[2]

DOUBLED = """
import math, torch
def positional_encoding(seq_len, d_model):
    pe = torch.zeros(seq_len, d_model)
    for pos in range(seq_len):
        for i in range(0, d_model, 2):
            pe[pos, i] = math.sin(pos / 10000 ** ((2 * i) / d_model))
            pe[pos, i + 1] = math.cos(pos / 10000 ** ((2 * i) / d_model))
    return pe
"""
RIGHT = {
    "loops": DOUBLED.replace("(2 * i)", "i"),
    "exp_log": """
import math, torch
def positional_encoding(seq_len, d_model):
    position = torch.arange(seq_len).unsqueeze(1)
    div_term = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
    pe = torch.zeros(seq_len, d_model)
    pe[:, 0::2] = torch.sin(position * div_term)
    pe[:, 1::2] = torch.cos(position * div_term)
    return pe
""",
    "numpy": """
import numpy as np, torch
def positional_encoding(seq_len, d_model):
    j = np.arange(d_model)
    angle = np.arange(seq_len)[:, None] / np.power(10000, 2 * (j // 2) / d_model)
    return torch.from_numpy(np.where(j % 2, np.cos(angle), np.sin(angle))).float()
""",
}


def autograder(*arguments, cwd=ROOT):
    return subprocess.run(
        [sys.executable, "-m", "autograder.cli", *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def here(*arguments):
    """The same in this process, which has PyTorch already."""
    done = CliRunner().invoke(cli.app, list(map(str, arguments)))
    return subprocess.CompletedProcess(arguments, done.exit_code, done.stdout, done.stderr)


def test_the_doubled_exponent_is_diagnosed(tmp_path):
    (tmp_path / "pe.py").write_text(DOUBLED)
    done = autograder("check", tmp_path / "pe.py")
    assert done.returncode == 1
    assert "doubled twice" in done.stdout
    assert "loop variable already steps by two" in done.stdout
    assert "3 of 8 points" in done.stdout


@pytest.mark.parametrize("name", RIGHT)
def test_right_variants_get_full_marks(tmp_path, name):
    (tmp_path / "pe.py").write_text(RIGHT[name])
    done = here("check", tmp_path / "pe.py", "--seed", 7)
    assert done.returncode == 0, done.stdout
    assert "8 of 8 points" in done.stdout


def test_an_untouched_stub_fails_with_a_sentence_for_each_piece():
    done = here("check", ROOT / "notebooks/03_attention")
    assert done.returncode == 1
    assert done.stdout.count("still raises NotImplementedError") == 3
    assert "0 of 20 points" in done.stdout


def test_json_is_json_whatever_the_cells_print(tmp_path):
    (tmp_path / "pe.py").write_text(
        "print('hello')\n" + DOUBLED.replace("    return pe", "    print('x')\n    return pe")
    )
    done = here("check", tmp_path / "pe.py", "--json")
    assert done.returncode == 1
    results = json.loads(done.stdout)
    assert {r["piece"] for r in results} == {"positional_encoding"}
    assert any(r["diagnosis"] and r["diagnosis"]["id"] == "doubled-exponent" for r in results)


def test_a_failed_cell_is_named(tmp_path):
    (tmp_path / "pe.py").write_text(RIGHT["loops"] + "\n1 / 0\n")
    done = autograder("check", tmp_path / "pe.py")
    assert "ZeroDivisionError" in done.stderr
    assert "8 of 8 points" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("check", "nowhere.py"), "Nothing to load at nowhere.py"),
        (("check", "README.md", "--piece", "sofmax"), "There are no checks for piece 'sofmax'"),
        (("check", "Makefile"), "is none of .ipynb, .md, .py"),
        (("grade", "--course", "nowhere"), "holds no submission"),
        (("grade", "--course", "nowhere", "03_atention"), "no source for 03_atention; its assignments: none"),
        (("grade", "--sandbox", "docker"), "--sandbox is bubblewrap or none"),
    ],
)
def test_a_mistake_is_one_sentence_and_status_2(arguments, sentence):
    done = autograder(*arguments)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_what_cannot_be_graded_is_said_before_anything_is_graded(tmp_path):
    chapters = ["02_positional_encoding", "03_attention"]
    release.write_source_course(tmp_path, [ROOT / "solutions" / f"{name}.md" for name in chapters])
    shutil.copytree(ROOT / "notebooks" / chapters[0], tmp_path / "release" / chapters[0])
    samples.write(tmp_path, ROOT / "notebooks", chapters)
    done = autograder("grade", "--course", tmp_path)
    assert done.returncode == 2
    assert "03_attention is not released" in done.stderr
    assert not (tmp_path / "results").exists()


def test_a_loop_without_end_is_stopped(tmp_path):
    (tmp_path / "s.py").write_text("def softmax(scores, dim=-1):\n    while True: pass\n")
    done = here("check", tmp_path / "s.py", "--seconds", 1)
    assert done.returncode == 1
    assert "no result after 1 seconds" in done.stdout


def test_help_names_every_command():
    done = autograder("--help")
    for command in ("check", "release", "course", "grade", "sandbox"):
        assert command in done.stdout
