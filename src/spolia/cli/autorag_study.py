"""A configuration or a trial of AutoRAG as the space of a study: what `spolia tune` makes of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spolia.cli.experiments import SIMULATED
from spolia.cli.model_profile import profile_of
from spolia.cli.options import MeasuringOptions
from spolia.cli.screen import Screen, one_line, table
from spolia.evaluation.data.json_lines import whole_files
from spolia.optimizer.autorag.config import ImportedConfig, is_config, read_config
from spolia.optimizer.autorag.modules import GivenModels
from spolia.optimizer.autorag.trial import TriedModule, is_trial, read_trial
from spolia.types import Value

SPACE, BEST = "space.yaml", "autorag_best.yaml"


@dataclass(frozen=True)
class ImportedStudy(Value):
    """What a configuration or a trial of AutoRAG gives to a study, written into the study's folder.

    Args:
        space: the flow file of the space.
        best: that of the pipeline which AutoRAG chose; empty for a configuration.
        prior: where that is in the space, if it is.
    """

    config: ImportedConfig
    space: Path
    best: Path | None = None
    prior: tuple[Mapping[str, int], ...] = ()
    tried: tuple[TriedModule, ...] = field(default=(), repr=False)

    def json(self) -> dict[str, Any]:
        """Plain data."""
        found: dict[str, Any] = {"space": str(self.space), "notes": list(self.config.notes)}
        if self.best is None:
            return found
        chosen = [
            {"node": one.node, "module": one.module, "params": dict(one.params), "metrics": dict(one.metrics)}
            for one in self.tried
            if one.is_best
        ]
        return found | {"best": str(self.best), "chosen": chosen}


def imported_study(screen: Screen, space: str, out: Path, given: MeasuringOptions) -> ImportedStudy | None:
    """The study at the path of a space, if AutoRAG wrote it; None for a space of Spolia."""
    path = Path(space)
    if not (is_trial(path) or is_config(path)):
        return None
    profile = profile_of(given.profile_file).options()
    llm, reranker = given.llm or profile.get("llm", ""), given.reranker or profile.get("reranker", "")
    models = GivenModels(llm=bool(llm), scorer=bool(reranker), judge=bool(llm) and llm != SIMULATED)
    out.mkdir(parents=True, exist_ok=True)
    if is_trial(path):
        trial = read_trial(path, models)
        point = trial.point
        found = ImportedStudy(trial.space, out / SPACE, out / BEST, () if point is None else (point,), trial.tried)
        with whole_files(out / BEST) as (part,):
            part.write_text(trial.best.text, "utf-8")
        _show(screen, trial.tried)
        where = "the search begins with it" if point is not None else "the space as it is read here does not hold it"
        screen.say(f"Written: {out / BEST}, the pipeline that AutoRAG chose; {where}.")
    else:
        found = ImportedStudy(read_config(path, models), out / SPACE)
    with whole_files(found.space) as (part,):
        part.write_text(found.config.text, "utf-8")
    for note in found.config.notes:
        screen.say(f"AutoRAG: {one_line(note, 400)}", "yellow")
    screen.say(f"Written: {found.space}, the space as a flow file.")
    return found


def _show(screen: Screen, tried: Sequence[TriedModule]) -> None:
    rows = [
        (
            one.node,
            one.module,
            one_line(", ".join(map("=".join, one.params)), 60),
            ", ".join(f"{name.removeprefix(f'{one.node}_')} {value:.4g}" for name, value in one.metrics),
            f"{one.seconds:.3g}",
        )
        for one in tried
        if one.is_best
    ]
    screen.show(
        "What AutoRAG measured of the modules that it chose:", table(rows, "node", "module", "params", "metrics", "s")
    )
