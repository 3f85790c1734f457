"""Numbers recomputed from a file: the reference rows, BOS, units, prices that are none, and every formula."""

import csv
import io
import json
import math
import re
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadkit.analysis.diff import ByRound, diff
from loadkit.analysis.offline.analyse import analyse
from loadkit.analysis.offline.bos import tokens_of
from loadkit.analysis.offline.recompute import recomputed
from loadkit.analysis.offline.table import read
from loadkit.analysis.peers.compare import Definitions
from loadkit.analysis.summary import summarise
from loadkit.plan.errors import ConfigError
from loadkit.record import jsonl
from loadkit.record.errors import FolderError
from loadkit.record.record import Record
from loadkit.report import analyze_table

GOLDEN = Path(__file__).parent / "golden" / "eng_ctxscale.json"
# model, real tokens, ms per token as published, TPOT ms
ROWS = [
    ("Qwen2.5-0.5B", 123, 65.6, 65.4),
    ("Qwen2.5-0.5B", 279, 66.6, 70.7),
    ("Qwen2.5-0.5B", 539, 68.7, 68.7),
    ("Qwen2.5-0.5B", 799, 68.4, 88.7),
    ("Qwen2.5-0.5B", 1059, 70.9, 73.1),
    ("Qwen2.5-0.5B", 1527, 71.3, 73.7),
    ("Qwen2.5-1.5B", 539, 169.3, 167.5),
    ("Qwen2.5-1.5B", 1527, 184.6, 193.6),
]


def analysed(path, bos=None, *mapping, explain=False):
    """analyse() with the words of the command line."""
    return analyse(Path(path), bos=bos, mapping=mapping, explain=explain)


def cells_of(found):
    """(model, cell) of every group."""
    return [(group["group"]["model"], cell) for group in found["groups"] for cell in group["summary"]["cells"]]


def written(path, rows):
    """A JSON file of rows."""
    path.write_text(json.dumps(rows))
    return path


def test_the_eight_reference_rows():
    """Model, real tokens and TPOT as published, the price within 0.1 ms per token."""
    found = [
        (model, cell["prefilled_tokens"], cell["unit_price_ms"], cell["tpot_ms"]["p50"])
        for model, cell in cells_of(analysed(GOLDEN, 1))
    ]
    assert [row[:2] + row[3:] for row in found] == [row[:2] + row[3:] for row in ROWS]
    assert all(abs(mine[2] - theirs[2]) < 0.1 for mine, theirs in zip(found, ROWS, strict=True))
    assert [round(row[2], 2) for row in found] == [65.53, 66.63, 68.66, 68.36, 70.92, 71.26, 169.29, 184.64]


def test_growth_and_ratio_of_the_reference_rows():
    """0.5B: exponent 1.034, R2 0.9996, drift +8.7 %; 1.5B costs 2.47 and 2.59 times as much at equal length."""
    found = analysed(GOLDEN, 1)
    price = found["groups"][0]["summary"]["price"]
    assert (round(price["slope"], 4), round(price["r2_linear"], 4), round(price["drift"], 3)) == (1.0342, 0.9996, 0.087)
    assert [(row["tokens"], round(row["ratio"], 2)) for row in found["ratios"]] == [(539, 2.47), (1527, 2.59)]


def test_bos_is_not_guessed():
    """The golden file does not say how many BOS tokens there are: one line with the option that settles it."""
    with pytest.raises(ConfigError, match=r"tokens_with_bos holds BOS tokens and nothing says how many: give --bos N"):
        analysed(GOLDEN)


@pytest.mark.parametrize(
    ("row", "given", "expected"),
    [
        ({"tokens_with_bos": 124}, 1, (124, 1)),
        ({"tokens_with_bos": 124}, 0, (124, 0)),
        ({"tokens_with_bos": 124, "tokens_without_bos": 123}, None, (124, 1)),
        ({"tokens_with_bos": 123, "tokens_without_bos": 123}, None, (123, 0)),
        ({"tokens_with_bos": 124, "real_tokens": 123}, None, (124, 1)),
        ({"tokens_with_bos": 124, "bos_added": True}, None, (124, 1)),
        ({"tokens_with_bos": 123, "bos_added": False}, None, (123, 0)),
        ({"tokens_without_bos": 123}, None, (123, 0)),
        ({"tokens_without_bos": 123}, 0, (123, 0)),
        ({"prompt_tokens": 124, "bos_tokens": 1}, None, (124, 1)),
        ({"prompt_tokens": 124, "bos_tokens": 1}, 1, (124, 1)),
        ({"prompt_tokens": 124}, 1, (124, 1)),
        ({"real_tokens": 123}, 0, (123, 0)),
        ({"real_tokens": 123, "bos_policy": "excluded"}, None, (123, 0)),
        ({"target_tokens": 100}, None, (None, None)),
    ],
)
def test_bos_found_in_the_data_or_given(row, given, expected):
    """(prompt tokens, BOS inside) by what the row says, or by --bos where it says nothing."""
    assert tokens_of(row, given) == expected


