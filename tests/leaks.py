"""Find the answers of graded pieces where learners and readers can see them.

A leak is the whole body of a solution, or three consecutive statements of one, however the variables are called. What
is compared is the syntax tree: constants, attributes and the names of called functions count, the names of variables,
annotations, docstrings and imports do not.
"""

from __future__ import annotations

import ast
import builtins
import json
import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from html.parser import HTMLParser
from pathlib import Path

from transformer_lab.cells import plain_python, read_notebook

BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"
RUN = 3

#: A shorter body is a leak only if it says something: `return x` or `self.d = d` is anybody's. Counted in syntax nodes.
LEAST_NODES = 8

#: Modules whose functions are the same under any name: `F.relu`, `torch.nn.functional.relu`.
_MODULES = {"torch", "nn", "functional", "F", "math", "np", "numpy"}


@dataclass(frozen=True)
class Leak:
    """Statements of the answer in ``source`` found in ``place``."""

    source: str
    place: str
    text: str

    def __str__(self):
        return f"{self.place} shows the answer of {self.source}:\n{textwrap.indent(self.text, '    ')}"


@dataclass
class Answers:
    """The protected statements of some solutions: the normal form of a run → where it stands.

    ``bodies`` holds the bodies of one or two statements; there it is the last one's value that counts, so that
    ``y = answer`` gives ``return answer`` away.
    """

    runs: dict[tuple[str, ...], str] = field(default_factory=dict)
    bodies: dict[tuple[str, ...], str] = field(default_factory=dict)
    known: dict[str, list[tuple[str, str]]] = field(default_factory=dict)  # what a block shows: answers and statements

    def add(self, source: str, where: str) -> None:
        """Protect what stands between the BEGIN and END SOLUTION lines of one cell."""
        self.known.clear()
        inside = _solution_lines(source)
        if not inside:
            return
        tree = ast.parse(plain_python(source))
        for owner, body in _bodies(tree):
            protected = [statement for statement in body if statement.lineno in inside]
            name = f"{where}, {owner}" if owner else where
            for sequence in _sequences(protected):
                for run in _windows(sequence, RUN):
                    self.runs[normal_form(run)] = name
                if 0 < len(sequence) < RUN and sum(map(_nodes, sequence)) >= LEAST_NODES:
                    self.bodies[normal_form(sequence, value=True)] = name

    def find(self, code: str, place: str) -> list[Leak]:
        """The leaks in one block of code, which need not be whole: what can be parsed is compared."""
        if code not in self.known:
            self.known[code] = self._shown(code)
        return [Leak(owner, place, text) for owner, text in self.known[code]]

    def _shown(self, code: str) -> list[tuple[str, str]]:
        found = []
        for tree in parse_pieces(code):
            for _, body in _bodies(tree):
                for sequence in _sequences(body):
                    for length in range(1, RUN + 1):
                        for run in _windows(sequence, length):
                            form = normal_form(run, value=length < RUN)
                            owner = (self.runs if length == RUN else self.bodies).get(form)
                            if owner:
                                found.append((owner, "\n".join(map(_header, run))))
        return found


def answers_of(sources: Iterable[Path]) -> Answers:
    """The answers in MyST or Jupyter notebooks."""
    answers = Answers()
    for path in sources:
        for cell in read_notebook(path).cells:
            if cell.cell_type == "code" and BEGIN in cell.source:
                answers.add(cell.source, path.name)
    return answers


# ------------------------------------------------------------------------------------------------- where code is shown


def code_of_markdown(text: str) -> list[str]:
    """Every fenced or indented block, whatever it is called; prose around it is not code."""
    blocks = [match["code"] for match in _FENCE.finditer(text)]
    blocks += [textwrap.dedent(match[0]) for match in re.finditer(r"(?:^(?: {4}|\t).*\n?|^\s*\n)+", text, re.M)]
    return [block for block in blocks if block.strip()]


