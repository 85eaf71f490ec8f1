"""Print how large the package is, and how many modules one opens to follow what it does.

    python benchmarks/codebase.py                # this checkout
    python benchmarks/codebase.py PATH           # another checkout
    python benchmarks/codebase.py PATH --list    # name the modules to open as well

The modules to open come from a static call graph. It begins at the functions in ENTRIES and follows
every function, class, and constant of the package that the code refers to. A module counts when it
holds one of them. mypy infers the types. A method of a base class or a protocol leads to every
class that fits, a callable in an attribute leads to everything that the package passes for it, and
annotations lead nowhere. Calls that go through another process or through Atropos's base classes
are entries of their own.
"""

from __future__ import annotations

import argparse
import ast
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from mypy import build, nodes, types
from mypy.modulefinder import BuildSource
from mypy.options import Options
from mypy.subtypes import is_subtype
from mypy.typevars import fill_typevars_with_any as fill

PACKAGE = "reasoning_gym_environment"

ENTRIES: dict[str, list[tuple[str, ...]]] = {
    "training group": [
        ("ReasoningGymEnv.get_next_item",),
        ("ReasoningGymEnv.collect_trajectories",),
        ("Groups.work_on", "GroupLoop.work_on"),
        ("ServerClient.sample", "VllmServer._tokens_and_logprobs_completion_wrapper"),
        ("generator.run", "_generator.run"),
    ],
    "evaluation": [
        ("ReasoningGymEnv.evaluate",),
        ("ServerClient.sample", "VllmServer._tokens_and_logprobs_completion_wrapper"),
    ],
    "row to rescore, export, report": [
        ("commands.rescore.rescore_files",),
        ("commands.rescore.measure", "Baselines.at_threshold"),
        ("commands.rescore.measure", "metrics.evaluation_report"),
        ("commands.rescore.measure", "tables.evaluation_table"),
        ("commands.rescore.measure", "store.write_metrics"),
        ("commands.export.main",),
        ("commands.report.main",),
    ],
    "verifier call": [
        ("TaskPool.verify",),
        ("verifier_child.score_alone", "_verifier_child._single_use_work"),
    ],
    "reward request": [("Endpoints.score", "Routes.score")],
}
"""What each count follows. Each entry lists its names over time; the first that exists counts."""

BY_CATEGORY = ("scoring.guards", "tasks.item_checks")
"""Packages with one module a category of tasks: the task decides which one is opened, so that all
of them count as one."""

Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef | ast.expr
LONGEST_STUB = 5_000
"""Lines of the longest stub of the standard library, whose types mypy returns as well."""

Position = tuple[int, int, int | None, int | None]


class Node(NamedTuple):
    """A function, class, or module-level name, and for a method the class of `self`."""

    name: str
    receiver: str = ""


class Module(NamedTuple):
    """A module's syntax tree."""

    name: str
    tree: ast.Module


def read(root: Path) -> Iterator[tuple[BuildSource, Module]]:
    """Read the modules; each begins where the last one ends, so that a line is unique."""
    end = LONGEST_STUB
    for path in sorted((root / PACKAGE).rglob("*.py")):
        name = module_name(path.relative_to(root))
        text = "\n" * end + path.read_text(encoding="utf-8")
        end = text.count("\n")
        yield BuildSource(str(path), name, text), Module(name, ast.parse(text))


def check(sources: list[BuildSource], root: Path) -> build.BuildResult:
    """Infer the types of the package; other packages count as untyped."""
    options = Options()
    options.incremental = False
    options.cache_dir = os.devnull
    options.export_types = True
    options.preserve_asts = True
    options.follow_imports = "skip"
    options.ignore_errors = True
    options.python_version = (3, 11)
    return build.build(sources, options, alt_lib_path=str(root))


