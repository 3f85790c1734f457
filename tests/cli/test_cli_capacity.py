"""`loadkit capacity` and `loadkit estimate` as a user calls them."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from loadkit.cli.main import main
from loadkit.record.names import ExitCode

START = datetime(2026, 1, 1, tzinfo=UTC)
TABLE = """concurrency,TTFT (ms),ITL (ms),Throughput (tokens/s)
1,406.77,18.58,51.67
5,546.7,21.83,218.48
25,688.69,38.75,623.4
50,834.51,59.73,814.37
100,7996.25,92.91,917.26
150,34794.22,92.86,920.9
200,61680.22,93.06,920.54
250,88605.32,93.2,920.12
"""
LENGTHS = ("--prompt-tokens", "5000", "--output-tokens", "500")
SLO = ("--slo", "ttft=1s,itl=65ms")
HARDWARE = ("--card", "llama-3.3-70b", "--memory", "80GiB", "--gpus", "2", "--bits", "8", "--kv", "fp8")


@pytest.fixture
def call(capsys, tmp_path, monkeypatch):
    """Runs a verb in an empty folder; returns its exit code, output and errors."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nim.csv").write_text(TABLE)

    def run(*words):
        code = main(list(words))
        done = capsys.readouterr()
        return code, done.out, done.err

    return run


def row(tier, level, turn, stream, ttft):
    at = START + timedelta(seconds=1000 * level + tier + turn * (ttft + 100) / 1000)
    return {
        "kind": "request", "run_id": "r", "phase": "measure", "outcome": "ok", "cell": f"{tier}x{level}",
        "tier_tokens": tier, "concurrency": level, "round": turn + 1, "visit": level, "prompt_tokens": tier,
        "output_tokens": 11, "ttft_ms": ttft + stream / 10, "e2e_ms": ttft + 100, "done_ms": ttft + 100,
        "tpot_ms": 10.0, "itl_ms": [10.0] * 10, "hub_lag_max_ms": 0.1, "timestamp": at.isoformat(),
        "unit_price_ms": ttft / tier,
    }  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    """A run folder: 1K and 4K at three concurrencies, slots for four, prices and objectives in its manifest."""
    rows = [
        row(tier, level, turn, stream, (50 + 0.05 * tier) * max(1, level / 4))
        for tier in (1024, 2048, 4096)
        for level in (1, 4, 8)
        for turn in range(5)
        for stream in range(level)
    ]
    path = tmp_path / "run"
    path.mkdir()
    (path / "records.jsonl").write_text(
        "".join(json.dumps(each) + "\n" for each in [{"kind": "header", "schema": "loadkit-records/1"}, *rows])
    )
    endpoint = {"model": "m", "price_input": 0.5, "price_output": 2.0, "currency": "EUR"}
    manifest = {"run_id": "r", "plan": {"slo": "ttft=300ms,tpot=20ms"}, "endpoint": endpoint}
    (path / "manifest.json").write_text(json.dumps(manifest))
    return path


def test_the_published_table_through_the_command(call, tmp_path):
    """7 replicas, 8 with headroom and 8 with one to spare, 87 running against 86, by one command on a CSV file."""
    words = ("nim.csv", *LENGTHS, *SLO, *HARDWARE, "--rate", "10", "--gpu-hour", "2.5", "--out", "o")
    code, out, err = call("capacity", *words)
    text = " ".join(out.split())
    assert code == ExitCode.COMPLETE
    assert "10 requests/s take 7 replicas at full use, 8 with headroom 1.2, 8 when one may be lost: run 8" in text
    assert "87 sequences ran at the plateau and the cache formula gives 86" in text
    assert "up to 50 streams TTFT grows no faster than the load; from there to 100 it grows faster" in text
    assert {path.name for path in (tmp_path / "o").iterdir()} == {
        f"capacity.{kind}" for kind in ("json", "csv", "md", "html")
    }
    assert "written: capacity.json" in err
    saved = json.loads((tmp_path / "o" / "capacity.json").read_text())
    value = {figure["key"]: figure["value"] for figure in saved["figures"]}
    assert value["5000.goodput"] == pytest.approx(1.6287, abs=1e-4)
    for objective, load in (("ttft=1s,itl=40ms", "25"), ("ttft=300ms,itl=40ms", None)):
        _, out, _ = call("capacity", "nim.csv", *LENGTHS, "--slo", objective, "--json")
        tier = json.loads(out)["tiers"][0]
        assert tier["load"] == (None if load is None else float(load))


