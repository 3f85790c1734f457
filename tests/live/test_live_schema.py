"""The dashboards held against the types that Grafana publishes of them, with the compiler that those are written for.

`@grafana/schema` of 10 to 13, each by its last version: the dashboard, and the options of every kind of panel. Those
of 9 are of what its own program keeps in memory, not of a file. Nothing here loads a dashboard: that the types take it
is all that is shown.
"""

import copy
import json
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from hashlib import sha256
from pathlib import Path

import pytest

from loadkit.live.dashboards.files import DASHBOARDS

VERSIONS = (10, 11, 12, 13)
QUERIES = 10  # the last version whose package has the type of a query to Prometheus
PACKAGES = Path(__file__).with_name("schema")
KINDS = {"timeseries": "TimeSeries", "stat": "Stat", "bargauge": "BarGauge", "heatmap": "Heatmap", "table": "Table"}
# The types have enums where a file has their values, and want every option where a file has those that are no defaults.
# They leave out what Grafana hands on to a datasource, and what only a variable of the kind `interval` has.
TYPES = """
type Plain<T> = T extends string ? `${T}` : T extends number | boolean | null | undefined ? T
  : T extends (infer E)[] ? Plain<E>[] : T extends object ? { [K in keyof T]: Plain<T[K]> } : T;
type Some<T> = T extends (infer E)[] ? Some<E>[] : T extends object ? { [K in keyof T]?: Some<T[K]> } : T;
type Published = Required<Plain<Dashboard>>;
type Mark = NonNullable<Published['annotations']['list']>[number];
type Query = { expr?: string; step?: string; titleFormat?: string; textFormat?: string; tagKeys?: string;
  useValueForTime?: boolean };
type Variable = NonNullable<Published['templating']['list']>[number];
type Interval = { auto?: boolean; auto_count?: number; auto_min?: string };
type Board = Omit<Plain<Dashboard>, 'annotations' | 'templating'>
  & { annotations: { list: (Mark & Query)[] }; templating: { list: (Variable & Interval)[] } };
"""
ERROR = re.compile(r"^([\w-]+)\.ts\(\d+,\d+\): error (.*)$", re.MULTILINE)
MADE = {name: make().to_json() for name, make in DASHBOARDS.items()}


def drawn(board):
    """Its panels, also those in folded rows."""
    for panel in board["panels"]:
        yield from panel.get("panels") or ([panel] if panel["type"] != "row" else [])


def small():
    """The live dashboard with the first panel of each kind."""
    board = copy.deepcopy(MADE["loadkit-live"])
    board["panels"] = list({panel["type"]: panel for panel in reversed([*drawn(board)])}.values())
    assert {panel["type"] for panel in board["panels"]} == set(KINDS)
    return board


def with_fault(value, *path):
    """The small dashboard with another value where the path leads; it may begin with a kind of panel."""
    board = small()
    *way, last = path
    place = board
    if way and way[0] in KINDS:
        kind = way.pop(0)
        (place,) = [panel for panel in board["panels"] if panel["type"] == kind]
    for step in way:
        place = place[step]
    place[last] = value
    return board


FAULTS = {
    "text-for-a-number": with_fault("39", "schemaVersion"),
    "unknown-key": with_fault({"h": 8, "w": 12, "x": 0, "y": 0}, "stat", "gridpos"),
    "unknown-key-of-a-mark": with_fault("red", "annotations", "list", 1, "iconcolor"),
    "unknown-key-of-a-variable": with_fault(True, "templating", "list", 1, "multiple"),
    "unknown-option": with_fault({}, "stat", "options", "reduceOption"),
    "timeseries": with_fault("tables", "timeseries", "options", "legend", "displayMode"),
    "timeseries-field": with_fault("dots", "timeseries", "fieldConfig", "defaults", "custom", "drawStyle"),
    "stat": with_fault("red", "stat", "options", "colorMode"),
    "bargauge": with_fault("lcdd", "bargauge", "options", "displayMode"),
    "heatmap": with_fault("middle", "heatmap", "options", "yAxis", "axisPlacement"),
    "table": with_fault("tiny", "table", "options", "cellHeight"),
}
SOUND = {**MADE, "small": small()}