def module_name(path: Path) -> str:
    """Return the name of the module in a file.

    >>> module_name(Path("package/util/__init__.py"))
    'package.util'
    """
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def definitions(
    body: Sequence[ast.stmt], scope: str
) -> Iterator[tuple[str, Definition]]:
    """Return the functions, classes, and assigned values of a scope by their full names."""
    for statement in body:
        if isinstance(statement, Function):
            yield f"{scope}.{statement.name}", statement
        elif isinstance(statement, ast.ClassDef):
            name = f"{scope}.{statement.name}"
            yield name, statement
            yield from definitions(statement.body, name)
        elif isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value:
            targets = (
                statement.targets
                if isinstance(statement, ast.Assign)
                else [statement.target]
            )
            for target in targets:
                for place in ast.walk(target):
                    if isinstance(place, ast.Name):
                        yield f"{scope}.{place.id}", statement.value
        else:
            for block in ("body", "orelse", "finalbody"):
                yield from definitions(getattr(statement, block, []), scope)


def references(code: ast.AST) -> Iterator[ast.Name | ast.Attribute]:
    """Return the names and attributes that a piece of code reads, those of annotations not."""
    for field, value in ast.iter_fields(code):
        if field in ("annotation", "returns"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.Name | ast.Attribute):
                yield child
            if isinstance(child, ast.AST):
                yield from references(child)


def classes_of(kind: types.Type | None) -> Iterator[nodes.TypeInfo]:
    """Return the classes that a value of this type may have."""
    kind = types.get_proper_type(kind)
    if isinstance(kind, types.Instance):
        yield kind.type
    elif isinstance(kind, types.UnionType):
        for item in kind.items:
            yield from classes_of(item)
    elif isinstance(kind, types.TypeType):
        yield from classes_of(kind.item)
    elif isinstance(kind, types.TypeVarType):
        yield from classes_of(kind.upper_bound)
    elif isinstance(kind, types.TupleType):
        yield kind.partial_fallback.type
    elif isinstance(kind, types.LiteralType):
        yield kind.fallback.type
    elif isinstance(kind, types.FunctionLike) and kind.is_type_obj():
        yield kind.type_object()


def may_be_callable(kind: types.Type | None) -> bool:
    """Whether a value of this type may be a function."""
    kind = types.get_proper_type(kind)
    if isinstance(kind, types.UnionType):
        return any(may_be_callable(item) for item in kind.items)
    return isinstance(kind, types.FunctionLike)


