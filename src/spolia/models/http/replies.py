"""Replies of servers: events (WHATWG server-sent events), JSON objects, errors, and characters torn between pieces."""

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
    r"""Yield the data of each event; bytes that are no UTF-8 alone come as lone surrogates, for `TornTextDecoder`.

    >>> list(events([b": hello\n\ndata: {", b"}\r\n\r\ndata: [DO", b"NE]\n\n"]))
    ['{}', '[DONE]']
    """
    data: list[bytes] = []
    for line in _lines(chunks):
        if line.startswith(b"data:"):
            # by the standard one blank belongs to the colon, further ones to the data
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


class TornTextDecoder:
    r"""Decoder of text that comes in pieces, in which a character may be torn.

    >>> mended = TornTextDecoder()
    >>> [mended.add("caf\udcc3"), mended.add("\udca9!"), mended.add("\ud83d"), mended.add("\ude00"), mended.end()]
    ['caf', 'é!', '', '😀', '']
    """

    def __init__(self) -> None:
        self._high = ""
        self._bytes = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, piece: str) -> str:
        """Return the complete characters; the rest is held back for the next piece."""
        try:
            piece.encode()
        except UnicodeEncodeError:
            return self._decode(piece)
        # Nearly all pieces are complete, and need no look at each character.
        return self._decode(piece) if self._high or self._bytes.getstate()[0] else piece

    def end(self) -> str:
        """Return the incomplete rest, as replacement characters."""
        high, self._high = self._high, ""
        return self._bytes.decode(b"", final=True) + ("\ufffd" if high else "")

    def _decode(self, piece: str) -> str:
        return "".join(map(self._decode_character, piece))

    def _decode_character(self, character: str) -> str:
        if self._high:
            high, self._high = self._high, ""
            if "\udc00" <= character <= "\udfff":
                return (high + character).encode("utf-16", "surrogatepass").decode("utf-16")
            return "\ufffd" + self._decode_character(character)
        if "\ud800" <= character <= "\udbff":
            self._high = character
            return self._bytes.decode(b"", final=True)
        if "\udc80" <= character <= "\udcff":  # a byte that was no UTF-8 by itself
            return self._bytes.decode(character.encode("utf-8", "surrogateescape"))
        return self._bytes.decode(character.encode("utf-8", "replace"))


RETRY_STATUSES = frozenset((408, 409, 425, 429, 500, 502, 503, 504, 529))
"""Statuses after which the same request may succeed."""


class Reply:
    """Reply while it comes in, whole or in events."""

    def __init__(self) -> None:
        self.usage: Usage | None = None
        self.finish_reason = ""
        self._text: list[str] = []
        self._thoughts: list[str] = []
        self._refusal: list[str] = []
        self._tool_name = ""
        self._tokens: list[Token] = []
        self._decoder, self._thought_decoder = TornTextDecoder(), TornTextDecoder()

    @property
    def text(self) -> str:
        return "".join(self._text)

    def take(self, data: str, part: str) -> str:
        """Return the text that one JSON object adds under `part`: `message` of a whole reply, `delta` of an event."""
        body = parse_object(data)
        if body.get("error"):  # within a stream, whose status was sent before anything went wrong
            raise server_error(body["error"])
        if isinstance(body.get("usage"), dict):
            self.usage = _read_usage(body["usage"])
        choices = body.get("choices")
        # the event that states the usage has none
        if not isinstance(choices, list) or not (choices or part == "delta"):
            raise ModelRejected(f"it replied without a choice: {_shorten(data)}. Check that base_url ends in /v1.")
        return self._choice(as_mapping(choices[0]), part) if choices else ""

    def end(self) -> str:
        """Return the text that was held back."""
        rest = self._decoder.end()
        self._thoughts.append(self._thought_decoder.end())
        self._text.append(rest)
        return rest

    def _choice(self, choice: Mapping[str, Any], part: str) -> str:
        message = as_mapping(choice.get(part))
        self._refusal.append(_as_text(message.get("refusal")))
        self._thoughts.append(self._thought_decoder.add(_thought(message)))
        # of the pieces of a call only the first has its name
        self._tool_name = self._tool_name or _called_tool(message)
        self._tokens.extend(_tokens(as_mapping(choice.get("logprobs")).get("content")))
        self.finish_reason = _as_text(choice.get("finish_reason")) or self.finish_reason  # events after it state none
        piece = self._decoder.add(_content(message.get("content")))
        self._text.append(piece)
        return piece

    def generation(self, logprobs: bool) -> Generation:
        """Return the complete reply.

        Raises:
            EmptyReply: the model wrote nothing; ThoughtCut where its tokens were spent before.
            ModelRejected: the model refused, was filtered, called a tool, or states no log-probabilities.
        """
        text, refusal = self.text, "".join(self._refusal)
        if refusal:
            raise ModelRejected(
                f"the model refused to answer: {_shorten(refusal)}. Ask another question, or another model."
            )
        if self.finish_reason == "content_filter":
            raise ModelRejected(
                "the server's content filter stopped the reply. Ask another question, or another model."
            )
        if self._tool_name:
            raise ModelRejected(
                f"the model called a tool, {_shorten(self._tool_name)}, where none was offered, instead of replying. "
                "Ask another model, or turn its own tools off on the server."
            )
        cut = self.finish_reason in ("length", "max_tokens")
        if not text:
            reason = f"the reply has no text (finish_reason {self.finish_reason or 'not stated'})"
            if cut:
                raise ThoughtCut(f"{reason}: all tokens went into a thought. {ThoughtCut.advice}")
            raise EmptyReply(f"{reason}: ask again.")
        if logprobs and not self._tokens:
            raise missing_capability("log-probabilities", LOGPROBS)
        tokens = tuple(self._tokens) if logprobs else ()
        return Generation(text, "length" if cut else "stop", tokens, "".join(self._thoughts))


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of a text that no server counts: one for three bytes, more than most tokenizers make."""
    return ceil(len(text.encode("utf-8", "replace")) / 3)


def server_error(error: object, status: int = 0) -> ModelError:
    """Return the error that a server's own error object stands for."""
    details = as_mapping(error)
    code, message = str(details.get("code") or details.get("type") or ""), details.get("message") or error
    text = f"it failed{f' with status {status}' if status else ''}: {_shorten(str(message))}"
    # Sent with status 429, but waiting does not help.
    if code == "insufficient_quota":
        return ModelRejected(f"{text}. The account has no credit left: add some, or name another key in api_key_env.")
    return (ModelUnavailable if status in RETRY_STATUSES or not status else ModelRejected)(_end_sentence(text))