def source(board, version):
    """TypeScript that says what type each part of a dashboard is to have."""
    lines = ["import type { Dashboard } from '@grafana/schema';", TYPES]
    lines += [
        f"import type * as {kind} from 'panels/{kind}/panelcfg/x/{name}PanelCfg_types.gen';"
        for kind, name in KINDS.items()
    ]
    lines.append(f"export const board: Board = {json.dumps(board)};")
    for panel in drawn(board):
        kind, custom = panel["type"], panel["fieldConfig"]["defaults"].get("custom")
        lines.append(
            f"export const options{panel['id']}: Some<Plain<{kind}.Options>> = {json.dumps(panel['options'])};"
        )
        if custom:
            lines.append(f"export const custom{panel['id']}: Some<Plain<{kind}.FieldConfig>> = {json.dumps(custom)};")
    if version == QUERIES:
        lines.append("import type * as asked from 'panels/prometheus/dataquery/x/PrometheusDataQuery_types.gen';")
        targets = [target for panel in drawn(board) for target in panel["targets"]]
        lines.append(f"export const targets: Plain<asked.PrometheusDataQuery>[] = {json.dumps(targets)};")
    return "\n".join(lines)


@pytest.fixture(scope="module")
def packages():
    """A folder with the packages that `schema/package-lock.json` names, installed once."""
    missing = [name for name in ("node", "npm") if not shutil.which(name)]
    if missing:
        pytest.skip(f"the types of Grafana need {' and '.join(missing)}")
    lock = (PACKAGES / "package-lock.json").read_bytes()
    folder = Path(sys.prefix) / "share" / f"grafana-types-{sha256(lock).hexdigest()[:16]}"
    if not folder.exists():
        fresh = folder.with_name(f"{folder.name}.new")
        shutil.copytree(PACKAGES, fresh, dirs_exist_ok=True)
        command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        done = subprocess.run(command, cwd=fresh, capture_output=True, text=True, timeout=100, check=False)
        if done.returncode:
            pytest.skip(f"npm cannot get the types of Grafana: {done.stderr.strip()[-200:]}")
        fresh.rename(folder)
    return folder


@pytest.fixture(scope="module", params=VERSIONS)
def complaints(request, packages, tmp_path_factory):
    """Name of a dashboard -> what the types of one version of Grafana say against it."""
    version, folder = request.param, tmp_path_factory.mktemp("typed")
    package = packages / "node_modules" / f"grafana-{version}"
    for name, board in {**SOUND, **FAULTS}.items():
        (folder / f"{name}.ts").write_text(source(board, version))
    options = {
        "noEmit": True,
        "strict": True,
        "skipLibCheck": True,
        "target": "es2022",
        "module": "esnext",
        "moduleResolution": "bundler",
        "types": [],
        "paths": {"@grafana/schema": [str(package)], "panels/*": [f"{package}/dist/esm/raw/composable/*"]},
    }
    (folder / "tsconfig.json").write_text(json.dumps({"compilerOptions": options, "include": ["*.ts"]}))
    command = ["node", packages / "node_modules/typescript/bin/tsc", "--pretty", "false"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100, check=False)
    found = defaultdict(list)
    for name, text in ERROR.findall(done.stdout):
        found[name].append(text)
    assert found, done.stdout + done.stderr
    return found


@pytest.mark.parametrize("name", SOUND)
def test_the_types_take_a_dashboard(complaints, name):
    """No unknown key, no wrong type, no value that an option does not have."""
    assert complaints.get(name, []) == []


@pytest.mark.parametrize("name", FAULTS)
def test_the_types_do_not_take_a_fault(complaints, name):
    """One slip of the pen each, and nothing else is said against the dashboard."""
    assert len(complaints[name]) == 1
    assert not complaints[name][0].startswith("TS2307")  # a module that was not found