class CallGraph:
    """The references between the functions, classes, and tables of a checkout."""

    def __init__(self, root: Path) -> None:
        read_modules = list(read(root))
        result = check([source for source, _ in read_modules], root)
        self._types = result.types
        self._expressions = {
            (one.line, one.column, one.end_line, one.end_column): one
            for one in result.types
            if isinstance(one, nodes.RefExpr | nodes.SuperExpr)
            and one.line > LONGEST_STUB
        }
        self.modules = [module for _, module in read_modules]
        self.definitions: dict[str, list[Definition]] = defaultdict(list)
        self._home: dict[str, str] = {}
        for module in self.modules:
            for name, definition in definitions(module.tree.body, module.name):
                self.definitions[name].append(definition)
                self._home[name] = module.name
        self.classes = {
            info.fullname: info
            for module in self.modules
            for info in defined_classes(result.files[module.name].names, module.name)
        }
        self._descendants = {
            name: list(self._find_descendants(info))
            for name, info in self.classes.items()
        }

    def reach(self, entries: Iterable[tuple[str, ...]]) -> set[str]:
        """Return the modules that hold what the entries lead to."""
        left = [self.find(names) for names in entries]
        seen = set(left)
        self._passed = self._find_passed()
        while left:
            for found in self._references(left.pop()):
                if found not in seen:
                    seen.add(found)
                    left.append(found)
        return {self._home[node.name] for node in seen}

    def find(self, names: tuple[str, ...]) -> Node:
        """Return the first of these functions and methods that exists.

        Raises:
            LookupError: none exists.
        """
        for name in names:
            scope, _, last = name.rpartition(".")
            for info in self.classes.values():
                if info.name == scope and self._definer(info, last) in self._home:
                    return Node(self._definer(info, last), info.fullname)
            for full_name in self.definitions:
                if f".{full_name}".endswith(f".{name}"):
                    return Node(full_name)
        raise LookupError(
            f"none of {', '.join(names)} exists: add its new name to ENTRIES"
        )

    def _definer(self, info: nodes.TypeInfo, name: str) -> str:
        """Return the full name of an attribute in the class that defines it."""
        return next(
            (f"{base.fullname}.{name}" for base in info.mro if name in base.names), ""
        )

    def _find_descendants(self, info: nodes.TypeInfo) -> Iterator[str]:
        for other in self.classes.values():
            members = info.protocol_members if info.is_protocol else [""]
            fits = all(map(other.get, members)) and is_subtype(fill(other), fill(info))
            if other is not info and (info in other.mro or fits):
                yield other.fullname

    def _find_passed(self) -> dict[tuple[str, str], list[ast.Name | ast.Attribute]]:
        """Return the functions that callers pass to constructors, by class and parameter."""
        passed: dict[tuple[str, str], list[ast.Name | ast.Attribute]] = defaultdict(
            list
        )
        for module in self.modules:
            for call in ast.walk(module.tree):
                if not isinstance(call, ast.Call):
                    continue
                callee = self._expressions.get(position(call.func))
                if not isinstance(callee, nodes.RefExpr):
                    continue
                info = self.classes.get(callee.fullname)
                if info is None:
                    continue
                pairs = [
                    (keyword.arg or "", keyword.value) for keyword in call.keywords
                ]
                pairs += zip(parameters(info), call.args, strict=False)
                for name, value in pairs:
                    passed[info.fullname, name] += references(ast.Expression(value))
        return passed

    def _references(self, node: Node) -> Iterator[Node]:
        for definition in self.definitions[node.name]:
            if isinstance(definition, ast.ClassDef):
                yield from self._of_class(node.name)
            else:
                # `references` looks below what it is given: the definition itself may be a name.
                wrapped = ast.Tuple([definition])  # type: ignore[list-item]  # any node will do
                for reference in references(wrapped):
                    yield from self._targets(reference, node.receiver)

    def _of_class(self, name: str) -> Iterator[Node]:
        """Return what an instance brings: dunder methods, defaults, and what its base calls."""
        info = self.classes.get(name)
        if info is None:
            return
        foreign = [base for base in info.mro if base.fullname not in self.classes]
        for base in info.mro:
            if base.fullname not in self.classes:
                continue
            classes = [
                d
                for d in self.definitions[base.fullname]
                if isinstance(d, ast.ClassDef)
            ]
            for statement in classes[0].body:
                if isinstance(statement, Function):
                    dunder = statement.name.startswith("__")
                    hook = any(statement.name in other.names for other in foreign)
                    if dunder or hook:
                        yield Node(f"{base.fullname}.{statement.name}", name)
                elif (
                    isinstance(statement, ast.Assign | ast.AnnAssign)
                    and statement.value
                ):
                    for reference in references(ast.Expression(statement.value)):
                        yield from self._targets(reference, "")

    def _targets(
        self, reference: ast.Name | ast.Attribute, receiver: str
    ) -> Iterator[Node]:
        """Return what a name or an attribute stands for."""
        expression = self._expressions.get(position(reference))
        if isinstance(expression, nodes.SuperExpr):
            yield from self._of_super(expression, receiver)
            return
        if not isinstance(expression, nodes.RefExpr):
            return
        if expression.fullname in self.definitions:
            yield Node(expression.fullname)
        if isinstance(expression, nodes.MemberExpr):
            if receiver and is_self(expression):
                yield from self._member(receiver, expression.name)
                return
            for info in classes_of(self._types.get(expression.expr)):
                for one in [info.fullname, *self._descendants.get(info.fullname, ())]:
                    yield from self._member(one, expression.name)

    def _of_super(self, expression: nodes.SuperExpr, receiver: str) -> Iterator[Node]:
        info = self.classes.get(receiver)
        if info and expression.info in info.mro:
            for base in info.mro[info.mro.index(expression.info) + 1 :]:
                if expression.name in base.names:
                    if (
                        name := f"{base.fullname}.{expression.name}"
                    ) in self.definitions:
                        yield Node(name, receiver)
                    return

    def _member(self, receiver: str, name: str) -> Iterator[Node]:
        """Return an attribute of a class; for a callable one, what the package passes for it."""
        info = self.classes.get(receiver)
        if info is None:
            return
        full_name = self._definer(info, name)
        if full_name in self.definitions:
            yield Node(full_name, receiver)
        symbol = info.get(name)
        if (
            symbol
            and isinstance(symbol.node, nodes.Var)
            and may_be_callable(symbol.node.type)
        ):
            for base in info.mro:
                for parameter in (name.lstrip("_"), name):
                    for reference in self._passed.pop((base.fullname, parameter), ()):
                        yield from self._targets(reference, "")


