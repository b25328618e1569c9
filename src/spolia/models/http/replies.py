"""What servers send: events (WHATWG server-sent events), replies, errors, and characters torn between them."""

import codecs
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from math import ceil
from typing import Any

from spolia.errors import EmptyReply, ModelError, ModelRejected, ModelUnavailable, ThoughtCut
from spolia.models.protocols import LOGPROBS, NEXT_TOKENS
from spolia.types import Generation, Token, Usage

DONE = "[DONE]"


def events(chunks: Iterable[bytes]) -> Iterator[str]:
    r"""The data of each event; bytes that are no UTF-8 by themselves come as lone surrogates, for `Mended`.

    >>> list(events([b": hello\n\ndata: {", b"}\r\n\r\ndata: [DO", b"NE]\n\n"]))
    ['{}', '[DONE]']
    """
    data: list[bytes] = []
    for line in _lines(chunks):
        if line.startswith(b"data:"):
            data.append(line[5:].removeprefix(b" "))
        elif not line and data:
            yield b"\n".join(data).decode("utf-8", "surrogateescape")
            data = []
    if data:  # the last event of a stream that ends without a blank line
        yield b"\n".join(data).decode("utf-8", "surrogateescape")


def _lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    rest: list[bytes] = []
    for chunk in chunks:
        *whole, last = chunk.split(b"\n")
        for line in whole:
            yield b"".join((*rest, line)).removesuffix(b"\r")
            rest = []
        rest.append(last)
    yield b"".join(rest).removesuffix(b"\r")


class Mended:
    r"""Text from pieces in which a character may be torn.

    >>> mended = Mended()
    >>> [mended.add("caf\udcc3"), mended.add("\udca9!"), mended.add("\ud83d"), mended.add("\ude00"), mended.end()]
    ['caf', 'é!', '', '😀', '']
    """

    def __init__(self) -> None:
        self._high = ""
        self._bytes = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, piece: str) -> str:
        """What is complete by now; the rest is held back for the next piece."""
        try:
            piece.encode()
        except UnicodeEncodeError:
            return self._joined(piece)
        return self._joined(piece) if self._high or self._bytes.getstate()[0] else piece

    def end(self) -> str:
        """What was never completed, as replacement characters."""
        high, self._high = self._high, ""
        return self._bytes.decode(b"", final=True) + ("\ufffd" if high else "")

    def _joined(self, piece: str) -> str:
        return "".join(map(self._one, piece))

    def _one(self, character: str) -> str:
        if self._high:
            high, self._high = self._high, ""
            if "\udc00" <= character <= "\udfff":
                return (high + character).encode("utf-16", "surrogatepass").decode("utf-16")
            return "\ufffd" + self._one(character)
        if "\ud800" <= character <= "\udbff":
            self._high = character
            return self._bytes.decode(b"", final=True)
        if "\udc80" <= character <= "\udcff":  # a byte that was no UTF-8 by itself
            return self._bytes.decode(character.encode("utf-8", "surrogateescape"))
        return self._bytes.decode(character.encode("utf-8", "replace"))


LATER = frozenset((408, 409, 425, 429, 500, 502, 503, 504, 529))
"""Statuses after which the same request may succeed."""


