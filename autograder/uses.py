"""Where the source of a notebook uses given functions and classes of a library, whatever they are called there.

Nothing is run: the text is read, names are followed through imports, aliases and the notebook's own functions, and dotted
names are looked up among the modules of this process. What only running can tell (``getattr`` with a computed name, what
a container holds) is not seen here; :mod:`autograder.recreates` traces calls as well.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import re
import sys
import types
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from transformer_lab.cells import Cell, plain_python

#: Larger cells are not read, nor cells with so many lines of magic: reading takes time that a learner must not decide.
MAX_CHARACTERS, MAX_MAGIC = 100_000, 50
#: What was read of cells that are no larger than this is remembered.
MAX_KEPT = 10_000
#: As many bindings are followed from one name.
MAX_STEPS = 50

#: Calls that give a notebook the pieces of earlier chapters. In the sandbox these are PyTorch's own.
EARLIER = ("transformer_lab.pieces.earlier", "transformer_lab.pieces.load")
BUILTIN = "transformer_lab.builtin"

_MAGIC_LINE = re.compile(r"^\s*[%!?]|\?\s*$", re.MULTILINE)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(frozen=True)
class Use:
    """One place where the source names one of the things looked for: what, the cell, its line, and the definition around."""

    name: str
    cell: Cell
    line: int
    within: str


@dataclass(eq=False)
class _Binding:
    """One way in which a name gets its value: an import (``dotted``), or a definition or expression (``node``)."""

    name: str
    order: int
    cell: Cell | None = None
    node: ast.AST | None = None
    dotted: str = ""


@dataclass(eq=False)
class _Scope:
    """The names of a module, function or class; ``cell`` is where they are bound."""

    cell: Cell | None = None
    names: dict[str, list[_Binding]] = field(default_factory=dict)
    count: int = 0

    def bind(self, name: str, node: ast.AST | None = None, dotted: str = "") -> None:
        self.count += 1
        self.names.setdefault(name, []).append(_Binding(name, self.count, self.cell, node, dotted))


class Source:
    """The code cells of one notebook or file, in the order in which they ran."""

    def __init__(self, cells: Sequence[Cell]):
        self.cells = [cell for cell in cells if cell.runs]
        self.scope = _Scope()
        self.methods: dict[str, list[tuple[Cell, ast.AST]]] = {}
        for cell in self.cells:
            self.scope.cell = cell
            statements, methods = (_parsed if len(cell.source) <= MAX_KEPT else _parsed.__wrapped__)(cell.source)
            _collect(statements, self.scope)
            for method in methods:
                self.methods.setdefault(method.name, []).append((cell, method))

    def defines(self, name: str) -> bool:
        """Whether a cell binds ``name``, by whatever statement."""
        return name in self.scope.names

    def home(self, name: str) -> Cell | None:
        """The cell that binds ``name`` last."""
        bindings = self.scope.names.get(name)
        return bindings[-1].cell if bindings else None

    def uses(self, name: str, targets: Collection[str], others: Collection[str] = ()) -> list[Use]:
        """Where ``name`` uses one of ``targets``, in its own code or in that of the notebook's functions that it calls.

        Parameters
        ----------
        name
            A name that the cells bind.
        targets
            Dotted names, such as ``"torch.softmax"`` and ``"torch.Tensor.softmax"``; methods of tensors are also found
            where they are called on a value.
        others
            Names whose definitions are not followed: what they use is theirs.

        Returns
        -------
        list[Use]
            The first use of each target, in the order in which they are met.
        """
        reader = _Reader(self, Targets(targets), set(others) - {name})
        with contextlib.suppress(RecursionError):  # nested deeper than Python follows: what was found until then
            reader.follow(self.scope.names.get(name, [])[-1:])
        first: dict[str, Use] = {}
        for use in reader.found:
            first.setdefault(use.name, use)
        return list(first.values())


# ------------------------------------------------------------------------------------------------------------- reading


@functools.lru_cache(maxsize=100)
def _parsed(source: str) -> tuple[list[ast.stmt], list[ast.FunctionDef | ast.AsyncFunctionDef]]:
    """The statements of a cell and the methods in them; none where it can't be read.

    Most cells are the course's own, and those of the next piece and the next notebook too.
    """
    if len(source) > MAX_CHARACTERS or len(_MAGIC_LINE.findall(source)) > MAX_MAGIC:
        return [], []
    try:
        tree = ast.parse(plain_python(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return [], []  # it did not run either
    classes = (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    return tree.body, [method for node in classes for method in node.body if isinstance(method, _FUNCTIONS)]


class Targets:
    """Things looked for, by their dotted names."""

    def __init__(self, names: Iterable[str]):
        self.names = list(dict.fromkeys(names))
        self.things = [(name, thing) for name in self.names if (thing := look_up(name)) is not None]
        self.methods = {n.rpartition(".")[2]: n for n in self.names if n.startswith("torch.Tensor.")}

    def named(self, dotted: str) -> str | None:
        """The one of them that is the same thing as ``dotted``, None where there is none."""
        if dotted in self.names:
            return dotted
        if inner := re.match(r"torch\.(?:ops\.aten\.|_(?=[a-z]))_?(\w+)", dotted):  # the operator behind a function
            return next((name for name in self.names if name.rpartition(".")[2] == inner[1]), None)
        thing = look_up(dotted)
        return next((name for name, other in self.things if thing is other), None) if thing is not None else None


def look_up(dotted: str) -> object | None:
    """What a dotted name stands for in this process; None where it is not imported or no such thing. Imports nothing."""
    root, *rest = dotted.split(".")
    if root not in ("torch", "transformer_lab", "sacrebleu", "nltk"):
        return None
    thing: object | None = sys.modules.get(root)
    for name in rest:
        if isinstance(thing, types.ModuleType):
            thing = vars(thing).get(name, sys.modules.get(f"{thing.__name__}.{name}"))
        elif isinstance(thing, type):
            thing = getattr(thing, name, None)
        else:
            return None
    return thing


class _Reader:
    """Walks from a definition through all that it refers to."""

    def __init__(self, source: Source, targets: Targets, others: set[str]):
        self.source, self.targets, self.others = source, targets, others
        self.found: list[Use] = []
        self.done: set[int] = set()

    def follow(self, bindings: Iterable[_Binding]) -> None:
        """Read what module-level names are bound to."""
        for binding in bindings:
            if id(binding) in self.done or binding.cell is None:
                continue
            self.done.add(id(binding))
            if binding.dotted:
                self._check(binding.dotted, binding.node, binding.cell, binding.name)
            elif binding.node is not None:
                later = isinstance(binding.node, (*_FUNCTIONS, ast.ClassDef))
                place = _Place(binding.cell, binding.name, None if later else binding.order)
                self._read(binding.node, [], place)

    def _check(self, dotted: str, node: ast.AST | None, cell: Cell, within: str) -> bool:
        name = self.targets.named(dotted)
        if name and node is not None:
            self.found.append(Use(name, cell, getattr(node, "lineno", 1), within))
        return name is not None

    def _read(self, node: ast.AST, scopes: list[_Scope], place: _Place) -> None:
        if isinstance(node, _FUNCTIONS):
            self._read_all([*node.decorator_list, *_defaults(node.args)], scopes, place)
            inner = _Scope()
            _collect_arguments(node.args, inner)
            _collect(node.body, inner)
            self._read_all(node.body, [inner, *scopes], place)
        elif isinstance(node, ast.ClassDef):
            self._read_all([*node.decorator_list, *node.bases, *(k.value for k in node.keywords)], scopes, place)
            inner = _Scope()
            _collect(node.body, inner)
            for statement in node.body:  # a method does not see the names of its class
                self._read(statement, scopes if isinstance(statement, _FUNCTIONS) else [inner, *scopes], place)
        elif isinstance(node, ast.Lambda):
            inner = _Scope()
            _collect_arguments(node.args, inner)
            self._read_all(_defaults(node.args), scopes, place)
            self._read(node.body, [inner, *scopes], _Place(place.cell, place.within, None))
        elif isinstance(node, _COMPREHENSIONS):
            inner = _Scope()
            for generator in node.generators:
                _collect_target(generator.target, inner)
            self._read_all(ast.iter_child_nodes(node), [inner, *scopes], place)
        elif isinstance(node, ast.AnnAssign):
            self._read_all([node.target, *filter(None, [node.value])], scopes, place)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            pass  # an import is not yet a use
        elif isinstance(node, ast.Name):
            self._read_name(node, scopes, place)
        elif isinstance(node, ast.Attribute):
            self._read_attribute(node, scopes, place)
        elif isinstance(node, ast.Call):
            self._read_call(node, scopes, place)
        else:
            self._read_all(ast.iter_child_nodes(node), scopes, place)

    def _read_all(self, nodes: Iterable[ast.AST], scopes: list[_Scope], place: _Place) -> None:
        for node in nodes:
            self._read(node, scopes, place)

    def _read_name(self, node: ast.Name, scopes: list[_Scope], place: _Place) -> None:
        if not isinstance(node.ctx, ast.Load):
            return
        local, bindings = self._bindings(node.id, scopes, place)
        for binding in bindings:
            if binding.dotted:
                self._check(binding.dotted, node, place.cell, place.within)
        if not local and node.id not in self.others:
            self.follow(binding for binding in bindings if not binding.dotted)

    def _read_attribute(self, node: ast.Attribute, scopes: list[_Scope], place: _Place) -> None:
        for dotted in self._dotted(node, scopes, place, set()):
            if self._check(dotted, node, place.cell, place.within):
                return
        self._read(node.value, scopes, place)

    def _read_call(self, node: ast.Call, scopes: list[_Scope], place: _Place) -> None:
        for dotted in self._dotted(node, scopes, place, set()):  # getattr(torch, "softmax")
            self._check(dotted, node, place.cell, place.within)
        method = node.func
        if isinstance(method, ast.Attribute) and method.attr in self.targets.methods:
            own = self.source.methods.get(method.attr, [])
            for cell, definition in own:
                if id(definition) not in self.done:
                    self.done.add(id(definition))
                    self._read(definition, [], _Place(cell, method.attr, None))
            if not own and self._is_a_value(method.value, scopes, place):
                self.found.append(Use(self.targets.methods[method.attr], place.cell, method.lineno, place.within))
        self._read_all(ast.iter_child_nodes(node), scopes, place)

    # -------------------------------------------------------------------------------------------------------- names

    def _bindings(self, name: str, scopes: list[_Scope], place: _Place) -> tuple[bool, list[_Binding]]:
        """Whether the name is a local one, and what it may be bound to; at the module's level, what it is bound to last."""
        for scope in scopes:
            if name in scope.names:
                return True, scope.names[name]
        bound = self.source.scope.names.get(name, [])
        return False, [b for b in bound if place.before is None or b.order < place.before][-1:]

    def _dotted(self, node: ast.AST, scopes: list[_Scope], place: _Place, seen: set[int]) -> list[str]:
        """The dotted names that an expression may stand for; none where it is a value of the learner's own."""
        if isinstance(node, ast.Attribute):
            return [f"{value}.{node.attr}" for value in self._dotted(node.value, scopes, place, seen)]
        if isinstance(node, ast.Call):
            called = self._dotted(node.func, scopes, place, seen)
            if any(name in EARLIER for name in called):
                return [BUILTIN]
            plain = isinstance(node.func, ast.Name) and node.func.id == "getattr" and len(node.args) >= 2
            if plain and isinstance(attribute := node.args[1], ast.Constant) and isinstance(attribute.value, str):
                return [f"{value}.{attribute.value}" for value in self._dotted(node.args[0], scopes, place, seen)]
            return []
        if not isinstance(node, ast.Name):
            return []
        local, bindings = self._bindings(node.id, scopes, place)
        found = []
        for binding in bindings:
            if binding.dotted:
                found.append(binding.dotted)
            elif id(binding) not in seen and len(seen) < MAX_STEPS and isinstance(binding.node, ast.expr):
                seen.add(id(binding))
                around = place if local or binding.cell is None else _Place(binding.cell, binding.name, binding.order)
                found += self._dotted(binding.node, scopes if local else [], around, seen)
        return found

    def _is_a_value(self, node: ast.AST, scopes: list[_Scope], place: _Place) -> bool:
        """Whether ``node`` may be a tensor: not ``self``, not a module or a definition of the notebook."""
        if isinstance(node, ast.Name):
            local, _ = self._bindings(node.id, scopes, place)
            return local and node.id not in ("self", "cls") and not self._dotted(node, scopes, place, set())
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super":
            return False
        return not self._dotted(node, scopes, place, set())


