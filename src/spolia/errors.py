"""Every exception of Spolia: cases of `SpoliaError`, but for `Cancelled`, and the one warning.

A message says what happened, what Spolia found, and what to write.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

from spolia.deferred import EXTRAS, load_module, metadata


class SpoliaError(Exception):
    """Base of all errors; `transient` says whether the same call may succeed later."""

    transient: ClassVar[bool] = False


def text_of(error: BaseException) -> str:
    """Return the text of an error; if the text itself raises, say so.

    >>> class Broken(Exception):
    ...     def __str__(self) -> str:
    ...         return self.args[0]["reason"]
    >>> text_of(Broken({})), text_of(ValueError("no number"))
    ('Broken, whose text raises KeyError', 'no number')
    """
    try:
        return str(error)
    except Exception as raised:
        return f"{type(error).__name__}, whose text raises {type(raised).__name__}"


class WiringError(SpoliaError, TypeError):
    """An operator was composed with one that does not take what it gives."""


class UndecidedError(SpoliaError):
    """A flow with open choices cannot run before they are decided."""


class CodecError(SpoliaError, ValueError):
    """A value has no plain form, or plain data describe no value of the type that is wanted.

    Args:
        reason: what happened, the value found instead, what to write.
        place: where in the plain data, from the outside in.

    >>> print(CodecError("Write a number.", ("BM25", "top_k")))
    BM25.top_k: Write a number.
    """

    def __init__(self, reason: str, place: tuple[str | int, ...] = ()) -> None:
        super().__init__(reason, place)
        self.reason, self.place = reason, place

    def under(self, step: str | int) -> None:
        """See the place from one level further out."""
        self.place = (step, *self.place)

    def __str__(self) -> str:
        return f"{'.'.join(map(str, self.place))}: {self.reason}" if self.place else self.reason


class VariableRefused(CodecError):
    """A flow file or a store names an environment variable that the caller has not allowed."""


class FlowFileError(SpoliaError, ValueError):
    """A flow file does not describe a flow."""


class QueryError(SpoliaError, ValueError):
    """A question that cannot be searched."""


class UnknownFlow(QueryError):
    """A request names a flow that the server does not have."""


class UnknownRun(QueryError):
    """A request names a run that is not the asker's, or is not recorded."""


class NotFound(QueryError):
    """A request names something that is not there for the asker."""


class UnsupportedParameter(QueryError):
    """A request has a parameter that has no meaning here; `param` names it."""

    def __init__(self, message: str, param: str) -> None:
        super().__init__(message)
        self.param = param


class KeyReused(QueryError):
    """An idempotency key was used for another request before."""


class NotAllowed(SpoliaError):
    """The asker may not do this."""


class ServerBusy(SpoliaError):
    """The server works on as many requests as it may."""

    transient = True


class ServerStopping(SpoliaError):
    """The server is being stopped, so it ended a request in progress."""

    transient = True


class FilterError(SpoliaError, ValueError):
    """A filter names a field that is not declared, or a value is none of its field."""


def _origin() -> dict[str, Any]:
    """Return where Spolia was installed from, as installers note it (PEP 610); empty for the package index."""
    try:
        return dict(json.loads(metadata.distribution("spolia").read_text("direct_url.json") or "{}"))
    except metadata.PackageNotFoundError:
        return {}


def pip_install(extra: str = "", option: str = "") -> str:
    """Return the command that installs Spolia with an extra, from the folder or file that it was installed from."""
    origin = _origin()
    url = urlsplit(origin.get("url", ""))
    place = unquote(url.path) if url.scheme == "file" else "spolia"
    editable = "-e" if origin.get("dir_info", {}).get("editable") else ""
    requirement = shlex.quote(f"{place}[{extra}]" if extra else place)
    return " ".join(filter(None, ("pip install", option, editable, requirement)))


class MissingExtra(SpoliaError, ImportError):
    """An optional dependency is not installed, or cannot be loaded.

    Args:
        cause: why it cannot be loaded; empty if it is not installed.

    >>> print(MissingExtra("pdf", "pypdfium2", "Reading a PDF"))
    Reading a PDF needs pypdfium2, which is not installed. Write: pip install 'spolia[pdf]'
    """

    def __init__(self, extra: str, module: str, purpose: str, cause: str = "") -> None:
        self.extra, self.module, self.purpose, self.cause = extra, module, purpose, cause
        problem, remedy = "is not installed", pip_install(extra)
        if cause:
            problem, remedy = f"is installed but cannot be loaded: {cause}", pip_install(extra, "--force-reinstall")
        # A library loaded late may find no room left for its thread-local data; glibc reserves more if told
        # before the start.
        if "static TLS" in cause:
            remedy = "GLIBC_TUNABLES=glibc.rtld.optional_static_tls=65536 before the command"
        super().__init__(f"{purpose} needs {module}, which {problem.rstrip('.')}. Write: {remedy}")


def strip_name(uri: str, reason: str) -> str:
    """Return why a file failed, without its name, which the caller prints first.

    >>> strip_name("a.pdf", "a.pdf is locked."), strip_name("a.pdf", "It is empty.")
    ('is locked.', 'It is empty.')
    >>> strip_name("http://[::1]/", "http://[::1]/: ::1 is at ::1 (loopback).")
    '::1 is at ::1 (loopback).'
    """
    for mark in (": ", " "):
        if reason.startswith(uri + mark):
            return reason.removeprefix(uri + mark)
    return reason


