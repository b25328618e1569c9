"""`spolia prompts`: the prompts of language models, the messages for a case, and files in the place of others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from spolia.cli.exit_codes import Exit
from spolia.cli.options import AllowEnv, AsJson, BuildGroups, Known, MaybeStore, OwnPrompts, ProfileFile, SeenBy
from spolia.cli.parameters import argument, option, subcommands
from spolia.cli.prompt_cases import PromptCase, preview_messages
from spolia.cli.screen import Screen, table
from spolia.errors import QueryError
from spolia.evaluation.data.json_lines import replace_files
from spolia.evaluation.measures.registry import CLASSES, class_of
from spolia.flow_files.prompts import ShippedPrompt, find_prompt, list_shipped_prompts, name_from_place
from spolia.models.prompting.template import translated_path

if TYPE_CHECKING:
    from spolia.flow_files.prompt_preview import PreviewedCall

WHAT = "A prompt as `list` names it; or an operator, a built-in flow, or a YAML file with one, for a case."
What = Annotated[str, argument("WHAT", WHAT)]
Name = Annotated[str, argument("NAME", "The prompt, as `list` names it.")]


def list_(json: AsJson = False) -> Exit:
    """List the prompts that come with Spolia: name, languages, who asks with it."""
    screen, shipped_prompts = Screen(json=json), _read_shipped_prompts()
    screen.give(
        prompts={
            prompt.name: {
                "languages": list(prompt.languages),
                "places": sorted(prompt.places),
                "asked_by": list(prompt.users),
            }
            for prompt in shipped_prompts.values()
        }
    )
    rows = ((prompt.name, " ".join(prompt.languages), ", ".join(prompt.users)) for prompt in shipped_prompts.values())
    screen.show(table(rows, "prompt", "languages", "asked by"))
    return Exit.DONE


def show(
    target: What,
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
    modules: Known = None,
    allow_env: AllowEnv = None,
    build_groups: BuildGroups = False,
    profile_file: ProfileFile = None,
    json: AsJson = False,
) -> Exit:
    """Show a prompt, or the messages that an operator or a flow would send for a case. No language model is asked."""
    screen, shipped_prompts = Screen(json=json), _read_shipped_prompts()
    if target in {name[start:] for name in shipped_prompts for start in (0, name.rfind("/") + 1)}:
        return _show_file(screen, find_prompt(target, shipped_prompts), question or data or document)
    case = PromptCase.from_options(question, data, line, document or ())
    calls = preview_messages(target, case, store, modules, prompts, reply or (), access, profile_file, screen.say)
    screen.give(what=target, question=case.question, calls=[_call_data(call) for call in calls])
    if not calls:
        screen.say("No language model is asked: the flow asks none, or finds nothing in the case.")
        return Exit.NOTHING
    for number, call in enumerate(calls, 1):
        screen.write(_format_call(number, call))
    return Exit.DONE


def override(
    name: Name,
    into: Annotated[Path, option("--into DIR", "The folder of your prompts, for --prompts.")] = Path("prompts"),
    json: AsJson = False,
) -> Exit:
    """Copy a prompt, in all its languages, to a folder of your own, and say how it is used from there."""
    screen, prompt = Screen(json=json), find_prompt(name, _read_shipped_prompts())
    main = into / f"{prompt.name}.txt"
    files = {Path(translated_path(str(main), language)): text for language, text in prompt.texts.items()}
    if existing := [path for path in files if path.exists()]:
        raise QueryError(f"{existing[0]} is there already. Change it, or move it away.")
    with replace_files(*files) as parts:
        for part, text in zip(parts, files.values(), strict=True):
            part.write_text(text, encoding="utf-8")
    screen.give(name=prompt.name, files=[str(path) for path in files])
    screen.show(*(f"written: {path}" for path in files))
    if measures := list(_list_judge_measures(prompt, main)):
        screen.say(f"Change what it says, then write it as a part of the measure: --measures '{','.join(measures)}'.")
    else:
        screen.say(
            f"Change what it says, then write --prompts {into}; or in a flow file, in the place of the operator's role "
            f"or prompt: {{prompt: {main}}}."
        )
    return Exit.DONE


def _list_judge_measures(prompt: ShippedPrompt, file: Path) -> Iterator[str]:
    """Yield the measures that ask with a prompt, written with a file in its place."""
    for notation in prompt.users:
        if (cls := class_of(notation)) is None:
            continue
        for field in fields(cls):  # type: ignore[arg-type]
            if name_from_place(getattr(field.default, "prompt", "")) == prompt.name:
                yield f'{notation}({field.name}="{file}")'
        if prompt.name in getattr(cls, "prompts", ()):
            yield f'{notation}(aspect="{prompt.name.rpartition("/")[2]}", prompt="{file}")'


prompts = subcommands(
    "prompts", "The prompts of language models: list, show, override.", list=list_, show=show, override=override
)


def _read_shipped_prompts() -> dict[str, ShippedPrompt]:
    """Return every prompt, with the operators and measures that ask with it."""
    return list_shipped_prompts({name: class_of(name.removesuffix("@k")) for name in CLASSES})


def _show_file(screen: Screen, prompt: ShippedPrompt, case: object) -> Exit:
    if case:
        users = " or ".join(prompt.users) or "a flow with it"
        raise QueryError(f"A prompt has no case. Write: spolia prompts show {users}, with the same options.")
    screen.give(name=prompt.name, texts=prompt.texts, places=sorted(prompt.places), asked_by=list(prompt.users))
    for language, text in prompt.texts.items():
        screen.say(f"{prompt.place}, {language}:")
        screen.write(text)
    return Exit.DONE


def _call_data(call: PreviewedCall) -> dict[str, Any]:
    messages = [{"role": message.role, "content": message.content} for message in call.messages]
    return {"model": call.model, "max_tokens": call.max_tokens, "sample": call.sample, "messages": messages}


def _format_call(number: int, call: PreviewedCall) -> str:
    """Format a call for people: its messages as a prompt file would have them."""
    head = f"# call {number} to {call.model}, at most {call.max_tokens} tokens back"
    return "\n\n".join((head, *(f"[{message.role}]\n{message.content}" for message in call.messages))) + "\n"