def status_error(status: int, headers: Mapping[str, str], text: str, key_advice: str) -> ModelError:
    """Return the error that a status other than 200 stands for.

    Args:
        text: the body, without the key.
        key_advice: what is known of the key, in words.
    """
    try:
        body = as_mapping(json.loads(text))
    except (ValueError, RecursionError):
        body = {}
    inner = body.get("error", body.get("message", body.get("detail")))
    message = _shorten(str(as_mapping(inner).get("message") or inner or text))
    if 300 <= status < 400:
        return ModelRejected(
            f"it redirects to {_shorten(headers.get('location', 'nowhere'))}, which is not followed, so that documents "
            "and key go to no other server. Write that address as base_url if you trust it."
        )
    if status in (401, 403):
        return ModelRejected(f"it does not accept the key (status {status}: {message}); {key_advice}")
    if status == 404:
        return ModelRejected(
            f"the server does not know this address or model (status 404: {message}). Check model, and base_url's /v1."
        )
    return server_error(body.get("error") or message, status)


RENAMED = {"max_tokens": "max_completion_tokens"}
"""What some servers call a setting now."""
_SPARE = ("max_tokens", "temperature", "seed", "stream_options")
_SPARE_IF_NAMED = (*_SPARE, "stream")
"""What is taken for refused if the error has it as its `param`: in a message, "stream" is a word like others."""
_REFUSES = re.compile(
    r"unsupported|not (?:support|permitted|allowed)|unrecogni[sz]ed|unknown|extra|deprecated", re.IGNORECASE
)


def find_refused_setting(status: int, text: str) -> str:
    """Return the setting that an error refuses and a request can do without, or has another name for; empty for none.

    >>> find_refused_setting(400, '{"error": {"message": "temperature does not support 0.0", "param": "temperature"}}')
    'temperature'
    >>> find_refused_setting(400, '{"error": {"message": "max_tokens is too large: 9999", "param": "max_tokens"}}')
    ''
    """
    if status not in (400, 422) or not _REFUSES.search(text):  # other statuses do not speak of the request's settings
        return ""
    param = re.search(r'"param":\s*"(\w+)"', text)
    spare = _SPARE_IF_NAMED if param else _SPARE
    match = re.search(rf"\b(?:{'|'.join(spare)})\b", param[1] if param else text)
    return match[0] if match else ""


_TOO_MANY = re.compile(  # Not llama.cpp's `physical batch size`, which counts tokens.
    r"(?<!physical )(?<!current )batch size|(?:at most|maximum) \d+ requests|more batches|number of (?:texts|inputs)|"
    r"too many (?:texts|inputs)",
    re.IGNORECASE,
)