@contextmanager
def require_extra(extra: str, module: str, purpose: str) -> Iterator[None]:
    """Import what an extra brings. Raises MissingExtra where it is not installed, or cannot be loaded."""
    try:
        yield
    except MissingExtra:
        raise
    except (ImportError, OSError) as error:  # OSError: ctypes cannot load a library
        cause = "" if isinstance(error, ModuleNotFoundError) else text_of(error)
        raise MissingExtra(extra, module, purpose, cause) from error


def require(module: ModuleType, purpose: str) -> None:
    """Import a deferred module of an extra now.

    Raises:
        MissingExtra: it is not installed, or cannot be loaded.
    """
    with require_extra(*EXTRAS[module.__name__], purpose):
        load_module(module.__name__)


class BudgetSpent(SpoliaError):
    """The budget does not cover a call, so it was not sent.

    Attributes:
        in_loop: a loop made the call, which ends there and leaves what it has to the steps after it.
    """

    in_loop = False


class StepFailed(SpoliaError):
    """Too many arms or rows of a step failed for its result to be used."""


class NeverWorked(StepFailed):
    """A step of a flow failed on every call, so that the flow's numbers are those of a flow without it.

    Args:
        never_worked: these steps.
        degraded: what was out of order, by step and reason, and how often.
    """

    def __init__(self, message: str, never_worked: tuple[str, ...], degraded: dict[str, dict[str, int]]) -> None:
        super().__init__(message)
        self.never_worked, self.degraded = never_worked, degraded


class FolderError(SpoliaError):
    """A folder cannot be indexed: it is not there, may not be read, or holds no document."""


class SourceError(SpoliaError):
    """A source cannot be read as it is described."""


class SourceUnavailable(SourceError):
    """A source cannot be reached, or broke off: what was read before stays, and the next run goes on."""

    transient = True


class DocumentError(SpoliaError):
    """A document could not be read; the others are not affected."""


class EncryptedDocument(DocumentError):
    """A document is locked with a password."""


class UnsafeDocument(DocumentError):
    """A document exceeds a limit that protects memory and disk, or is made to do harm."""


class ReaderDied(DocumentError):
    """A process died on a document, or took too much time or memory; another time it might not."""

    transient = True


class WorkersFailed(SpoliaError):
    """No worker process could be started, or it did not end what it had begun."""


class StoreError(SpoliaError):
    """A store could not be opened, read or written."""


class NotAStore(StoreError):
    """The path holds something else than a store, or nothing."""


class StoreBusy(StoreError):
    """Another process is writing to the store.

    `holder`: which, in words; empty where that is not known.
    """

    transient = True
    holder: str = ""


class StoreUnavailable(StoreError):
    """A database beside the store refused the connection, is overloaded, failed or did not answer in time."""

    transient = True


class StoreTooNew(StoreError):
    """The store was written by a newer version of Spolia."""


class StoreCorrupt(StoreError):
    """Rows and index disagree, or a file of the store is damaged.

    `cause`: what is damaged, without what to do about it; empty where that is unknown.
    """

    cause: str = ""


class ManifestMismatch(StoreError):
    """A node group was built with another reader, splitter or embedder."""


class GroupError(StoreError):
    """A node group that is not defined, or whose definition makes no sense."""


class StatementError(StoreError):
    """A statement for a database of the user does not only read, or the database refuses it, or it takes too long."""


class DataError(SpoliaError, ValueError):
    """A data set does not follow the schema."""


class MeasureError(SpoliaError, ValueError):
    """No measure is written like this."""


class EgressError(SpoliaError):
    """Something could not be fetched over the network.

    Args:
        status: what the server answered; 0 where it gave no answer.
        after_s: seconds that it asks to wait before another attempt; 0 when it does not say.
        was_sent: whether the server may have had the request.
    """

    def __init__(self, message: str, status: int = 0, after_s: float = 0.0, was_sent: bool = True) -> None:
        super().__init__(message)
        self.status, self.after_s, self.was_sent = status, after_s, was_sent


class EgressFailed(EgressError):
    """The server refused the connection, is overloaded, failed or did not answer in time."""

    transient = True


class EgressLate(EgressFailed):
    """No complete reply came before the deadline; an immediate retry would take as long."""


class EgressRefused(EgressError):
    """The address is not allowed, the server says no, or what it gives is not taken: asking again would not help."""


class ModelError(SpoliaError):
    """A model could not be asked, or its reply could not be used."""


class PromptError(ModelError):
    """A prompt file does not exist, or cannot be filled in."""


class ModelUnavailable(ModelError):
    """The server refused the connection, is overloaded, failed or did not answer in time.

    `after_s`: seconds that it asks to wait before another attempt; 0 when it does not say.
    """

    transient = True
    after_s: float = 0.0


class ModelRejected(ModelError):
    """The server answered, and asking again would not help; `setting` is what it refuses of the request, if known."""

    setting: str = ""


class OtherDimension(ModelRejected):
    """The server gives vectors of another dimension than its address says."""


class EmptyReply(ModelRejected):
    """The model's reply has no text, or none that can be read: one failed row, never the end of a run over many."""


class ThoughtCut(EmptyReply):
    """All tokens of a reply were spent on a thought, before its first word."""

    advice = "Write --think N, in a profile or in Python thought_tokens=N, for N tokens to think."


class WeightsError(ModelError):
    """There are no weights, or they are not the pinned ones."""


class DegradedWarning(UserWarning):
    """A step went on without what failed, and no run records it."""


class Cancelled(BaseException):
    """The caller stopped the run. Not an `Exception`: nothing may take it for a failed row."""