class Reply:
    """A reply while it comes in, whole or in events."""

    def __init__(self) -> None:
        self.usage: Usage | None = None
        self.finish_reason = ""
        self._text: list[str] = []
        self._thoughts: list[str] = []
        self._refusal: list[str] = []
        self._called = ""
        self._tokens: list[Token] = []
        self._mended, self._mended_thought = Mended(), Mended()

    @property
    def text(self) -> str:
        return "".join(self._text)

    def take(self, data: str, part: str) -> str:
        """Return the text that one JSON object adds under `part`: `message` of a whole reply, `delta` of an event."""
        found = parsed(data)
        if found.get("error"):
            raise failed(found["error"])
        if isinstance(found.get("usage"), dict):
            self.usage = _usage(found["usage"])
        choices = found.get("choices")
        if not isinstance(choices, list) or not (choices or part == "delta"):
            raise ModelRejected(f"it replied without a choice: {_short(data)}. Check that base_url ends in /v1.")
        return self._choice(mapping(choices[0]), part) if choices else ""

    def end(self) -> str:
        """The text that was held back."""
        rest = self._mended.end()
        self._thoughts.append(self._mended_thought.end())
        self._text.append(rest)
        return rest

    def _choice(self, choice: Mapping[str, Any], part: str) -> str:
        message = mapping(choice.get(part))
        self._refusal.append(_text(message.get("refusal")))
        self._thoughts.append(self._mended_thought.add(_thought(message)))
        self._called = self._called or _called(message)
        self._tokens.extend(_tokens(mapping(choice.get("logprobs")).get("content")))
        self.finish_reason = _text(choice.get("finish_reason")) or self.finish_reason
        piece = self._mended.add(_content(message.get("content")))
        self._text.append(piece)
        return piece

    def generation(self, logprobs: bool) -> Generation:
        """The complete reply.

        Raises:
            EmptyReply: the model wrote nothing; ThoughtCut where its tokens were spent before.
            ModelRejected: the model refused, was filtered, called a tool, or states no log-probabilities.
        """
        text, refusal = self.text, "".join(self._refusal)
        if refusal:
            raise ModelRejected(
                f"the model refused to answer: {_short(refusal)}. Ask another question, or another model."
            )
        if self.finish_reason == "content_filter":
            raise ModelRejected(
                "the server's content filter stopped the reply. Ask another question, or another model."
            )
        if self._called:
            raise ModelRejected(
                f"the model called a tool, {_short(self._called)}, where none was offered, instead of replying. Ask "
                "another model, or turn its own tools off on the server."
            )
        cut = self.finish_reason in ("length", "max_tokens")
        if not text:
            reason = f"the reply has no text (finish_reason {self.finish_reason or 'not stated'})"
            if cut:
                raise ThoughtCut(f"{reason}: all tokens went into a thought. {ThoughtCut.advice}")
            raise EmptyReply(f"{reason}: ask again.")
        if logprobs and not self._tokens:
            raise unstated("log-probabilities", LOGPROBS)
        tokens = tuple(self._tokens) if logprobs else ()
        return Generation(text, "length" if cut else "stop", tokens, "".join(self._thoughts))


def estimated_tokens(text: str) -> int:
    """Tokens of a text where no server counts them: one for three bytes, more than most tokenizers make."""
    return ceil(len(text.encode("utf-8", "replace")) / 3)


def failed(error: object, status: int = 0) -> ModelError:
    """The error that a server's own error object stands for."""
    said = mapping(error)
    code, message = str(said.get("code") or said.get("type") or ""), said.get("message") or error
    text = f"it failed{f' with status {status}' if status else ''}: {_short(str(message))}"
    if code == "insufficient_quota":
        return ModelRejected(f"{text}. The account has no credit left: add some, or name another key in api_key_env.")
    return (ModelUnavailable if status in LATER or not status else ModelRejected)(_closed(text))


def refused(status: int, headers: Mapping[str, str], text: str, keyed: str) -> ModelError:
    """The error that a status other than 200 stands for.

    Args:
        text: the body, without the key.
        keyed: what is known of the key, in words.
    """
    try:
        found = mapping(json.loads(text))
    except (ValueError, RecursionError):
        found = {}
    inner = found.get("error", found.get("message", found.get("detail")))
    said = _short(str(mapping(inner).get("message") or inner or text))
    if 300 <= status < 400:
        return ModelRejected(
            f"it redirects to {_short(headers.get('location', 'nowhere'))}, which is not followed, so that documents "
            "and key go to no other server. Write that address as base_url if you trust it."
        )
    if status in (401, 403):
        return ModelRejected(f"it does not accept the key (status {status}: {said}); {keyed}")
    if status == 404:
        return ModelRejected(
            f"the server does not know this address or model (status 404: {said}). Check model, and base_url's /v1."
        )
    return failed(found.get("error") or said, status)


RENAMED = {"max_tokens": "max_completion_tokens"}
"""What some servers call a setting now."""
_SPARE = ("max_tokens", "temperature", "seed", "stream_options")
_SPARE_IF_NAMED = (*_SPARE, "stream")
"""What is taken for refused if the error has it as its `param`: in a message, "stream" is a word like others."""
_REFUSES = re.compile(
    r"unsupported|not (?:support|permitted|allowed)|unrecogni[sz]ed|unknown|extra|deprecated", re.IGNORECASE
)


def refused_setting(status: int, text: str) -> str:
    """The setting that an error refuses and a request can do without, or has another name for; empty for none.

    >>> refused_setting(400, '{"error": {"message": "temperature does not support 0.0", "param": "temperature"}}')
    'temperature'
    >>> refused_setting(400, '{"error": {"message": "max_tokens is too large: 9999", "param": "max_tokens"}}')
    ''
    """
    if status not in (400, 422) or not _REFUSES.search(text):
        return ""
    param = re.search(r'"param":\s*"(\w+)"', text)
    spare = _SPARE_IF_NAMED if param else _SPARE
    named = re.search(rf"\b(?:{'|'.join(spare)})\b", param[1] if param else text)
    return named[0] if named else ""


_TOO_MANY = re.compile(
    r"(?<!physical )(?<!current )batch size|(?:at most|maximum) \d+ requests|more batches|number of (?:texts|inputs)|"
    r"too many (?:texts|inputs)",
    re.IGNORECASE,
)


