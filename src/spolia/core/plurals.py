"""Numbers of things, in words."""


def several(number: int, thing: str) -> str:
    """So many of a thing.

    >>> several(1, "question"), several(1200, "question")
    ('1 question', '1,200 questions')
    """
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def were(number: int) -> str:
    """The verb of so many.

    >>> were(1), were(2)
    ('was', 'were')
    """
    return "was" if number == 1 else "were"
