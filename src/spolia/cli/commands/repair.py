"""`spolia repair`: a damaged store mended from itself and from its folder."""

from spolia.cli.exit_codes import Exit
from spolia.cli.options import WAIT_S, AllowEnv, AsJson, Known, ProfileFile, StorePath, Wait
from spolia.cli.screen import Screen


def repair(
    store: StorePath,
    known: Known = None,
    allow_env: AllowEnv = None,
    wait: Wait = WAIT_S,
    profile_file: ProfileFile = None,
    json: AsJson = False,
) -> Exit:
    """Mend a damaged store: indexes, vectors and nodes from what it holds, documents from the folder that was indexed.

    The exit code is 3 if something is left that cannot be mended so; it says what to do about that.
    """
    from spolia.cli.user_modules import own
    from spolia.indexing.readers.registry import READERS
    from spolia.indexing.sync.repair import repair as mended
    from spolia.stores.corpus import Corpus

    screen, mine = Screen(json=json), own(known)
    with screen.progress("repairing"):
        found = mended(Corpus(store), readers=mine.readers or READERS, known=mine.operators, wait_s=wait)
    screen.give(store=store, repaired=list(found.repaired), left=list(found.left))
    for said in found.repaired:
        screen.show(f"mended: {said}")
    for said in found.left:
        screen.show(f"left: {said}")
    if not found.repaired and not found.left:
        screen.show(f"{store}: nothing is damaged")
    return Exit.STORE if found.left else Exit.DONE