@pytest.mark.parametrize(
    ("row", "given", "says"),
    [
        ({"tokens_with_bos": 124}, None, "--bos N"),
        ({"prompt_tokens": 124}, None, "--bos N"),
        ({"real_tokens": 123}, None, "--bos N"),
        ({"real_tokens": 123, "bos_added": True}, None, "--bos N"),
        ({"tokens_with_bos": 123, "real_tokens": 123}, None, "--bos N"),
        ({"tokens_without_bos": 123}, 1, "--bos 1, but by the token columns it is 0"),
        ({"prompt_tokens": 124, "bos_tokens": 1}, 0, "--bos 0, but by the file it is 1"),
        (
            {"tokens_with_bos": 120, "tokens_without_bos": 123},
            None,
            "by the token columns there are -3 BOS tokens",
        ),
    ],
)
def test_bos_that_is_not_settled_is_an_error(row, given, says):
    """Unknown, subtracted twice, or contradicted: ConfigError."""
    with pytest.raises(ConfigError, match=says):
        tokens_of(row, given)


def test_a_target_length_gives_no_price():
    """100 was aimed at and 123 read: 80.6 against 65.53, 23 % off, warned; under 5 % is shown without a warning."""
    group = analysed(GOLDEN, 1)["groups"][0]
    first, last = group["prices"][0], group["prices"][-1]
    assert round(first["target"]["ms_per_token"], 2) == 80.6
    assert round(first["target"]["difference"], 3) == 0.23
    assert round(last["target"]["difference"], 3) == 0.018
    assert group["warnings"] == [
        "Warning: a target length gives no unit price: 80.6 instead of 65.53 ms per token in 100x1 (+23.0 %); "
        "more than 5 % off in 5 cells."
    ]


def test_the_total_time_gives_no_price(tmp_path):
    """8.06 s to the first token and 8.65 s in all: the total is 7.3 % off at 123 tokens and is no price."""
    row = {"model": "m", "tokens_without_bos": 123, "ttft_s": 8.06, "total_s": 8.06 + 9 * 0.0654}
    group = analysed(written(tmp_path / "a.json", [row]))["groups"][0]
    assert group["summary"]["cells"][0]["unit_price_ms"] == pytest.approx(65.528, abs=1e-3)
    assert group["prices"][0]["target"] is None
    assert round(group["prices"][0]["total"]["ms_per_token"], 1) == 70.3
    assert (
        "the total time gives no unit price: 70.31 instead of 65.53 ms per token in 123x1 (+7.3 %)"
        in (group["warnings"][0])
    )


def test_targets_alone_give_no_price_at_all(tmp_path):
    """Where nobody counted what was read there is no price, and a note says why; --bos is not asked for."""
    found = analysed(written(tmp_path / "a.json", [{"target_tokens": 100, "ttft_s": 8.06}]))
    assert found["groups"][0]["summary"]["cells"][0]["unit_price_ms"] is None
    assert found["groups"][0]["prices"] == []
    assert any("no price is worked out" in note for note in found["notes"])


SAME = [{"Model": "m", "target tokens": 100, "tokens with BOS": 124, "TTFT (s)": 8.06, "TPOT (ms)": 65.4}]


def _csv(path, separator):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(SAME[0]), delimiter=separator)
        writer.writeheader()
        writer.writerows(SAME)


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("a.json", lambda path: path.write_text(json.dumps(SAME))),
        ("a.json", lambda path: path.write_text(json.dumps({"note": "x", "results": SAME}))),
        (
            "a.json",
            lambda path: path.write_text(json.dumps({"m": [{k: v for k, v in SAME[0].items() if k != "Model"}]})),
        ),
        ("a.json", lambda path: path.write_text("\ufeff" + json.dumps(SAME))),
        ("a.jsonl", lambda path: path.write_text("\n".join(map(json.dumps, SAME)) + '\n{"cut')),
        ("a.csv", lambda path: _csv(path, ",")),
        ("a.csv", lambda path: _csv(path, ";")),
        ("a.tsv", lambda path: _csv(path, "\t")),
    ],
    ids=["list", "object", "by model", "byte order mark", "lines", "comma", "semicolon", "tab"],
)
def test_one_row_in_many_shapes(tmp_path, name, write):
    """JSON flat or nested, JSON lines with a damaged end, CSV with any separator, names as people write them."""
    write(tmp_path / name)
    ((model, cell),) = cells_of(analysed(tmp_path / name, 1))
    assert (model, cell["cell"], cell["ttft_ms"]["p50"], cell["tpot_ms"]["p50"]) == ("m", "100x1", 8060, 65.4)
    assert round(cell["unit_price_ms"], 2) == 65.53