def defined_classes(names: nodes.SymbolTable, scope: str) -> Iterator[nodes.TypeInfo]:
    """Return the classes that are defined in a scope."""
    for symbol in names.values():
        info = symbol.node
        if isinstance(info, nodes.TypeInfo) and info.fullname == f"{scope}.{info.name}":
            yield info
            yield from defined_classes(info.names, info.fullname)


def is_self(expression: nodes.Expression) -> bool:
    """Whether an expression is an attribute of the method's own instance or class."""
    if not isinstance(expression, nodes.MemberExpr):
        return False
    owner = expression.expr
    return (
        isinstance(owner, nodes.NameExpr)
        and isinstance(owner.node, nodes.Var)
        and (owner.node.is_self or owner.node.is_cls)
    )


def parameters(info: nodes.TypeInfo) -> list[str]:
    """Return the names of a constructor's positional parameters."""
    symbol = info.get("__init__")
    init = symbol.node if symbol else None
    names = init.arg_names[1:] if isinstance(init, nodes.FuncDef) else []
    return [name for name in names if name is not None]


def position(code: ast.expr) -> Position:
    return code.lineno, code.col_offset, code.end_lineno, code.end_col_offset


def function_lengths(trees: Iterable[ast.Module]) -> list[int]:
    """Return the lines of every function, shortest first.

    >>> function_lengths([ast.parse("def f():\\n    return 1")])
    [2]
    """
    return sorted(
        (node.end_lineno or node.lineno) - node.lineno + 1
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, Function)
    )


def is_annotated(function: Function) -> bool:
    """Whether every parameter but `self` and the result have a type."""
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    starred = [one for one in (arguments.vararg, arguments.kwarg) if one is not None]
    return function.returns is not None and all(
        one.annotation or one.arg in ("self", "cls") for one in [*named, *starred]
    )


def public_definitions(body: Sequence[ast.stmt]) -> Iterator[Function | ast.ClassDef]:
    """Return the public functions and classes, and the public methods of these."""
    for statement in body:
        if isinstance(
            statement, Function | ast.ClassDef
        ) and not statement.name.startswith("_"):
            yield statement
            if isinstance(statement, ast.ClassDef):
                yield from public_definitions(statement.body)


def is_enum(definition: ast.ClassDef) -> bool:
    return any(
        "Enum" in (base := ast.unparse(one)) or "Flag" in base
        for one in definition.bases
    )