@dataclass(frozen=True)
class _Place:
    """Where the reader is: the cell, the module-level name whose definition it reads, and how far names are bound there."""

    cell: Cell
    within: str
    before: int | None


# ---------------------------------------------------------------------------------------------------------- collecting


def _collect(statements: Iterable[ast.AST], scope: _Scope) -> None:
    """Enter what ``statements`` bind in their own scope."""
    for node in statements:
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            scope.bind(node.name, node)
            continue
        if isinstance(node, (ast.Lambda, *_COMPREHENSIONS)):
            continue
        if isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.asname or alias.name.partition(".")[0]
                scope.bind(name, node, alias.name if alias.asname else name)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names if node.module and not node.level else []:
                for name in _public(str(node.module)) if alias.name == "*" else [alias.name]:
                    scope.bind(alias.asname or name, node, f"{node.module}.{name}")
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                _collect_target(target, scope, node.value)
        elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
            _collect_target(node.target, scope, node.value)
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            _collect_target(node.target, scope)
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            _collect_target(node.optional_vars, scope)
        elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
            scope.bind(node.name)
        _collect(ast.iter_child_nodes(node), scope)


def _collect_target(target: ast.AST, scope: _Scope, value: ast.AST | None = None) -> None:
    if isinstance(target, ast.Name):
        scope.bind(target.id, value)
    elif isinstance(target, ast.Starred):
        _collect_target(target.value, scope)
    elif isinstance(target, (ast.Tuple, ast.List)):
        values: Sequence[ast.AST | None] = [None] * len(target.elts)
        if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts):
            values = value.elts
        for one, each in zip(target.elts, values, strict=True):
            _collect_target(one, scope, each)


def _collect_arguments(arguments: ast.arguments, scope: _Scope) -> None:
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    for argument in filter(None, every):
        scope.bind(argument.arg)


def _defaults(arguments: ast.arguments) -> list[ast.expr]:
    return [*arguments.defaults, *filter(None, arguments.kw_defaults)]


def _public(module: str) -> list[str]:
    """What a star import brings: of modules that are imported here; nothing of others."""
    found = look_up(module)
    names = vars(found) if isinstance(found, types.ModuleType) else {}
    return list(names.get("__all__") or [name for name in names if not name.startswith("_")])