def test_other_names_are_mapped(tmp_path):
    """--map gives meaning to any column, and the notes say what was taken for what."""
    path = written(tmp_path / "a.json", [{"who": "m", "len": 123, "first": 8060}])
    found = analysed(path, None, "model=who", "tokens_without_bos=len", "ttft_ms=first")
    assert [(model, round(cell["unit_price_ms"], 2)) for model, cell in cells_of(found)] == [("m", 65.53)]
    assert "ttft_ms is column 'first'." in found["notes"]


@pytest.mark.parametrize(
    ("row", "mapping", "says"),
    [
        ({"ttft": 8.06, "tokens": 1}, [], "column 'ttft' does not say its unit: give --map ttft_s=ttft"),
        ({"x": 1, "tokens": 1}, [], "no column is a TTFT; there are 'x', 'tokens'"),
        ({"ttft_s": 8.06, "TTFT (s)": 1}, [], "both mean ttft_s: choose with --map ttft_s=COLUMN"),
        ({"ttft_s": 8.06}, ["tokens"], "--map tokens: give FIELD=COLUMN"),
        ({"ttft_s": 8.06}, ["length=x"], "FIELD one of model"),
        ({"ttft_s": 8.06}, ["model=a", "model=b"], "--map names model twice"),
        ({"ttft_s": 8.06}, ["model=nobody"], "there is no column 'nobody'; there are 'ttft_s'"),
        ({"ttft_s": 8.06}, [], "no column is a length in tokens; there are 'ttft_s': name it"),
        ({"ttft_s": 0, "target_tokens": 100}, [], "no row has both"),
    ],
)
def test_what_cannot_be_read_is_one_line(tmp_path, row, mapping, says):
    """No unit, no TTFT, two meanings, a wrong --map, nothing usable."""
    with pytest.raises(ConfigError) as error:
        analysed(written(tmp_path / "a.json", [row]), 1, *mapping)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["", "[]", "{}", "not json", "[1, 2]", '{"kind": 3}', "\x00\xff", "[" * 100_000])
@pytest.mark.parametrize("name", ["a.json", "a.csv"])
def test_any_bytes_are_one_line(tmp_path, name, text):
    """Whatever the file holds: ConfigError, never another exception."""
    (tmp_path / name).write_text(text, encoding="latin-1")
    with pytest.raises(ConfigError):
        analysed(tmp_path / name)


def test_models_and_machines_are_not_mixed(tmp_path):
    """Three rounds on one machine and one on another: two groups, rounds counted apart."""
    rows = [
        {"model": "m", "machine": h, "tokens_without_bos": 100, "ttft_ms": t}
        for h, t in zip("aaab", (1, 2, 3, 99), strict=True)
    ]
    found = analysed(written(tmp_path / "a.json", rows))
    assert [
        (g["group"]["hardware"], c["rounds"], c["ttft_ms"]["p50"])
        for g in found["groups"]
        for c in g["summary"]["cells"]
    ] == [
        ("a", 3, 2),
        ("b", 1, 99),
    ]
    assert found["ratios"] == []


def test_a_row_without_an_answer_counts_as_a_failure(tmp_path):
    """A length that gave no TTFT stays in n and out of every percentile."""
    rows = [{"target_tokens": 100, "ttft_ms": 5.0}, {"target_tokens": 100, "ttft_ms": None}, {"note": "x"}]
    found = analysed(written(tmp_path / "a.json", rows))
    ((_, cell),) = cells_of(found)
    assert (cell["n"], cell["ok"], cell["outcomes"]) == (2, 1, {"ok": 1, "unknown": 1})
    assert "1 rows name no length in tokens and are left out." in found["notes"]