def constants(tree: ast.Module) -> int:
    """Return how many UPPER_CASE names modules and classes assign; members of enums don't count.

    >>> constants(ast.parse("_A, B = 1, 2\\nclass C:\\n    D: int = 3\\n    e = 4"))
    3
    """
    classes = [
        one
        for one in ast.walk(tree)
        if isinstance(one, ast.ClassDef) and not is_enum(one)
    ]
    return sum(
        isinstance(name, ast.Name) and name.id.strip("_").isupper()
        for body in (tree.body, *(one.body for one in classes))
        for statement in body
        if isinstance(statement, ast.Assign | ast.AnnAssign)
        and statement.value
        and not (
            isinstance(statement.value, ast.Call)
            and ast.unparse(statement.value.func).endswith(("TypeVar", "ParamSpec"))
        )
        for target in (
            statement.targets
            if isinstance(statement, ast.Assign)
            else [statement.target]
        )
        for name in ast.walk(target)
    )


class Sizes(NamedTuple):
    """What a reader pays for; the test of the house rules bounds it."""

    modules: int
    lines: int
    classes: int
    constants: int
    function_p90: int
    longest_function: int
    annotated: float
    documented: float

    @property
    def constants_per_1000(self) -> float:
        return 1000 * self.constants / self.lines


def sizes(root: Path) -> Sizes:
    """Return the figures of a checkout's package that need no call graph."""
    texts = [
        path.read_text(encoding="utf-8")
        for path in sorted((root / PACKAGE).rglob("*.py"))
    ]
    trees = [ast.parse(text) for text in texts]
    lengths = function_lengths(trees)
    functions = [
        node for tree in trees for node in ast.walk(tree) if isinstance(node, Function)
    ]
    public = [one for tree in trees for one in public_definitions(tree.body)]
    return Sizes(
        modules=len(texts),
        lines=sum(len(text.splitlines()) for text in texts),
        classes=sum(
            isinstance(one, ast.ClassDef) for tree in trees for one in ast.walk(tree)
        ),
        constants=sum(map(constants, trees)),
        function_p90=lengths[int(0.9 * (len(lengths) - 1))],
        longest_function=lengths[-1],
        annotated=sum(map(is_annotated, functions)) / len(functions),
        documented=sum(ast.get_docstring(one) is not None for one in public)
        / len(public),
    )


def size_rows(root: Path) -> Iterator[tuple[str, str]]:
    """Return these figures as rows of the table."""
    found = sizes(root)
    yield "modules", f"{found.modules}"
    yield "lines", f"{found.lines:,}"
    yield "classes", f"{found.classes}"
    yield "constants of modules and classes", f"{found.constants}"
    yield "constants per 1,000 lines", f"{found.constants_per_1000:.1f}"
    yield "lines of a function: 90th percentile", f"{found.function_p90}"
    yield "lines of a function: longest", f"{found.longest_function}"
    yield "functions with all annotations", f"{found.annotated:.0%}"
    yield "public names with a docstring", f"{found.documented:.0%}"


def to_open(modules: Iterable[str]) -> set[str]:
    """Return the names below the package of modules to open, one for all of `BY_CATEGORY`.

    >>> sorted(to_open([f"{PACKAGE}.scoring.guards.{one}" for one in ("games", "logic")]))
    ['scoring.guards.*']
    """
    names = {module.removeprefix(f"{PACKAGE}.") for module in modules}
    for package in BY_CATEGORY:
        categories = {name for name in names if name.startswith(f"{package}.")}
        if categories:
            names = names - categories | {f"{package}.*"}
    return names


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "checkout", nargs="?", type=Path, default=Path(__file__).parents[1]
    )
    parser.add_argument("--list", action="store_true", help="name the modules to open")
    options = parser.parse_args(arguments)
    root = options.checkout.resolve()
    print("| measure | value |\n| --- | --- |")
    for measure, value in size_rows(root):
        print(f"| {measure} | {value} |")
    graph = CallGraph(root)
    reached = {name: to_open(graph.reach(entries)) for name, entries in ENTRIES.items()}
    for name, modules in reached.items():
        print(f"| modules to open: {name} | {len(modules)} |")
    if options.list:
        for name, modules in reached.items():
            print(f"\n{name}:")
            print(*(f"  {module}" for module in sorted(modules)), sep="\n")


if __name__ == "__main__":
    main()
