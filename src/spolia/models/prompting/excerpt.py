"""Long texts made short enough for a prompt, so that both the model and the reader of a trace see it."""

TAIL = 4
"""Of a shortened text, one character in so many is from its end, where conclusions stand."""


def shortened(text: str, characters: int) -> str:
    """The beginning and the end of a text, `characters` of it at most, and how much is left out between them.

    >>> shortened("abcdefghijklmnop", 8)
    'abcdef\\n[... 8 characters left out ...]\\nop'
    """
    if len(text) <= characters:
        return text
    tail = characters // TAIL
    head = characters - tail
    return f"{text[:head]}\n{_left_out(len(text) - characters)}\n{text[len(text) - tail :]}"


def stretch(text: str, at: int, characters: int) -> str:
    """A stretch of at most `characters` of a text around the offset `at`, shortened at both ends.

    Stretches begin at multiples of half their length, so that neighbouring places share one, and a server that keeps
    the prefix of a prompt reads it once.

    >>> stretch("abcdefghijklmnop", 8, 8)
    '[... 4 characters left out ...]\\nefghijkl\\n[... 4 characters left out ...]'
    >>> stretch("abcdefghijklmnop", 9, 8) == stretch("abcdefghijklmnop", 7, 8)
    True
    """
    if len(text) <= characters:
        return text
    step = max(1, characters // 2)
    nearest = (at - characters // 2 + step // 2) // step * step
    start = max(0, min(nearest, len(text) - characters))
    end = start + characters
    before = [_left_out(start)] if start else []
    after = [_left_out(len(text) - end)] if end < len(text) else []
    return "\n".join([*before, text[start:end], *after])


def _left_out(characters: int) -> str:
    return f"[... {characters} characters left out ...]"
