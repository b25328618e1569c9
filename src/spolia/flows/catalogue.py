"""Catalogue of the published methods: source, stop reasons and parts of each flow."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from inspect import signature
from typing import Any, TypeVar

from spolia.core.function import FLOWS
from spolia.core.operator import Operator
from spolia.core.public_names import MODULE_OF, load_name
from spolia.core.validation import capabilities_of
from spolia.errors import WiringError
from spolia.types import Answer, Query

F = TypeVar("F", bound=Callable[..., Operator[Query, Answer]])

PATTERNS = f"{FLOWS}.patterns"
"""Templates: functions of any operators, which are no flows yet."""
MODULES: Mapping[str, str] = {
    name.replace("_", "-"): module
    for name, module in MODULE_OF.items()
    if module.startswith(f"{FLOWS}.") and module != PATTERNS
}
"""The module of each published flow, which is imported when the flow is looked up."""


@dataclass(frozen=True)
class PublishedMethod:
    """A published method.

    Args:
        name: by which commands and files call it.
        source: the paper.
        stop_reasons: what `Answer.stop_reason` may be, beside `budget`; `cap` too where a reply was cut at its longest.
        top_k: passages of each search.
        build: makes the flow of what its parameters name (`PARTS`); its other parameters have defaults.
    """

    name: str
    source: str
    stop_reasons: tuple[str, ...]
    top_k: int
    build: Callable[..., Operator[Query, Answer]]

    @property
    def needs(self) -> tuple[str, ...]:
        """Return the names of the required parts."""
        return tuple(
            name for name, parameter in signature(self.build).parameters.items() if parameter.default is parameter.empty
        )

    @property
    def may_have(self) -> tuple[str, ...]:
        """Return the names of the optional parts."""
        return tuple(name for name in signature(self.build).parameters if name in PARTS and name not in self.needs)

    @property
    def capabilities(self) -> frozenset[str]:
        """Return the capabilities that the language model needs, as `logprobs`; its steps may need more."""
        return capabilities_of(signature(self.build, eval_str=True).parameters["llm"].annotation)

    def build_flow(self, parts: Mapping[str, Any]) -> Operator[Query, Answer]:
        """Build the flow of parts by name; it takes the parts that it knows.

        Raises:
            WiringError: and which part it lacks.
        """
        if missing := [name for name in self.needs if parts.get(name) is None]:
            raise WiringError(f"The flow {self.name!r} needs {PARTS[missing[0]]}")
        parameters = signature(self.build).parameters
        return self.build(**{name: part for name, part in parts.items() if name in parameters and part is not None})


PARTS: Mapping[str, str] = {
    "llm": "a language model: --llm URL --model NAME.",
    "search": "a retriever.",
    "web": "a second source: --web CONDITION, as --web source=web.",
    "scorer": "a reranker or classifier: --reranker URL --rerank-model NAME.",
    "group": "a node group.",
    "embedder": "an embedder.",
}
"""What flows are made of, by the name of the parameter, and how the command line gives it."""


def published(source: str, *stop_reasons: str, top_k: int = 5) -> Callable[[F], F]:
    """Register the function below as a published method, with its source and stop reasons.

    Args:
        source: authors, title, where and when.
        stop_reasons: beside `budget`, those of the reader included.
        top_k: passages of each search.
    """

    def register(build: F) -> F:
        name = build.__name__.replace("_", "-")
        build.published = PublishedMethod(name, source, stop_reasons, top_k, build)  # type: ignore[attr-defined]
        return build

    return register


def find_flow(name: str) -> PublishedMethod:
    """Return the published flow of a name.

    Raises:
        WiringError: no flow has this name.

    >>> find_flow("corag").needs
    ('llm', 'search')
    """
    if name not in MODULES:
        raise WiringError(f"There is no published flow {name!r}. Write one of {', '.join(MODULES)}.")
    build = load_name(MODULES[name], name.replace("-", "_"))
    return build.published  # type: ignore[no-any-return]


def list_flows() -> Iterator[PublishedMethod]:
    """Yield all published flows; their modules are imported."""
    return map(find_flow, MODULES)


__all__ = ["MODULES", "PARTS", "PublishedMethod", "list_flows", "find_flow", "published"]