def test_a_run_is_sized_with_its_own_objectives_and_prices(call, folder):
    """Objectives of the plan, prices of the endpoint, intervals from the requests; the files go into the folder."""
    code, out, _ = call(
        "capacity", str(folder), "--rate", "40", "--mix", "1K:0.7,4K/21:0.3", "--gpu-hour", "2", "--json"
    )
    found = json.loads(out)
    assert code == ExitCode.COMPLETE
    assert [tier["load"] for tier in found["tiers"]] == [8.0, 4.0]
    value = {figure["key"]: figure for figure in found["figures"]}
    assert value["1K.goodput"]["low"] <= value["1K.goodput"]["value"] <= value["1K.goodput"]["high"]
    assert value["replicas.work"]["low"] <= value["replicas.work"]["value"] <= value["replicas.work"]["high"]
    assert value["1K.price_per_million"]["unit"] == "EUR"
    assert (folder / "capacity.html").stat().st_size > 100_000
    assert "4K/21" in (folder / "capacity.md").read_text()


def test_stages_are_no_cells_of_the_curve(call, folder):
    """A stage comes in the wake of another load: beside cells of the same streams it changes no answer, alone it is
    none."""
    asked = ("capacity", str(folder), "--rate", "40", "--mix", "1K:0.7,4K:0.3", "--json")
    path = folder / "records.jsonl"
    before = json.loads(call(*asked)[1])
    wake = {"stage": 2, "cell": "1024x4#2"}
    staged = [row(1024, 4, turn, stream, 5000) | wake for turn in range(5) for stream in range(4)]
    lines = [json.dumps(each) + "\n" for each in staged]
    text = path.read_text()
    path.write_text(text + "".join(lines))
    after = json.loads(call(*asked)[1])
    assert (after["tiers"], after["figures"]) == (before["tiers"], before["figures"])
    path.write_text(text.splitlines(keepends=True)[0] + "".join(lines))
    code, _, err = call(*asked)
    assert (code, err.count("\n"), "stages only" in err) == (ExitCode.USAGE, 1, True)


def test_explain_prints_formula_and_inputs(call, folder):
    """Every number of the answer, and the columns of the tables."""
    _, out, _ = call("capacity", str(folder), "--rate", "40", "--mix", "1K:1", "--explain")
    text = " ".join(out.split())
    assert "replicas.headroom: replicas with headroom 1.2 =" in text
    assert "= ceil(1.2 x work) with work =" in text
    assert "column in flight by Little:" in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((*SLO, "--rate", "-1"), "--rate -1"),
        ((*SLO, "--rate", "many"), "must be a number"),
        ((*SLO, "--rate", "nan"), "must be a number"),
        ((*SLO, "--mix", "4K:0.5"), "add up to 0.5"),
        ((*SLO, "--mix", "8K:1"), "longer than any tier"),
        ((*SLO, "--gpus", "0"), "above 0"),
        ((*SLO, "--memory", "80GiB"), "go together"),
        ((*SLO, "--card", "llama-3-8b", "--memory=-8GB"), "no size above 0"),
        ((*SLO, "--card", "llama-3-8b", "--memory", "80GB", "--memory-use", "1.5"), "share of memory"),
        ((*SLO, "--card", "no-such-model", "--memory", "8GB"), "no model card"),
        ((*SLO, "--card", "llama-3-8b", "--memory", "8GB", "--kv", "fp9"), "--kv 'fp9'"),
        ((*SLO, "--bits", "8"), "--bits goes with --card"),
        ((*SLO, "--price-input", "1"), "go together"),
        ((*SLO, "--currency", "$$"), "short name"),
        (("--slo", "ttft=fast"), "--slo"),
        ((), "no objective"),
    ],
)
def test_wrong_input_is_one_line_and_exit_2(call, words, said):
    """Named, never computed; and nothing is written."""
    code, out, err = call("capacity", "nim.csv", *LENGTHS, *words)
    assert (code, out) == (ExitCode.USAGE, "")
    assert said in err
    assert len(err.splitlines()) == 1


