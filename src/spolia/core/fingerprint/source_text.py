"""Source text of code, and the names in it."""

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
parse_lock = RLock()  # Python 3.11 raises SystemError where two threads parse at the same time
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_WITH_DOCSTRING = (*_FUNCTIONS, ast.ClassDef, ast.Module)


def tree_of(definition: FunctionType | type | ModuleType) -> ast.AST | None:
    """Parse a function, class or module; return None if its source is not available."""
    # The code, not the function that a decorator has wrapped.
    code = definition.__code__ if isinstance(definition, FunctionType) else definition
    try:
        with parse_lock:
            tree = ast.parse(textwrap.dedent(inspect.getsource(code)))
    except (OSError, TypeError, SyntaxError, ValueError):
        return None
    if isinstance(definition, ModuleType) or not tree.body:
        return tree
    node = tree.body[0]
    is_other = isinstance(node, (*_FUNCTIONS, ast.ClassDef)) and node.name != definition.__name__
    return None if is_other else node  # the file was changed since it was read


def normalized_source(tree: ast.AST | None, *, decorated: bool = True) -> str:
    """Return code in one form, without comments and docstrings, perhaps without decorators; empty for no tree."""
    if tree is None:
        return ""
    if isinstance(tree, _FUNCTIONS) and not decorated:
        tree.decorator_list.clear()
    for node in ast.walk(tree):
        if isinstance(node, _WITH_DOCSTRING) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree)


def bytecode_form(code: CodeType) -> tuple[object, ...]:
    """Return a stand-in for source code that is not available; it differs between versions of Python."""
    plain = [const for const in code.co_consts if not isinstance(const, CodeType)]
    constants = [sorted(map(repr, const)) if isinstance(const, frozenset) else repr(const) for const in plain]
    return (code.co_code, constants, code.co_names, [bytecode_form(inner) for inner in _inside(code)])


@dataclass
class CodeNames:
    """Names in code: globals with the attributes taken of them, its own imports, and globals that it binds."""

    chains: set[NameChain] = field(default_factory=set)
    imports: set[Import] = field(default_factory=set)
    state: set[str] = field(default_factory=set)

    def read(self, code: CodeType) -> "CodeNames":
        """Add the names in a piece of code, and in the functions in it; return itself."""
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
                level, attributes = consts[-2:]
                self.imports.add((level, value, attributes or ()))
        for inner in _inside(code):
            self.read(inner)
        return self


def mutated_names(tree: ast.AST | None) -> set[str]:
    """Return the names of containers that code puts something into, or takes out of, by `[…]`."""
    subscripts = (node for node in ast.walk(tree) if isinstance(node, ast.Subscript)) if tree is not None else ()
    return {
        node.value.id for node in subscripts if isinstance(node.value, ast.Name) and not isinstance(node.ctx, ast.Load)
    }


def class_level_names(tree: ast.AST | None) -> set[NameChain]:
    """Return the names in a class outside of its functions: bases, defaults of fields, decorators."""
    waiting, names = [tree] if tree is not None else [], set[NameChain]()
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Name):
            names.add((node.id,))
        waiting += [inner for inner in ast.iter_child_nodes(node) if not isinstance(inner, _FUNCTIONS)]
    return names


def functions_of(cls: type) -> Iterator[FunctionType]:
    """Yield the functions of a class itself, in order."""
    for value in vars(cls).values():
        inner = (value.fget, value.fset) if isinstance(value, property) else (getattr(value, "__func__", value),)
        unwrapped = [inspect.unwrap(wrapped) if callable(wrapped) else wrapped for wrapped in inner]
        yield from (function for function in unwrapped if isinstance(function, FunctionType))


def _inside(code: CodeType) -> list[CodeType]:
    return [const for const in code.co_consts if isinstance(const, CodeType)]