@pytest.fixture
def run(tmp_path, ladder):
    """A run folder with three rounds of three tiers, BOS known, and a manifest."""
    with jsonl.Writer(tmp_path / "records.jsonl") as writer:
        writer.header(jsonl.header())
        for row in ladder({128: 100.0, 256: 210.0, 512: 440.0}, bos_tokens=1):
            price = row["ttft_ms"] / (row["prompt_tokens"] - 1)
            writer.write({**row, "decode_ms": row["last_token_ms"] - row["ttft_ms"], "unit_price_ms": price})
    (tmp_path / "manifest.json").write_text(json.dumps({"run_id": "run-1", "visits": []}))
    return tmp_path


def test_a_run_folder_gives_its_own_summary(run):
    """Nothing is lost or changed on the way: the summary is that of the report; the file alone gives the same cells."""
    rows = jsonl.read(run / "records.jsonl").records
    expected = summarise(rows, {"run_id": "run-1", "visits": []})
    found = analysed(run)
    (group,) = found["groups"]
    assert {k: v for k, v in group["summary"].items() if k != "records_schema"} == {
        k: v for k, v in expected.items() if k != "records_schema"
    }
    assert found["notes"] == []
    shutil.copy(run / "records.jsonl", run / "alone.jsonl")
    assert analysed(run / "alone.jsonl")["groups"][0]["summary"]["cells"] == expected["cells"]


def test_stored_values_are_not_believed(run):
    """A TPOT and a price that somebody wrote into the file are worked out again, and it is said."""
    text = (run / "records.jsonl").read_text()
    (run / "records.jsonl").write_text(text.replace('"tpot_ms":10.0', '"tpot_ms":3.0'))
    found = analysed(run)
    assert [cell["tpot_ms"]["p50"] for _, cell in cells_of(found)] == [10.0] * 3
    assert found["notes"] == ["9 stored tpot_ms are not what their marks give; the marks were used."]


def test_a_run_that_does_not_know_its_bos_is_refused(run):
    """A remote endpoint may not tell: --bos settles it, and two that contradict each other are an error."""
    with pytest.raises(ConfigError, match="--bos 0, but by the file it is 1"):
        analysed(run, 0)
    text = (run / "records.jsonl").read_text()
    (run / "records.jsonl").write_text(text.replace('"bos_tokens":1', '"bos_tokens":null'))
    with pytest.raises(ConfigError, match=r"prompt_tokens may or may not hold BOS tokens.*--bos N"):
        analysed(run)
    assert round(cells_of(analysed(run, 1))[0][1]["unit_price_ms"], 6) == round(100 / 127, 6)


def test_a_truncated_file_and_one_of_another_schema(run):
    """A cut last line is counted and left out; a later schema is refused by name; no request is an error."""
    path = run / "records.jsonl"
    path.write_bytes(path.read_bytes()[:-40])
    found = analysed(run)
    assert sum(cell["n"] for _, cell in cells_of(found)) == 8
    assert found["notes"] == ["1 lines of the file are damaged and left out."]
    path.write_text('{"kind":"header","schema":"loadkit-records/9"}\n')
    with pytest.raises(ConfigError, match="schema 'loadkit-records/9'; this version reads loadkit-records/1"):
        analysed(run)
    path.write_text(json.dumps(jsonl.header()) + "\n")
    with pytest.raises(ConfigError, match="holds no request"):
        analysed(run)
    with pytest.raises(ConfigError, match="--map is for files of other tools"):
        analysed(run, None, "model=x")
    with pytest.raises(FolderError, match="cannot read"):
        analysed(run / "nothing.json")


def test_every_number_is_explained(run):
    """Each traced value of a request follows from its inputs, and every number of the cells is among them."""
    found = analysed(run, explain=True)
    (group,) = found["groups"]
    cells = {cell["cell"]: cell for cell in group["summary"]["cells"]}
    rows = group["trace"]
    assert {row["number"] for row in rows if row["cell"] == "128x1"} >= {
        "ttft_ms", "tpot_ms", "e2e_ms", "itl_ms", "unit_price_ms", "prefill_tokens_per_s", "decode_tokens_per_s",
        "prefill_share", "prefill_ms_per_1k", "requests_per_s", "output_tokens_per_s", "total_tokens_per_s",
    }  # fmt: skip
    for row in rows:
        if row["number"] == "unit_price_ms":
            assert (
                row["inputs"]["ttft_ms"] / (row["inputs"]["prompt_tokens"] - row["inputs"]["bos_tokens"])
                == row["value"]
            )
            assert row["value"] == cells[row["cell"]]["unit_price_ms"]
        if row["number"] == "tpot_ms" and row["statistic"] != "mean":
            marks = row["inputs"]
            later = marks["output_tokens"] - marks["first_event_tokens"]
            assert (marks["last_token_ms"] - marks["ttft_ms"]) / later == row["value"]
    assert {row["number"] for row in rows if row["cell"] == "growth"} >= {"exponent", "r2_linear"}