def smaller_batch(message: str, count: int) -> int:
    """Return how many texts a server takes in one request, by its error for `count` texts, else half; 0 for other
    errors.

    >>> smaller_batch("batch size 70 > maximum allowed batch size 32", 70)
    32
    >>> smaller_batch("Too many inputs", 70), smaller_batch("no key", 70)
    (35, 0)
    """
    match = _TOO_MANY.search(message)
    if match is None or count < 2:
        return 0
    numbers = [
        number for digits in re.findall(r"\d{1,9}", message[match.start() :]) if 0 < (number := int(digits)) < count
    ]
    return max(numbers, default=count // 2)


def parse_object(data: str, array: str = "") -> Mapping[str, Any]:
    """Parse the JSON object that a server sent; `ModelRejected` if it is none.

    Args:
        array: a bare array is the object that has it under this name; empty to refuse one.
    """
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        raise ModelRejected(
            f"it sent no valid JSON but {_shorten(data)!r}. Check that base_url is an OpenAI API."
        ) from None
    if array and isinstance(value, list):
        return {array: value}
    if not isinstance(value, dict):
        raise ModelRejected(f"it sent {_shorten(data)!r}, not a JSON object. Check that base_url is an OpenAI API.")
    return value


def _read_usage(stated: Mapping[str, Any]) -> Usage:
    counts = (stated.get("prompt_tokens"), stated.get("completion_tokens"))
    input_tokens, output_tokens = (count if isinstance(count, int) and count > 0 else 0 for count in counts)
    return Usage(calls=1, input_tokens=input_tokens, output_tokens=output_tokens)


def missing_capability(feature: str, capability: str) -> ModelRejected:
    """Return the error for a server that ignores a capability declared for it.

    >>> print(missing_capability("log-probabilities", "logprobs"))  # doctest: +ELLIPSIS
    it states no log-probabilities. Name another server, ... (--llm), or a flow that needs none; ... capabilities.
    """
    return ModelRejected(
        f"it states no {feature}. Name another server, a GGUF file or a model folder (--llm), or a flow that needs "
        f"none; in Python you can also take {capability!r} out of capabilities."
    )


def _tokens(content: object) -> list[Token]:
    entries = [as_mapping(entry) for entry in content] if isinstance(content, list) else []
    pairs = [(entry.get("token"), entry.get("logprob")) for entry in entries]
    return [Token(text, float(p)) for text, p in pairs if isinstance(text, str) and isinstance(p, (int, float))]


def read_next_tokens(reply: Mapping[str, Any]) -> tuple[Token, ...]:
    """Return the most probable first tokens that a chat reply states."""
    choices = reply.get("choices")
    choice = as_mapping(choices[0]) if isinstance(choices, list) and choices else {}
    content = as_mapping(choice.get("logprobs")).get("content")
    first = as_mapping(content[0]) if isinstance(content, list) and content else {}
    return rank_tokens(_tokens(first.get("top_logprobs")))


def rank_tokens(tokens: Iterable[Token]) -> tuple[Token, ...]:
    """Sort tokens by probability; those with none, or an impossible one, are left out."""
    valid = [token for token in tokens if token.logprob <= 0.0]  # NaN is not
    if not valid:
        raise missing_capability("probable next tokens", NEXT_TOKENS)
    return tuple(sorted(valid, key=lambda token: (-token.logprob, token.text)))


def as_mapping(value: object) -> Mapping[str, Any]:
    """Return the object itself, or an empty one if it is no object."""
    return value if isinstance(value, dict) else {}


def _called_tool(message: Mapping[str, Any]) -> str:
    """Return the tool that a message calls; empty if it calls none."""
    calls = message.get("tool_calls")
    first = as_mapping(calls[0]) if isinstance(calls, list) and calls else {}
    call = as_mapping(first.get("function")) or as_mapping(message.get("function_call")) or first
    return str(call.get("name") or "without a name") if call else ""


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _content(content: object) -> str:
    """Return the text of a message; some servers send it in parts, with the model's thought in others."""
    if not isinstance(content, list):
        return _as_text(content)
    parts = (as_mapping(part) or {"text": part} for part in content)
    return "".join(_as_text(part.get("text")) for part in parts if part.get("type", "text") in ("text", "output_text"))


def _thought(message: Mapping[str, Any]) -> str:
    """Return the model's thought in a message: in a field of its own, or in parts of the content."""
    for name in ("reasoning_content", "reasoning"):
        if text := _as_text(message.get(name)):
            return text
    content = message.get("content")
    parts = map(as_mapping, content) if isinstance(content, list) else ()
    return "".join(_content(part.get("thinking")) for part in parts if part.get("type") == "thinking")


def _end_sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _shorten(text: str) -> str:
    plain = " ".join(text.encode("utf-8", "replace").decode().split())
    return (plain if len(plain) <= 200 else f"{plain[:197]}...") or "nothing"
