"""Where the measured curves come from: a run folder with its requests, or a table of averages."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loadkit.analysis.reading import number
from loadkit.analysis.saved import manifest_of, summary_of
from loadkit.analysis.sizing import table
from loadkit.analysis.sizing.question import Prices
from loadkit.analysis.sizing.samples import Samples
from loadkit.plan.errors import ConfigError
from loadkit.record.folder import RunFolder


@dataclass(frozen=True, slots=True)
class Source:
    """`cells` of a summary; `samples` of the requests behind them, None for a table; `folder` of a run, None for one.

    `slo` are the objectives of the run's own plan, empty where it had none."""

    name: str
    cells: Sequence[Mapping[str, Any]]
    samples: Samples | None
    folder: RunFolder | None
    model: str | None = None
    slo: str = ""
    prices: Prices = field(default_factory=Prices)


def load(path: Path, *, mapping: Iterable[str] = (), prompt: int | None = None, output: int | None = None) -> Source:
    """The curves of a run folder, or of a CSV or JSON table. ConfigError or FolderError, one line, where there are
    none."""
    words = table.parse_map(mapping)
    if path.is_dir() or not path.exists() or path.name == "records.jsonl":
        if words or prompt is not None or output is not None:
            raise ConfigError("--map, --prompt-tokens and --output-tokens are for tables: a run says these itself")
        return _run(RunFolder.open(path.parent if path.name == "records.jsonl" else path))
    cells = table.cells_of(path, mapping=words, prompt=prompt, output=output)
    return Source(path.name, cells, None, None)


def _run(run: RunFolder) -> Source:
    samples, manifest = Samples(), manifest_of(run)
    summary = summary_of(run, samples.watch)
    endpoint, plan = (_part(manifest, name) for name in ("endpoint", "plan"))
    model, currency = endpoint.get("model") or manifest.get("model"), endpoint.get("currency")
    price_input, price_output = (number(endpoint, name) for name in ("price_input", "price_output"))
    slo = plan.get("slo")
    cells = [cell for cell in summary["cells"] if cell["stage"] is None]
    if summary["cells"] and not cells:
        raise ConfigError(
            f"{run.path.name} has stages only, each in the wake of another load: measure the loads as cells"
        )
    return Source(
        name=run.path.name,
        cells=cells,
        samples=samples,
        folder=run,
        model=model[:200] if isinstance(model, str) else None,
        slo=slo if isinstance(slo, str) else "",
        prices=Prices(currency[:8] if isinstance(currency, str) else "USD", price_input, price_output),
    )


def _part(manifest: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = manifest.get(name)
    return value if isinstance(value, Mapping) else {}