NANOSECOND = 1e-6  # in ms: no clock of ours tells less apart


@settings(deadline=None)
@given(
    st.floats(1, 1e6),
    st.just(0.0) | st.floats(NANOSECOND, 1e6),
    st.integers(1, 1000),
    st.integers(2, 10**6),
    st.integers(0, 1),
)
def test_recomputing_is_the_definition_and_settles(ttft, decode, output, prompt, bos):
    """From marks alone; recomputed once more nothing changes, and nothing is negative or not a number."""
    record = {"ttft_ms": ttft, "last_token_ms": ttft + decode, "output_tokens": output, "prompt_tokens": prompt}
    first, _ = recomputed(record, bos)
    second, changed = recomputed(first, None)
    assert (second, changed) == (first, [])
    assert first["unit_price_ms"] == ttft / (prompt - bos)
    assert all(math.isfinite(value) and value >= 0 for value in first.values() if value is not None)


def test_marks_that_contradict_each_other_give_no_tpot():
    """A last token before the first is damage: no TPOT, no error."""
    record, _ = recomputed({"ttft_ms": 10.0, "last_token_ms": 5.0, "output_tokens": 3}, None)
    assert record["tpot_ms"] is None


@settings(deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
def test_any_json_is_read(tmp_path_factory, value):
    """Rows are flat whatever is nested in what."""
    path = tmp_path_factory.mktemp("any") / "a.json"
    path.write_text(json.dumps(value))
    try:
        rows = read(path)
    except ConfigError:
        return
    assert all(not isinstance(item, (list, dict)) for row in rows for item in row.values())


RECORDS = [
    Record(
        run_id="r",
        request_id=f"r{i}",
        model="m",
        cell="64x1",
        tier_tokens=64,
        target_tokens=64,
        concurrency=1,
        round=i,
        visit=i,
        phase="measure",
        outcome="ok",
        start_ms=1000.0 * i,
        prompt_tokens=64,
        bos_tokens=1,
        output_tokens=3,
        ttft_ms=100.0,
        ttft_content_ms=100.0,
        last_token_ms=120.0,
        done_ms=125.0,
        itl_ms=[10.0, 10.0],
        event_read=[0, 1, 2],
    ).to_json()
    for i in (1, 2, 3)
]
JUNK = st.sampled_from([None, 0, -1, 1e300, "x", True, [], {}, [1, "a"], [None], -5.5, 1e14])


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_damaged_records_are_analysed_or_refused(tmp_path_factory, data):
    """Any field replaced by anything: a report with its trace, or a ConfigError, which is one line by itself."""
    rows = [{"kind": "request", **row} for row in RECORDS]
    for row in rows:
        for name in data.draw(st.lists(st.sampled_from(sorted(row.keys() - {"kind"})), max_size=3)):
            row[name] = data.draw(JUNK)
    path = tmp_path_factory.mktemp("damaged") / "records.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    try:
        found = analysed(path, explain=True)
    except ConfigError:
        return
    json.dumps(found, allow_nan=False)
    analyze_table.show(found, stream=io.StringIO(), width=80)
    definitions, rounds = Definitions(), ByRound()
    summary = summarise(rounds.watch(definitions.watch(rows)))
    json.dumps([definitions.compare(summary), diff(rounds.cells(), summary, rounds.cells(), summary)], allow_nan=False)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("tokens,ttft_ms\n100,5\n", "no column is a length in tokens; there are 'tokens', 'ttft_ms'"),
        ("prompt_tokens,ttft_ms\n1," + "9" * 200_000 + "\n", "the CSV cannot be read: field larger than"),
    ],
)
def test_a_table_that_gives_nothing_says_what_to_change(tmp_path, text, says):
    """A length column of an unknown name is asked for by its option; a broken CSV says how it is broken."""
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(ConfigError, match=re.escape(says)):
        analyse(path, bos=0, mapping=[], explain=False)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_may_end_in_any_way(tmp_path, end):
    """Old spreadsheets write a carriage return alone."""
    path = tmp_path / "t.csv"
    path.write_bytes(end.join(["prompt_tokens,ttft_ms", "100,5", "200,9"]).encode())
    (group,) = analyse(path, bos=0, mapping=[], explain=False)["groups"]
    assert [row["unit_price_ms"] for row in group["prices"]] == [0.05, 0.045]
