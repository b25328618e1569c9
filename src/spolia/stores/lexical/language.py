"""Which language a corpus is written in, guessed from its function words: enough to choose a stemmer.

Only languages in Latin script need a guess; elsewhere the script decides.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable

# The commonest function words of each language, without accents. Words that several languages share count for each of
# them; what decides is the sum.
FUNCTION_WORDS: dict[str, frozenset[str]] = {
    language: frozenset(words.split())
    for language, words in {
        "danish": "og i at det er en til af den som for de der med ikke har et var jeg om efter blev kun hvad ogsa",
        "dutch": "de het een van en in is op te dat die voor met zijn niet aan er om ook als door bij naar wordt",
        "english": "the of and in to a is was that for on as with by at it from his an were are which be this or",
        "finnish": "ja on oli ei se etta han joka mutta ovat kun niin olla sen tai myos hanen vuonna joka mika ne",
        "french": "le la les de des du et en un une est que qui dans pour par sur il au avec ne pas ce plus son sont",
        "german": "der die das und in den von zu mit ist im des sich auf fur nicht ein eine als auch dem wird aus war",
        "hungarian": "a az es hogy nem is egy meg volt ez de van csak mint mar ha vagy azt el ezt amely ki kell lett",
        "italian": "il lo la di e che in un una per del della con non si da sono come nel alla piu gli dei anche le",
        "norwegian": "og i det er en til av som for de med ikke har et var pa den fra om etter ble hun kun noe blant",
        "portuguese": "o os a as de do da dos das em e que um uma no na para com por nao se mais foi ao como sao",
        "romanian": "si in de la a cu pe din care un o este nu au fost pentru mai ca sa prin lui sunt ale dupa cel",
        "spanish": "el la los las de y en que un una del se por con no su para es al lo como mas fue sus entre era",
        "swedish": "och i att det ar en som till av for den med pa de inte ett har om var men fran vid sig kan efter",
        "turkish": "ve bir bu da de ile icin olarak en daha olan cok gibi kadar sonra ise ne her o tarafindan veya hem",
    }.items()
}
_WORD = re.compile(r"[^\W\d_]+")
_ENOUGH, _FEWEST = 0.08, 3  # of the words: running text has 0.2 to 0.5 function words, lists of names and code fewer


def language_of(texts: Iterable[str], *, default: str = "english", words: int = 20_000) -> str:
    """The language whose function words are commonest in the texts, or `default` when none is common enough.

    Args:
        texts: a sample of the corpus; the first `words` words are read.
        default: for texts without running prose in a known language.

    >>> language_of(["¿Cuál es la capital de los Países Bajos y por qué se llama así?"])
    'spanish'
    >>> language_of(["東京は日本の首都です。"])
    'english'
    """
    seen: Counter[str] = Counter()
    total = 0
    for text in texts:
        plain = unicodedata.normalize("NFD", text[: 20 * words].lower())
        found = _WORD.findall("".join(c for c in plain if not unicodedata.combining(c)))
        seen.update(found)
        total += len(found)
        if total >= words:
            break
    counts = {name: sum(seen[word] for word in known) for name, known in FUNCTION_WORDS.items()}
    best = max(counts, key=lambda name: (counts[name], name == default))
    return best if counts[best] >= max(_FEWEST, _ENOUGH * total) else default
