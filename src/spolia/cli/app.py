"""The commands, gathered."""

import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from spolia.cli.commands.ask import ask, search
from spolia.cli.commands.calibrate import calibrate
from spolia.cli.commands.check import check
from spolia.cli.commands.data import data, world
from spolia.cli.commands.docs import docs
from spolia.cli.commands.doctor import doctor, fail_points, repair
from spolia.cli.commands.eval import evaluate
from spolia.cli.commands.export import export, import_
from spolia.cli.commands.gate import gate, promote
from spolia.cli.commands.groups import groups
from spolia.cli.commands.index import SYNC, index, plan
from spolia.cli.commands.init import init
from spolia.cli.commands.monitor import monitor
from spolia.cli.commands.prompts import prompts
from spolia.cli.commands.questions import questions
from spolia.cli.commands.rows import rows
from spolia.cli.commands.serve import keys, serve, worker
from spolia.cli.commands.show import flows, show
from spolia.cli.commands.trace import trace
from spolia.cli.commands.train import train
from spolia.cli.commands.tune import tune
from spolia.cli.exit_codes import MEANING, Exit, guarded, refusal
from spolia.cli.options import WRONG_USAGE, spread
from spolia.cli.screen import Screen

CODES = "Exit codes: " + "; ".join(f"{int(code)} {meaning}" for code, meaning in MEANING.items()) + "."


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        sys.stdout.write(f"spolia {version('spolia')}\n")
        raise typer.Exit


HELP = ("-h", "--help")
IN_QUOTES = 'Write the question in quotes: spolia {} "What is it about?"'

COMMANDS: dict[str, Any] = {
    "init": spread(init), "index": spread(index), "sync": spread(index), "plan": spread(plan), "docs": docs,
    "groups": groups, "export": export, "import": import_, "search": spread(search), "ask": spread(ask),
    "serve": spread(serve), "keys": keys, "worker": worker, "monitor": monitor, "eval": spread(evaluate),
    "gate": spread(gate), "promote": spread(promote), "tune": spread(tune),
    "train": spread(train), "rows": spread(rows),
    "calibrate": calibrate, "data": data, "questions": questions, "world": world, "flows": flows, "check": check,
    "show": show, "prompts": prompts, "trace": trace, "doctor": doctor, "repair": repair,
}  # fmt: skip
"""As help lists the commands: how a store is made, then how it is used."""


class Commands(TyperGroup):
    """Wrong usage too is one JSON object where `--json` is written."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*COMMANDS, *(self.commands.keys() - COMMANDS)]

    def invoke(self, ctx: Any) -> Any:
        asked = list(ctx.args)
        try:
            return super().invoke(ctx)
        except WRONG_USAGE as error:
            name = getattr(getattr(error, "ctx", None), "info_name", "")
            if name in ("search", "ask") and "unexpected extra argument" in str(error):
                error.message += f". {IN_QUOTES.format(name)}"  # type: ignore[attr-defined]
            message = getattr(error, "format_message", error.__str__)()
            Screen(json="--json" in asked).give(
                error={"kind": "UsageError", "message": message}, exit_code=int(Exit.USAGE)
            )
            raise


app = typer.Typer(
    name="spolia",
    cls=Commands,
    help="Ask a folder of documents and get answers with citations; measure how good they are.",
    epilog=CODES,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": [*HELP]},
)


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", metavar="", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None: ...


for _name, _body in COMMANDS.items():
    if isinstance(_body, typer.Typer):
        app.add_typer(_body, name=_name)
    else:
        app.command(_name, help=SYNC if _name == "sync" else None)(guarded(_body))
app.command("fail-points", hidden=True)(guarded(fail_points))


def run() -> None:
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(int(Exit.INTERRUPTED))
    except OSError as error:  # help, or a result in JSON, that cannot be printed
        sys.stderr.write(f"error: {refusal(error)}\n")
        sys.exit(int(Exit.USAGE))
