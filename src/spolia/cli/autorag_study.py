"""Studies of `spolia tune` whose space is a configuration or a trial of AutoRAG."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from spolia.cli.experiments import SIMULATED
from spolia.cli.measuring_options import MeasuringOptions
from spolia.cli.model_profile import load_profile
from spolia.cli.screen import Screen, one_line, table
from spolia.errors import DataError
from spolia.evaluation.data.json_lines import replace_files
from spolia.optimizer.autorag.config import ImportedConfig, is_config, read_config, refuse_other_config
from spolia.optimizer.autorag.modules import AvailableModels
from spolia.optimizer.autorag.trial import TriedModule, is_trial, read_trial
from spolia.types import Value

SPACE, BEST = "space.yaml", "autorag_best.yaml"


@dataclass(frozen=True)
class ImportedStudy(Value):
    """Study of a configuration or a trial of AutoRAG.

    Args:
        space: where the flow file of the space goes, in the study's folder.
        best, best_text: the flow file of the pipeline which AutoRAG chose, and its text; empty for a configuration.
        prior: where that is in the space, if it is.
    """

    config: ImportedConfig
    space: Path
    best: Path | None = None
    best_text: str = field(default="", repr=False)
    prior: tuple[Mapping[str, int], ...] = ()
    tried: tuple[TriedModule, ...] = field(default=(), repr=False)

    def json(self) -> dict[str, Any]:
        """Return plain data for the JSON output."""
        plain: dict[str, Any] = {"space": str(self.space), "notes": list(self.config.notes)}
        if self.best is None:
            return plain
        chosen_modules = [
            {
                "node": tried_module.node,
                "module": tried_module.module,
                "params": dict(tried_module.params),
                "metrics": dict(tried_module.metrics),
            }
            for tried_module in self.tried
            if tried_module.is_best
        ]
        return plain | {"best": str(self.best), "chosen": chosen_modules}

    @contextmanager
    def as_file(self) -> Iterator[str]:
        """Yield the path of a temporary flow file with the space: a check may still refuse the study's own folder."""
        with TemporaryDirectory() as folder:
            with replace_files(Path(folder, SPACE)) as (part,):
                part.write_text(self.config.text, "utf-8")
            yield str(Path(folder, SPACE))

    def refuse_overwriting(self) -> None:
        """Refuse a folder whose files differ from what would be written there: somebody edited them."""
        for path, text in self._files():
            # Bytes that are no text count as another text.
            if path.exists() and path.read_text("utf-8", "replace") != text:
                raise DataError(
                    f"{path} differs from what this configuration gives, and is not overwritten. To tune the space "
                    f"that is there: spolia tune {self.space} --data DATA -o OTHER. To tune the configuration, name "
                    "another folder: -o OTHER."
                )

    def write(self, screen: Screen) -> None:
        """Write the flow files into the study's folder."""
        self.refuse_overwriting()
        for path, text in self._files():
            with replace_files(path) as (part,):
                part.write_text(text, "utf-8")
        screen.say(f"Written: {self.space}, the space as a flow file.")
        if self.best is not None:
            screen.say(f"Written: {self.best}, the pipeline that AutoRAG chose.")

    def _files(self) -> list[tuple[Path, str]]:
        best = [] if self.best is None else [(self.best, self.best_text)]
        return [(self.space, self.config.text), *best]


def read_imported_study(screen: Screen, space: str, out: Path, options: MeasuringOptions) -> ImportedStudy | None:
    """Read the study at the path of a space if AutoRAG wrote it; None for a space of Spolia."""
    path = Path(space)
    if not (is_trial(path) or is_config(path)):
        refuse_other_config(path)
        return None
    profile = load_profile(options.profile_file).options()
    llm, reranker = options.llm or profile.get("llm", ""), options.reranker or profile.get("reranker", "")
    models = AvailableModels(llm=bool(llm), scorer=bool(reranker), judge=bool(llm) and llm != SIMULATED)
    models = models.but(base_url=llm if "://" in llm else "")
    if is_trial(path):
        trial = read_trial(path, models)
        point = trial.point
        prior = () if point is None else (point,)
        study = ImportedStudy(trial.space, out / SPACE, out / BEST, trial.best.text, prior, trial.tried)
        _show_chosen_modules(screen, trial.tried)
        relation = "the search begins with it" if point is not None else "the space as it is read here does not hold it"
        screen.say(f"The pipeline that AutoRAG chose: {relation}.")
    else:
        study = ImportedStudy(read_config(path, models), out / SPACE)
    for note in study.config.notes:
        screen.say(f"AutoRAG: {one_line(note, 400)}", "yellow")
    return study


def _show_chosen_modules(screen: Screen, tried_modules: Sequence[TriedModule]) -> None:
    rows = [
        (
            tried_module.node,
            tried_module.module,
            one_line(", ".join(map("=".join, tried_module.params)), 60),
            ", ".join(
                f"{name.removeprefix(f'{tried_module.node}_')} {value:.4g}" for name, value in tried_module.metrics
            ),
            f"{tried_module.seconds:.3g}",
        )
        for tried_module in tried_modules
        if tried_module.is_best
    ]
    screen.show(
        "What AutoRAG measured of the modules that it chose:", table(rows, "node", "module", "params", "metrics", "s")
    )
