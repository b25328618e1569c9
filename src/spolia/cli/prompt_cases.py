"""Cases that a flow could be asked about: a question, texts, and the messages that it would send for them."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spolia.cli.destinations import format_destinations, list_destinations
from spolia.cli.flow_parts import build_parts, ensure_answer, is_file, load_flow, override_prompts
from spolia.cli.model_profile import load_profile
from spolia.cli.options import RerankOptions
from spolia.cli.user_modules import load_user_modules
from spolia.core.operator import Operator
from spolia.core.registry import Catalogue
from spolia.errors import DataError, QueryError
from spolia.evaluation.data.dataset import DataSet
from spolia.flow_files.built_in_flows import BUILT_IN
from spolia.flow_files.prompt_preview import ANY_MODEL, PreviewedCall, build_case, build_with_defaults, preview_calls
from spolia.indexing.sync.texts import temporary
from spolia.models.protocols import LanguageModel
from spolia.run import Run


@dataclass(frozen=True)
class PromptCase:
    """A question, and texts by name."""

    question: str = ""
    documents: dict[str, str] = field(default_factory=dict)

    @classmethod
    def from_options(cls, question: str, data: Path | None, line: int, documents: Sequence[Path]) -> "PromptCase":
        """Build the case that options describe; for a data set's question, the passages are those its gold names."""
        texts = {str(path): _read_text(path) for path in documents}
        if data is None:
            return cls(question, texts)

        data_set = DataSet(str(data))
        item = next((item for number, item in enumerate(data_set.items(), 1) if number == line), None)
        if item is None:
            raise DataError(f"{data} has no question {line}. Write a smaller --line.")
        gold = {
            reference if isinstance(reference, str) else reference.document
            for group in item.gold
            for reference in group
        }
        if not texts and data_set.has_corpus:
            texts = {passage.id: passage.text for passage in data_set.passages() if passage.id in gold}
        return cls(question or item.question, texts)


def preview_messages(
    target: str,
    case: PromptCase,
    store: str | None = None,
    modules: Sequence[str] | None = None,
    prompts: Path | None = None,
    replies: Sequence[str] = (),
    access: Sequence[str] | None = None,
    profile_file: Path | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> list[PreviewedCall]:
    """Return the messages that an operator, a built-in flow or a flow file would send for a case, after these replies.

    The profile names the store, unless there are texts, and its embedder. No language model is asked; the searches of
    a flow are run, and `tell` gets a line for each server that they ask.
    """
    if not is_file(target) and target not in BUILT_IN:
        flow = override_prompts(build_with_defaults(_find_operator(target, modules)), prompts)
        return preview_calls(flow, build_case(flow, case.question, case.documents), replies)
    profile = load_profile(profile_file)
    if not store and not case.documents:
        store = profile.store
    if not store and not case.documents:
        raise QueryError("A flow searches something. Write --store STORE, or --document FILE for each text.")
    with ExitStack() as stack:
        store_path = store or stack.enter_context(temporary(case.documents, embedder=None)).path
        stack.enter_context(Run(groups=tuple(access or ())))
        embedder_options = {
            name: setting
            for name, setting in profile.options().items()
            if store and name in ("embedder", "embed_model")
        }
        models = RerankOptions(profile_file=profile_file, **embedder_options)
        parts = build_parts(store_path, models, modules=modules, prompts=prompts).but(llm=ANY_MODEL)
        flow = ensure_answer(load_flow(target, parts)[0], parts)
        value = build_case(flow, case.question, case.documents)
        for line in format_destinations(
            list_destinations(flow, [resource for resource in flow.resources if isinstance(resource, LanguageModel)])
        ):
            tell(line)
        return preview_calls(flow, value, replies)


def _find_operator(name: str, modules: Sequence[str] | None) -> type[Operator[Any, Any]]:
    operator = Catalogue(load_user_modules(modules).operators).get(name)
    if isinstance(operator, type) and issubclass(operator, Operator):
        return operator
    raise QueryError(
        f"There is no prompt, operator or flow {name!r}. Write a name that `spolia prompts list` has, one of "
        f"{', '.join(BUILT_IN)}, or the path of a flow file."
    )


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise QueryError(f"{path} cannot be read as text: {error}. Write --document with a text file.") from error
