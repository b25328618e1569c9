"""Code as it is written, and what it names."""

import ast
import dis
import inspect
from collections.abc import Iterator
from dataclasses import dataclass, field
from threading import RLock
from types import CodeType, FunctionType, ModuleType
from typing import Any

from spolia.deferred import textwrap

NameChain = tuple[str, ...]  # a name, and the attributes that are taken of what it stands for
Import = tuple[int, str, NameChain]
"""Of how many levels up, which module, and which names of it; none for the module itself."""
parsing = RLock()  # Python 3.11 raises SystemError where two threads parse at the same time
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_WITH_DOCSTRING = (*_FUNCTIONS, ast.ClassDef, ast.Module)


def tree_of(what: FunctionType | type | ModuleType) -> ast.AST | None:
    """A function, class or module as it is written; None where that is not to be had."""
    code = what.__code__ if isinstance(what, FunctionType) else what  # not the function that a decorator has wrapped
    try:
        with parsing:
            tree = ast.parse(textwrap.dedent(inspect.getsource(code)))
    except (OSError, TypeError, SyntaxError, ValueError):
        return None
    if isinstance(what, ModuleType) or not tree.body:
        return tree
    found = tree.body[0]
    is_other = isinstance(found, (*_FUNCTIONS, ast.ClassDef)) and found.name != what.__name__
    return None if is_other else found  # the file was changed since it was read


def written(tree: ast.AST | None, *, decorated: bool = True) -> str:
    """Code in one form, without comments and docstrings, perhaps without decorators; empty for none."""
    if tree is None:
        return ""
    if isinstance(tree, _FUNCTIONS) and not decorated:
        tree.decorator_list.clear()
    for node in ast.walk(tree):
        if isinstance(node, _WITH_DOCSTRING) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree)


def compiled(code: CodeType) -> tuple[object, ...]:
    """The stand-in for source code that is not available; it differs between versions of Python."""
    plain = [const for const in code.co_consts if not isinstance(const, CodeType)]
    told = [sorted(map(repr, const)) if isinstance(const, frozenset) else repr(const) for const in plain]
    return (code.co_code, told, code.co_names, [compiled(inner) for inner in _inside(code)])


@dataclass
class Named:
    """What code names: globals with the attributes taken of them, its own imports, and globals that it binds."""

    chains: set[NameChain] = field(default_factory=set)
    imports: set[Import] = field(default_factory=set)
    state: set[str] = field(default_factory=set)

    def read(self, code: CodeType) -> "Named":
        """Put down what a piece of code names, and the functions in it; returns itself."""
        chain: NameChain = ()
        consts: list[Any] = []
        for step in dis.get_instructions(code):  # the last one returns, so that every chain comes to its end
            name, value = step.opname, step.argval
            if chain and name in ("LOAD_ATTR", "LOAD_METHOD"):
                chain = (*chain, value)
                continue
            if chain:
                self.chains.add(chain)
            chain = (value,) if name in ("LOAD_GLOBAL", "LOAD_NAME") else ()
            if name in ("STORE_GLOBAL", "DELETE_GLOBAL"):
                self.state.add(value)
            elif name in ("LOAD_CONST", "LOAD_SMALL_INT"):
                consts.append(value)
            elif name == "IMPORT_NAME":
                level, wanted = consts[-2:]
                self.imports.add((level, value, wanted or ()))
        for inner in _inside(code):
            self.read(inner)
        return self


def changed(tree: ast.AST | None) -> set[str]:
    """Names of containers that code puts something into, or takes out of, by `[…]`."""
    found = (node for node in ast.walk(tree) if isinstance(node, ast.Subscript)) if tree is not None else ()
    return {node.value.id for node in found if isinstance(node.value, ast.Name) and not isinstance(node.ctx, ast.Load)}


def beside_functions(tree: ast.AST | None) -> set[NameChain]:
    """What a class names outside of its functions: bases, defaults of fields, decorators."""
    waiting, found = [tree] if tree is not None else [], set[NameChain]()
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Name):
            found.add((node.id,))
        waiting += [inner for inner in ast.iter_child_nodes(node) if not isinstance(inner, _FUNCTIONS)]
    return found


def functions_of(cls: type) -> Iterator[FunctionType]:
    """The functions of a class itself, in order."""
    for value in vars(cls).values():
        inner = (value.fget, value.fset) if isinstance(value, property) else (getattr(value, "__func__", value),)
        unwrapped = [inspect.unwrap(one) if callable(one) else one for one in inner]
        yield from (function for function in unwrapped if isinstance(function, FunctionType))


def _inside(code: CodeType) -> list[CodeType]:
    return [const for const in code.co_consts if isinstance(const, CodeType)]