_FENCE = re.compile(
    r"^(?P<lead>[ >]*)(?P<fence>`{3,}|~{3,}|:{3,})[^\n]*\n(?P<code>.*?)^[ >]*(?P=fence)[ \t]*$", re.M | re.S
)


class _Preformatted(HTMLParser):
    def __init__(self):
        super().__init__()
        self.depth, self.blocks = 0, []

    def handle_starttag(self, tag, attrs):
        if tag in ("pre", "textarea"):
            if self.depth == 0:
                self.blocks.append("")
            self.depth += 1
        elif tag == "br" and self.depth:
            self.blocks[-1] += "\n"

    def handle_endtag(self, tag):
        if tag in ("pre", "textarea"):
            self.depth = max(0, self.depth - 1)

    def handle_data(self, data):
        if self.depth:
            self.blocks[-1] += data


def code_of_html(text: str) -> list[str]:
    """The text of every preformatted block, hidden ones too."""
    parser = _Preformatted()
    parser.feed(text)
    return parser.blocks


def code_of_notebook(text: str) -> list[str]:
    """Code cells, and the blocks in Markdown cells and text outputs."""
    blocks = []
    for cell in json.loads(text)["cells"]:
        source = "".join(cell["source"])
        blocks += [source] if cell["cell_type"] == "code" else code_of_markdown(source) + code_of_html(source)
        for output in cell.get("outputs", []):
            shown = output.get("text") or output.get("data", {}).get("text/plain") or ""
            blocks.append("".join(shown))
    return blocks


READERS = {
    ".md": lambda text: code_of_markdown(text) + code_of_html(text),
    ".txt": lambda text: [text, *code_of_markdown(text)],
    ".html": code_of_html,
    ".ipynb": code_of_notebook,
    ".py": lambda text: [text],
}


def search(answers: Answers, files: Iterable[Path], root: Path) -> list[Leak]:
    """The leaks in all ``files`` that can hold code, each block looked at on its own."""
    leaks = []
    for file in files:
        reader = READERS.get(file.suffix)
        if reader and file.is_file():
            for block in reader(file.read_text(encoding="utf-8")):
                leaks += answers.find(block, file.relative_to(root).as_posix())
    return leaks


# ----------------------------------------------------------------------------------------------------- syntax trees


def parse_pieces(code: str) -> list[ast.Module]:
    """The syntax trees of ``code``: one if it is Python, else one of each longest stretch of lines that is."""
    code = textwrap.dedent(re.sub(r"^(>>> |\.\.\. |In \[\d*\]: )", "", code.expandtabs(4), flags=re.M))
    try:
        return [ast.parse(plain_python(code))]
    except (SyntaxError, ValueError):
        pass
    lines, trees, start = code.splitlines(), [], 0
    while start < len(lines):
        for stop in range(min(len(lines), start + 80), start, -1):
            try:
                tree = ast.parse(textwrap.dedent("\n".join(lines[start:stop])))
            except (SyntaxError, ValueError):
                continue
            trees.append(tree)
            break
        else:
            stop = start + 1
        start = stop
    return trees


def _solution_lines(source: str) -> set[int]:
    inside, lines = False, set()
    for number, line in enumerate(source.splitlines(), start=1):
        if line.strip().startswith(BEGIN):
            inside = True
        elif line.strip().startswith(END):
            inside = False
        elif inside:
            lines.add(number)
    return lines


def _bodies(tree: ast.Module) -> Iterator[tuple[str, list[ast.stmt]]]:
    """The module's own statements and each function's, with the function's name; a class is no body of its own."""
    yield "", [s for s in tree.body if not isinstance(s, _SCOPES)]
    stack: list[tuple[str, ast.AST]] = [("", tree)]
    while stack:
        prefix, node = stack.pop()
        for child in ast.iter_child_nodes(node):
            name = f"{prefix}.{child.name}".strip(".") if isinstance(child, _SCOPES) else prefix
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield name, child.body
            stack.append((name, child))


_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_NOISE = (ast.Import, ast.ImportFrom, ast.Pass, *_SCOPES)