def test_options_of_tables_do_not_go_with_a_run(call, folder):
    """A run says its own lengths."""
    code, _, err = call("capacity", str(folder), "--prompt-tokens", "5")
    assert code == ExitCode.USAGE
    assert "are for tables" in err


def test_one_prompt_is_estimated_from_the_prices_of_a_run(call, folder):
    """Between 1K and 2K at (50 + 0.05 n) ms, with its interval, its answer and its cost."""
    code, out, _ = call(
        "estimate", "--from", str(folder), "--tokens", "1536", "--max-tokens", "11", "--price-input", "1",
        "--price-output", "2", "--json",
    )  # fmt: skip
    (group,) = json.loads(out)["groups"]
    assert code == ExitCode.COMPLETE
    assert group["ttft_ms"]["value"] == pytest.approx(50 + 0.05 * 1536, rel=0.01)
    assert group["ttft_ms"]["low"] <= group["ttft_ms"]["value"] <= group["ttft_ms"]["high"]
    assert group["total_ms"]["value"] == pytest.approx(group["ttft_ms"]["value"] + 100)
    assert group["cost"] == pytest.approx((1536 + 22) / 1e6)
    _, out, _ = call("estimate", "--from", str(folder), "--tokens", "1536")
    assert "on the line between 1024 and 2048 tokens" in out


def test_a_plan_is_estimated_from_a_run_a_card_or_an_assumption(call, folder):
    """Tokens and time with both ends; where its speed comes from; money from prices. No key and no server is needed."""
    plan = ("http://127.0.0.1:9", "--model", "m", "--tiers", "1K,4K", "--concurrency", "1,4", "--max-tokens", "11")
    card = ("--predict", "llama-3-8b", "--gpu-flops", "990e12", "--gpu-bandwidth", "3.35TB")
    sources = ((("--from", str(folder)), "measured in"), (card, "predicted from the card"), ((), "assumed"))
    for more, said in sources:
        code, out, _ = call("estimate", *plan, *more, "--price-input", "1", "--price-output", "2", "--json")
        found = json.loads(out)
        assert code == ExitCode.COMPLETE
        assert said in found["speed"]
        assert 0 < found["seconds"]["low"] <= found["seconds"]["value"] <= found["seconds"]["high"]
        assert found["cost"] == pytest.approx((found["prompt_tokens"] + 2 * found["output_tokens"]) / 1e6)
    _, out, _ = call("estimate", *plan)
    assert "Cost:     unknown; give --price-input" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--tokens", "0"), "unknown tier"),
        (("--tokens", "5", "--predict", "x"), "leave --predict out"),
        (("--predict", "llama-3-8b"), "needs --gpu-flops"),
        (("--predict", "llama-3-8b", "--from", "x"), "keep one"),
        (("--predict", "llama-3-8b", "--gpu-flops", "-1", "--gpu-bandwidth", "1TB"), "FLOP/s must be"),
        (("--price-input", "1"), "go together"),
        (("--price-input", "-1", "--price-output", "1"), "0 or more"),
        (("--from", "nowhere", "--tokens", "5"), "nowhere"),
        (("--from", "nim.csv", "--tokens", "5", "--bos", "x"), "--bos"),
    ],
)
def test_a_wrong_estimate_is_one_line_and_exit_2(call, words, said):
    """The option that is wrong, by name."""
    code, out, err = call("estimate", *words)
    assert (code, out) == (ExitCode.USAGE, "")
    assert said in err
    assert len(err.splitlines()) == 1
