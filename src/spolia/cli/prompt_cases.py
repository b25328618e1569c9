"""A case that a flow could be asked about: a question, texts; and what it would send for it."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spolia.cli.destinations import sent_by, sent_lines
from spolia.cli.flow_parts import answering, flow_of, is_file, parts_of, with_prompts
from spolia.cli.model_profile import profile_of
from spolia.cli.options import RerankOptions
from spolia.cli.user_modules import own
from spolia.core.operator import Operator
from spolia.core.registry import Catalogue
from spolia.errors import DataError, QueryError
from spolia.evaluation.data.dataset import DataSet
from spolia.flow_files.built_in_flows import BUILT_IN
from spolia.flow_files.prompt_preview import ANY_MODEL, Sent, alone, case_for, sent_for
from spolia.indexing.sync.texts import temporary
from spolia.models.protocols import LanguageModel
from spolia.run import Run


@dataclass(frozen=True)
class PromptCase:
    """A question, and texts by name."""

    question: str = ""
    documents: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, question: str, data: Path | None, line: int, documents: Sequence[Path]) -> "PromptCase":
        """The case that options describe; the passages of a data set's question are those that its gold names."""
        texts = {str(path): _text(path) for path in documents}
        if data is None:
            return cls(question, texts)

        found = DataSet(str(data))
        item = next((item for at, item in enumerate(found.items(), 1) if at == line), None)
        if item is None:
            raise DataError(f"{data} has no question {line}. Write a smaller --line.")
        gold = {one if isinstance(one, str) else one.document for group in item.gold for one in group}
        if not texts and found.has_corpus:
            texts = {passage.id: passage.text for passage in found.passages() if passage.id in gold}
        return cls(question or item.question, texts)


def messages(
    what: str,
    case: PromptCase,
    store: str | None = None,
    known: Sequence[str] | None = None,
    prompts: Path | None = None,
    replies: Sequence[str] = (),
    access: Sequence[str] | None = None,
    profile_file: Path | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> list[Sent]:
    """What an operator, a built-in flow or a flow file would send for a case, after these replies.

    The profile names the store, unless there are texts, and its embedder. No language model is asked; the searches of
    a flow are run, and `tell` gets a line for each server that they ask.
    """
    if not is_file(what) and what not in BUILT_IN:
        flow = with_prompts(alone(_operator(what, known)), prompts)
        return sent_for(flow, case_for(flow, case.question, case.documents), replies)
    profile = profile_of(profile_file)
    if not store and not case.documents:
        store = profile.store
    if not store and not case.documents:
        raise QueryError("A flow searches something. Write --store STORE, or --document FILE for each text.")
    with ExitStack() as stack:
        at = store or stack.enter_context(temporary(case.documents, embedder=None)).path
        stack.enter_context(Run(groups=tuple(access or ())))
        named = {
            name: said for name, said in profile.options().items() if store and name in ("embedder", "embed_model")
        }
        models = RerankOptions(profile_file=profile_file, **named)
        parts = parts_of(at, models, known=known, prompts=prompts).but(llm=ANY_MODEL)
        flow = answering(flow_of(what, parts)[0], parts)
        value = case_for(flow, case.question, case.documents)
        for line in sent_lines(sent_by(flow, [one for one in flow.resources if isinstance(one, LanguageModel)])):
            tell(line)
        return sent_for(flow, value, replies)


def _operator(name: str, known: Sequence[str] | None) -> type[Operator[Any, Any]]:
    found = Catalogue(own(known).operators).get(name)
    if isinstance(found, type) and issubclass(found, Operator):
        return found
    raise QueryError(
        f"There is no prompt, operator or flow {name!r}. Write a name that `spolia prompts list` has, one of "
        f"{', '.join(BUILT_IN)}, or the path of a flow file."
    )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise QueryError(f"{path} cannot be read as text: {error}. Write --document with a text file.") from error