def fewer(said: str, count: int) -> int:
    """How many texts a server takes in one request, as its error for `count` texts says, else half; 0 for other errors.

    >>> fewer("batch size 70 > maximum allowed batch size 32", 70), fewer("Too many inputs", 70), fewer("no key", 70)
    (32, 35, 0)
    """
    found = _TOO_MANY.search(said)
    if found is None or count < 2:
        return 0
    numbers = [
        number for digits in re.findall(r"\d{1,9}", said[found.start() :]) if 0 < (number := int(digits)) < count
    ]
    return max(numbers, default=count // 2)


def parsed(data: str, array: str = "") -> Mapping[str, Any]:
    """The JSON object that a server sent; `ModelRejected` where it is none.

    Args:
        array: a bare array is the object that has it under this name; empty to refuse one.
    """
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise ModelRejected(
            f"it sent no valid JSON but {_short(data)!r}. Check that base_url is an OpenAI API."
        ) from None
    if array and isinstance(found, list):
        return {array: found}
    if not isinstance(found, dict):
        raise ModelRejected(f"it sent {_short(data)!r}, not a JSON object. Check that base_url is an OpenAI API.")
    return found


def _usage(found: Mapping[str, Any]) -> Usage:
    counts = (found.get("prompt_tokens"), found.get("completion_tokens"))
    sent, written = (count if isinstance(count, int) and count > 0 else 0 for count in counts)
    return Usage(calls=1, input_tokens=sent, output_tokens=written)


def unstated(what: str, capability: str) -> ModelRejected:
    """The error for a server that ignores a capability declared for it.

    >>> print(unstated("log-probabilities", "logprobs"))  # doctest: +ELLIPSIS
    it states no log-probabilities. Name another server, ... (--llm), or a flow that needs none; ... capabilities.
    """
    return ModelRejected(
        f"it states no {what}. Name another server, a GGUF file or a model folder (--llm), or a flow that needs none; "
        f"in Python you can also take {capability!r} out of capabilities."
    )


def _tokens(found: object) -> list[Token]:
    entries = [mapping(entry) for entry in found] if isinstance(found, list) else []
    kept = [(entry.get("token"), entry.get("logprob")) for entry in entries]
    return [Token(text, float(p)) for text, p in kept if isinstance(text, str) and isinstance(p, (int, float))]


def next_of_chat(reply: Mapping[str, Any]) -> tuple[Token, ...]:
    """The most probable first tokens that a chat reply states."""
    choices = reply.get("choices")
    choice = mapping(choices[0]) if isinstance(choices, list) and choices else {}
    content = mapping(choice.get("logprobs")).get("content")
    first = mapping(content[0]) if isinstance(content, list) and content else {}
    return ranked_tokens(_tokens(first.get("top_logprobs")))


def ranked_tokens(tokens: Iterable[Token]) -> tuple[Token, ...]:
    """Tokens by probability; those with none, or an impossible one, are left out."""
    found = [token for token in tokens if token.logprob <= 0.0]  # NaN is not
    if not found:
        raise unstated("probable next tokens", NEXT_TOKENS)
    return tuple(sorted(found, key=lambda token: (-token.logprob, token.text)))


def mapping(found: object) -> Mapping[str, Any]:
    """The object itself, or an empty one where it is none."""
    return found if isinstance(found, dict) else {}


def _called(message: Mapping[str, Any]) -> str:
    """The tool that a message calls; empty where it calls none."""
    calls = message.get("tool_calls")
    first = mapping(calls[0]) if isinstance(calls, list) and calls else {}
    call = mapping(first.get("function")) or mapping(message.get("function_call")) or first
    return str(call.get("name") or "without a name") if call else ""


def _text(found: object) -> str:
    return found if isinstance(found, str) else ""


def _content(found: object) -> str:
    """The text of a message; some servers send it in parts, and what the model thinks in others."""
    if not isinstance(found, list):
        return _text(found)
    parts = (mapping(part) or {"text": part} for part in found)
    return "".join(_text(part.get("text")) for part in parts if part.get("type", "text") in ("text", "output_text"))


def _thought(message: Mapping[str, Any]) -> str:
    """What a message says that the model thinks: in a field of its own, or in parts of the content."""
    for name in ("reasoning_content", "reasoning"):
        if said := _text(message.get(name)):
            return said
    content = message.get("content")
    parts = map(mapping, content) if isinstance(content, list) else ()
    return "".join(_content(part.get("thinking")) for part in parts if part.get("type") == "thinking")


def _closed(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _short(text: str) -> str:
    plain = " ".join(text.encode("utf-8", "replace").decode().split())
    return (plain if len(plain) <= 200 else f"{plain[:197]}...") or "nothing"
