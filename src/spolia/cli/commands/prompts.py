"""`spolia prompts`: what language models are asked with, the messages for a case, and files in the place of others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from spolia.cli.exit_codes import Exit
from spolia.cli.options import AllowEnv, AsJson, BuildGroups, Known, MaybeStore, OwnPrompts, ProfileFile, SeenBy
from spolia.cli.parameters import argument, option, subcommands
from spolia.cli.prompt_cases import PromptCase, messages
from spolia.cli.screen import Screen, table
from spolia.errors import QueryError
from spolia.evaluation.data.json_lines import whole_files
from spolia.evaluation.measures.registry import WRITTEN, class_of
from spolia.flow_files.prompts import ShippedPrompt, name_of, prompt_called, shipped
from spolia.models.prompting.template import beside

if TYPE_CHECKING:
    from spolia.flow_files.prompt_preview import Sent

WHAT = "A prompt as `list` names it; or an operator, a built-in flow, or a YAML file with one, for a case."
What = Annotated[str, argument("WHAT", WHAT)]
Name = Annotated[str, argument("NAME", "The prompt, as `list` names it.")]


def list_(json: AsJson = False) -> Exit:
    """List the prompts that come with Spolia: name, languages, who asks with it."""
    screen, found = Screen(json=json), _all()
    screen.give(
        prompts={
            one.name: {"languages": list(one.languages), "places": sorted(one.places), "asked_by": list(one.asked_by)}
            for one in found.values()
        }
    )
    rows = ((one.name, " ".join(one.languages), ", ".join(one.asked_by)) for one in found.values())
    screen.show(table(rows, "prompt", "languages", "asked by"))
    return Exit.DONE


def show(
    what: What,
    question: Annotated[str, option("--question TEXT", "The question of the case.")] = "",
    data: Annotated[Path | None, option("--data DIR", "Take the question from this data set.")] = None,
    line: Annotated[int, option("--line", "Which question of --data, counted from 1.", min=1)] = 1,
    document: Annotated[list[Path] | None, option("--document FILE", "A text of the case; repeatable.")] = None,
    reply: Annotated[
        list[str] | None, option("--reply TEXT", "An assumed reply, to show later calls too; repeatable.")
    ] = None,
    store: MaybeStore = None,
    access: SeenBy = None,
    prompts: OwnPrompts = None,
    known: Known = None,
    allow_env: AllowEnv = None,
    build_groups: BuildGroups = False,
    profile_file: ProfileFile = None,
    json: AsJson = False,
) -> Exit:
    """Show a prompt, or the messages that an operator or a flow would send for a case. No language model is asked."""
    screen, every = Screen(json=json), _all()
    if what in {name[at:] for name in every for at in (0, name.rfind("/") + 1)}:
        return _show_file(screen, prompt_called(what, every), question or data or document)
    case = PromptCase.of(question, data, line, document or ())
    sent = messages(what, case, store, known, prompts, reply or (), access, profile_file, screen.say)
    screen.give(what=what, question=case.question, calls=[_call(one) for one in sent])
    if not sent:
        screen.say("No language model is asked: the flow asks none, or finds nothing in the case.")
        return Exit.NOTHING
    for number, one in enumerate(sent, 1):
        screen.write(_written(number, one))
    return Exit.DONE


def override(
    name: Name,
    into: Annotated[Path, option("--into DIR", "The folder of your prompts, for --prompts.")] = Path("prompts"),
    json: AsJson = False,
) -> Exit:
    """Copy a prompt, in all its languages, to a folder of your own, and say how it is used from there."""
    screen, found = Screen(json=json), prompt_called(name, _all())
    main = into / f"{found.name}.txt"
    files = {Path(beside(str(main), language)): text for language, text in found.texts.items()}
    if there := [path for path in files if path.exists()]:
        raise QueryError(f"{there[0]} is there already. Change it, or move it away.")
    with whole_files(*files) as parts:
        for part, text in zip(parts, files.values(), strict=True):
            part.write_text(text, encoding="utf-8")
    screen.give(name=found.name, files=[str(path) for path in files])
    screen.show(*(f"written: {path}" for path in files))
    if judging := list(_of_judges(found, main)):
        screen.say(f"Change what it says, then write it as a part of the measure: --measures '{','.join(judging)}'.")
    else:
        screen.say(
            f"Change what it says, then write --prompts {into}; or in a flow file, in the place of the operator's role "
            f"or prompt: {{prompt: {main}}}."
        )
    return Exit.DONE


def _of_judges(prompt: ShippedPrompt, file: Path) -> Iterator[str]:
    """The measures that ask with a prompt, as they are written with a file in its place."""
    for called in prompt.asked_by:
        if (cls := class_of(called)) is None:
            continue
        for field in fields(cls):  # type: ignore[arg-type]
            if name_of(getattr(field.default, "prompt", "")) == prompt.name:
                yield f'{called}({field.name}="{file}")'
        if prompt.name in getattr(cls, "prompts", ()):
            yield f'{called}(aspect="{prompt.name.rpartition("/")[2]}", prompt="{file}")'


prompts = subcommands(
    "prompts", "The prompts of language models: list, show, override.", list=list_, show=show, override=override
)


def _all() -> dict[str, ShippedPrompt]:
    """Every prompt, with operators and measures that ask with it."""
    return shipped({name: class_of(name.removesuffix("@k")) for name in WRITTEN})


def _show_file(screen: Screen, found: ShippedPrompt, case: object) -> Exit:
    if case:
        users = " or ".join(found.asked_by) or "a flow with it"
        raise QueryError(f"A prompt has no case. Write: spolia prompts show {users}, with the same options.")
    screen.give(name=found.name, texts=found.texts, places=sorted(found.places), asked_by=list(found.asked_by))
    for language, text in found.texts.items():
        screen.say(f"{found.place}, {language}:")
        screen.write(text)
    return Exit.DONE


def _call(sent: Sent) -> dict[str, Any]:
    said = [{"role": message.role, "content": message.content} for message in sent.messages]
    return {"model": sent.model, "max_tokens": sent.max_tokens, "sample": sent.sample, "messages": said}


def _written(number: int, sent: Sent) -> str:
    """A call for people: the messages as a prompt file would have them."""
    head = f"# call {number} to {sent.model}, at most {sent.max_tokens} tokens back"
    return "\n\n".join((head, *(f"[{message.role}]\n{message.content}" for message in sent.messages))) + "\n"
