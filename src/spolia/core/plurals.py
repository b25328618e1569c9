"""Counts of things, in words."""


def several(number: int, thing: str) -> str:
    """Return a number with its noun, singular or plural.

    >>> several(1, "question"), several(1200, "question")
    ('1 question', '1,200 questions')
    """
    return f"{number:,} {thing if number == 1 else plural(thing)}"


def plural(thing: str) -> str:
    """Return the plural of a noun, maybe with what it is a set of.

    >>> plural("page"), plural("set of boxes")
    ('pages', 'sets of boxes')
    """
    noun, separator, rest = thing.partition(" of ")
    return f"{noun}s{separator}{rest}"


def were(number: int) -> str:
    """Return the verb for a number of things.

    >>> were(1), were(2)
    ('was', 'were')
    """
    return "was" if number == 1 else "were"