def _sequences(body: list[ast.stmt]) -> list[list[ast.stmt]]:
    """What counts as consecutive: statements of one level, and all of them in the order of the text."""
    body = [statement for statement in body if not _is_noise(statement)]
    flat: list[ast.stmt] = []
    levels: list[list[ast.stmt]] = []

    def walk(statements: list[ast.stmt]) -> None:
        statements = [statement for statement in statements if not _is_noise(statement)]
        levels.append(statements)
        for statement in statements:
            flat.append(statement)
            for block in ("body", "orelse", "finalbody"):
                if getattr(statement, block, None):
                    walk(getattr(statement, block))
            for handler in getattr(statement, "handlers", []):
                walk(handler.body)

    walk(body)
    nested = len(flat) > len(body)
    return [flat, *(level for level in levels if len(level) >= RUN)] if nested else [flat]


def _is_noise(statement: ast.stmt) -> bool:
    if isinstance(statement, _NOISE):
        return True
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _windows(sequence: list[ast.stmt], length: int) -> Iterator[list[ast.stmt]]:
    for start in range(len(sequence) - length + 1):
        yield sequence[start : start + length]


def normal_form(statements: Iterable[ast.stmt], value: bool = False) -> tuple[str, ...]:
    """The statements without what a copyist changes: two runs are the same when their normal forms are.

    With ``value``, the last statement counts as the value that it returns, assigns or is.
    """
    headers: list[ast.AST] = [_header_tree(statement) for statement in statements]
    if value and isinstance(headers[-1], (ast.Return, ast.Assign, ast.AnnAssign, ast.Expr)):
        headers[-1] = headers[-1].value or ast.Constant(None)
    normaliser = _Normaliser()
    return tuple(ast.dump(normaliser.visit(header)) for header in headers)


class _Normaliser(ast.NodeTransformer):
    def __init__(self):
        self.names: dict[str, str] = {}

    def visit_Name(self, node):
        if hasattr(builtins, node.id):
            return node
        return ast.Name(self.names.setdefault(node.id, f"v{len(self.names)}"), ast.Load())

    def visit_Call(self, node):
        if isinstance(node.func, ast.Name):  # a function keeps its name
            rest = [self.visit(part) for part in (*node.args, *node.keywords)]
            return ast.Call(ast.Constant(node.func.id), rest, [])
        return self.generic_visit(node)

    def visit_Attribute(self, node):
        if _is_module(node.value):
            return ast.Constant(node.attr)
        return ast.Attribute(self.visit(node.value), node.attr, ast.Load())

    def visit_arg(self, node):
        return ast.arg(self.names.setdefault(node.arg, f"v{len(self.names)}"))

    def visit_AnnAssign(self, node):
        if node.value is None:
            return ast.Pass()
        return self.visit(ast.Assign([node.target], node.value))

    def visit_Subscript(self, node):
        return ast.Subscript(self.visit(node.value), self.visit(node.slice), ast.Load())

    def visit_Tuple(self, node):
        return ast.Tuple([self.visit(item) for item in node.elts], ast.Load())


def _is_module(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr in _MODULES and _is_module(node.value)
    return isinstance(node, ast.Name) and node.id in _MODULES


def _header_tree(statement: ast.stmt) -> ast.stmt:
    """A copy of the statement; of a compound one, only its first line."""
    copy = ast.parse(_unparsed(statement)).body[0]
    for block in ("body", "orelse", "finalbody", "handlers"):
        if getattr(copy, block, None):
            setattr(copy, block, [])
    return copy


def _header(statement: ast.stmt) -> str:
    return _unparsed(statement).splitlines()[0]


@lru_cache(maxsize=1000)
def _unparsed(statement: ast.stmt) -> str:
    """Each statement is looked at in several runs."""
    return ast.unparse(statement)


def _nodes(statement: ast.stmt) -> int:
    kinds = (ast.expr_context, ast.operator, ast.unaryop, ast.cmpop)
    return sum(not isinstance(node, kinds) for node in ast.walk(_header_tree(statement)))
