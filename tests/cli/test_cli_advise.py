"""`loadkit advise`, `card`, `reconcile`, `callsites` and `whatif`, as a user calls them."""

import io
import json
import sys

import pytest

from loadkit.cli import main as entry
from loadkit.record.names import ExitCode

BIG = ["--engine", "vllm", "--memory", "80GB", "--users", "1", "--context", "128K", "--model", "llama-3-70b"]
SMALL = {
    "engine": "llama.cpp", "weights_gb": 16.06, "mem_gb": 24, "users": 1, "ctx_set": 8192, "quant_bits": 16,
    "kv_bytes_per_token": 131_072, "bw_gbs": 936, "target_tps": 100,
}  # fmt: skip


@pytest.fixture
def told(capsys, monkeypatch, tmp_path):
    """Runs a verb in an empty folder with stdin as given; returns exit code, what was printed, and the error line."""
    monkeypatch.chdir(tmp_path)

    def run(*words, stdin=""):
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        code = entry.main(list(words))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def plain(told):
    """The JSON a verb prints."""

    def run(*words, stdin=""):
        code, out, err = told(*words, "--json", stdin=stdin)
        assert code == ExitCode.COMPLETE, err
        return json.loads(out)

    return run


def test_advice_shows_the_calculation_first(told):
    """Calculation, then conclusion, then the command."""
    code, out, _ = told("advise", *BIG, "--quant", "q4_k_m", "--context-needed", "16K")
    assert code == ExitCode.COMPLETE
    places = [
        out.index(text)
        for text in ("Calculation", "does not fit", "Conclusion (scheduling; fewer bytes", "    vllm serve")
    ]
    assert places == sorted(places)
    assert "--max-model-len 16384" in out
    assert "architecture: not looked at" in out


def test_json_asks_one_question(plain):
    """The card spares size and cache; what is left is asked for by field, and no advice is given before."""
    found = plain("advise", *BIG)
    assert (found["layer"], found["action"], len(found["questions"])) == ("ask", "ask:quant_bits", 1)
    assert found["sources"]["kv_bytes_per_token"] == "the card of Llama-3-70B"
    answered = plain("advise", *BIG, "--quant", "4")
    assert answered["action"] == "cut_context_to_16384"
    assert answered["situation"]["weights_gb"] == pytest.approx(35.28, abs=0.01)
    assert "85.9 GB" in answered["misreadings"][2]["is"]


def test_questions_are_asked_in_turn(told):
    """Wrong answers are asked again, empty ones passed over, and the end of stdin ends the asking."""
    answers = "vllm\nten\n40GB\n80GB\n1\n128K\nq9\nq4_k_m\n327680\n16K\n"
    code, out, err = told("advise", "--ask", stdin=answers)
    assert code == ExitCode.COMPLETE
    assert "no size above 0" in err
    assert "'q9' is not known" in err
    assert err.index("Which engine") < err.index("How large are the weights") < err.index("quantised")
    assert "Cut the context to 16384 tokens" in out
    stopped = told("advise", "--ask", stdin="vllm\n")[1]
    assert "How large are the weights" in stopped
    assert "Calculation" not in stopped


def test_facts_from_a_file_and_from_stdin(plain, tmp_path):
    """Options go before the file; - reads stdin."""
    (tmp_path / "facts.json").write_text(json.dumps(SMALL))
    assert plain("advise", "facts.json")["action"] == "quantise_to_4bit"
    assert plain("advise", "-", stdin=json.dumps(SMALL))["action"] == "quantise_to_4bit"
    assert plain("advise", "facts.json", "--target", "20")["action"] == "check_efficiency"


def test_the_history_is_kept_and_refuses_two_changes(told, plain, tmp_path):
    """One line per measured step; a refused one leaves the file as it was; nothing is written unless asked."""
    (tmp_path / "facts.json").write_text(json.dumps(SMALL))
    history = ["advise", "facts.json", "--history", "h.jsonl"]
    plain(*history)
    assert not (tmp_path / "h.jsonl").exists()
    plain(*history, "--measured", "40", "--launch", "llama-server -m f16.gguf")
    found = plain(*history, "--measured", "110", "--weights", "4.9GB", "--quant", "q4_k_m")
    assert [(row["before_tps"], row["after_tps"]) for row in found["history"]] == [(None, 40), (40, 110)]
    assert found["history"][1]["layer"] == "weights"
    kept = (tmp_path / "h.jsonl").read_bytes()
    code, _, err = told(
        *history, "--measured", "120", "--weights", "4.9GB", "--quant", "4.88", "--context", "4K", "--users", "4"
    )
    assert code == ExitCode.USAGE
    assert "two things changed since the last entry (context and users)" in err
    assert (tmp_path / "h.jsonl").read_bytes() == kept
    assert "llama-server -m f16.gguf" in told(*history)[1]


def test_stop_check_why_and_candidates(told, plain):
    """The four questions, the table of techniques, and models in order."""
    facts = json.dumps(SMALL)
    stop = plain("advise", "-", "--stop-check", stdin=facts)
    assert [len(stop["stop"]), len(stop["misreadings"])] == [4, 3]
    why = plain("advise", "--why", "--prefill-share", "0.97")
    assert why["choice"]["kind"] == "input-heavy"
    assert {row["changes"] for row in why["techniques"]} == {"constant", "order"}
    names = ("llama-3-70b", "llama-3-8b", "qwen3-30b-a3b")
    ranked = plain("advise", "--candidates", *names, "--memory", "24GB", "--context", "8K")
    assert [each["name"] for each in ranked["candidates"]] == ["Qwen3-30B-A3B", "Llama-3-8B", "Llama-3-70B"]
    assert "does not fit" in told("advise", "--candidates", *names, "--memory", "24GB", "--context", "8K")[1]
    assert "FlashAttention" in told("advise", "--why")[1]
    assert "pruning makes it faster" in told("advise", "-", "--stop-check", stdin=facts)[1]


def test_facts_of_a_probe(plain, tmp_path):
    """Memory, bandwidth and narrowest weights of the board need not be asked."""
    facts = [{"group": "memory", "name": "installed, as the kernel uses it", "value": 8_000_000_000}]
    (tmp_path / "probe.json").write_text(json.dumps({"board": "rk3588", "facts": facts}))
    words = ("--engine", "rkllm", "--users", "1", "--context", "2K", "--quant", "w8a8", "--target", "30")
    found = plain("advise", "--probe", "probe.json", "--model", "qwen2.5-1.5b", *words)
    assert (found["layer"], found["action"]) == ("architecture", "smaller_active_params")
    assert found["sources"]["min_quant_bits"] == "the NPU of rk3588"


@pytest.fixture
def ran(tmp_path):
    """A run folder: 1024 and 4096 tokens alone and at 4 streams, 2 ms per prompt token, 25 ms per output token."""

    def record(tier, streams, turn, number):
        ttft = 2.0 * tier * streams
        return {
            "kind": "request", "run_id": "r", "phase": "measure", "outcome": "ok", "cell": f"{tier}x{streams}",
            "tier_tokens": tier, "concurrency": streams, "round": turn, "visit": 0, "prompt_tokens": tier,
            "bos_tokens": 0, "cached_tokens": 0, "unit_price_ms": 2.0 * streams, "output_tokens": 11,
            "ttft_ms": ttft, "done_ms": ttft + 250, "e2e_ms": ttft + 250, "tpot_ms": 25.0, "itl_ms": [25.0] * 10,
            "timestamp": f"2026-01-01T{number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}+00:00",
            "hub_lag_max_ms": 0.1,
        }  # fmt: skip

    cells = [(tier, streams, turn) for tier in (1024, 4096) for streams in (1, 4) for turn in (1, 2, 3)]
    rows = [record(*cell, 100 * n) for n, cell in enumerate(cells) for _ in range(cell[1])]
    path = tmp_path / "run"
    path.mkdir()
    (path / "records.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [{"kind": "header"}, *rows]))
    endpoint = {"model": "meta-llama/Llama-3.1-8B-Instruct", "window": 32_768, "protocol": "openai-chat"}
    (path / "manifest.json").write_text(json.dumps({"plan": {"shared_prefix": 0.7}, "endpoint": endpoint}))
    return path


def test_facts_of_a_run(plain, told, ran):
    """Users, window, prefill share, pace and the model's card come from the folder; little is left to ask."""
    found = plain("advise", "--run", "run", "--engine", "vllm", "--memory", "80GB", "--quant", "16")
    assert found["situation"]["users"] == 4
    assert found["situation"]["ctx_set"] == 32_768
    assert found["situation"]["shared_prefix_share"] == 0.7
    assert found["situation"]["measured_tps"] == 40
    assert found["situation"]["kv_bytes_per_token"] == 131_072
    assert found["situation"]["prefill_share"] == pytest.approx(8192 / 8442)
    assert found["action"] == "reduce_input_or_cache"
    off = plain(
        "advise", "--run", "run", "--engine", "vllm", "--memory", "80GB", "--quant", "16", "--prefix-reuse", "no"
    )
    assert off["action"] == "prefix_reuse"
    assert "the run's largest concurrency" in told("advise", "--run", "run", "--memory", "80GB", "--engine", "vllm",
                                                   "--quant", "16", "--explain")[1]  # fmt: skip


def test_unit_prices_of_a_run(plain, ran):
    """The price at the nearest length, and two runs against each other at the lengths they share."""
    found = plain("whatif", "--run", "run", "--tokens", "4K", "--instead", "1K", "--against-run", "run")
    assert found["retrieval"]["saved_s"] == pytest.approx(6.144)
    assert found["retrieval"]["price"] == {"ms": 2.0, "at_tokens": 4096}
    assert [(row["tokens"], row["ratio"]) for row in found["ratios"]] == [(1024, 1.0), (4096, 1.0)]


def test_a_page_about_a_model(told, plain):
    """Four accounts, what fits per tier in both units, growth that is neither 16 nor 256 times, and decode's bound."""
    words = (
        "card",
        "llama-3-70b",
        "--quant",
        "4",
        "--memory",
        "80GB",
        "--sequences",
        "8",
        "--bandwidth",
        "3.35TB",
        "--tflops",
        "990",
    )
    found = plain(*words)
    assert found["accounts"]["kv_bytes_per_token"] == 327_680
    assert [(row["tokens"], row["max_sequences"], row["lacks"]) for row in found["fit"]] == [
        (4096, 25, None), (32_768, 3, "cache"), (131_072, 0, "cache"),
    ]  # fmt: skip
    assert found["prefill"]["growth"]["all"] == pytest.approx(33.5, abs=0.1)
    assert found["prefill"]["growth"]["attention"] == 256
    assert found["ridge_flop_per_byte"] == pytest.approx(295.5, abs=0.1)
    out = told(*words, "--explain")[1]
    assert "10.74 GB (10.00 GiB)" in out
    assert "8 at once" in out
    assert out.count("lacks cache") == 2
    assert max(map(len, out.split("Formulas")[0].split("Calculation")[0].splitlines())) <= 80
    assert "8 x 10.74 GB (10.00 GiB) for 32768 tokens = 85.90 GB (80.00 GiB) > left" in out


def test_accounts_that_are_not_mixed(plain, told):
    """552B at 4 bit are 276 GB whatever is active; a token takes 890 bytes; engines that offload are named."""
    found = plain("card", "deepseek-v4.1-flash", "--quant", "4", "--memory", "80GB", "--tiers", "128K,1M")
    four = found["accounts"]
    assert (four["weight_bytes"], four["active_prefill"], four["active_decode"]) == (276e9, 8e9, 16e9)
    assert [round(row["bytes"] / 1e6, 1) for row in found["cache"]] == [116.7, 933.2]
    assert found["fit"][0]["offload"] == ["llama.cpp --n-cpu-moe", "KTransformers"]
    assert "KTransformers" in told("card", "deepseek-v4.1-flash", "--quant", "4", "--memory", "80GB")[1]
    assert plain("card", "llama-3-8b", "--kv-bytes-per-token", "890")["accounts"]["kv_bytes_per_token"] == 890


def test_42_or_8_5(told, plain):
    """Both claims settled in one call, with the bound, the causes, and each explanation's number."""
    words = ("reconcile", "--claim", "42", "--claim", "8.5:512/29", "--bandwidth", "17GB", "--bytes-per-token", "1.1GB")
    words += ("--decode", "15.4545", "--prefill", "338.3", "--board", "rk3588")
    high, low = plain(*words)["claims"]
    assert [each["name"] for each in high["explanations"] if each["fits"]] == ["other_model", "prompt_counted"]
    assert low["explanations"][0]["name"] == "prefill_averaged"
    assert {cause["name"] for cause in high["check"]["causes"]} == {"bandwidth", "bytes", "model", "not_decode"}
    out = told(*words, "--explain")[1]
    assert "17 GB/s (given) / 1.1 GB per token (given) = 15.45 tokens/s" in out
    assert "272% of the bound, which is impossible" in out
    assert "n_out / (n_in / prefill + n_out / decode)" in out
    few = told("reconcile", "--claim", "42")[1]
    assert "Give --board, --model and --quant, --prefill for more." in few
    theory = plain("reconcile", "--claim", "5", "--clock-mhz", "2112", "--bus-bits", "64", "--bytes-per-token", "1GB")
    assert theory["bandwidth"] == 33.792e9
    assert theory["bandwidth_from"].startswith("theoretical")


def test_call_sites_of_a_log(told, plain, tmp_path):
    """Groups with tokens and wait, never a word of a prompt; lines that hold none are counted."""
    prefix = "secretword " * 40
    rows = [{"prompt": f"{prefix}{number}", "usage": {"prompt_tokens": 800}} for number in range(5)]
    (tmp_path / "log.jsonl").write_text("\n".join([*map(json.dumps, rows), "junk", "[]", "{}"]))
    found = plain("callsites", "log.jsonl", "--unit-price", "71.3")
    assert (found["calls"], found["unread_lines"], len(found["sites"])) == (5, 3, 1)
    assert found["sites"][0]["ttft_s"] == pytest.approx(57.04)
    out = told("callsites", "log.jsonl", "--unit-price", "71.3")[1]
    assert "57.0 s" in out
    assert "3 lines hold no prompt" in out
    assert "secretword" not in out
    (tmp_path / "plain.jsonl").write_text(json.dumps({"prompt": "a b c"}))
    assert "an estimate by words" in told("callsites", "plain.jsonl")[1]


def test_stuffing_and_price_ratio(told):
    """12000 against 1500 tokens, and one model against another, in a sentence each."""
    out = told("whatif", "--unit-price", "71.3", "--tokens", "12000", "--instead", "1500", "--against-price", "28.9")[1]
    assert "749 s saved (88%)" in out
    assert "2.47 times the second" in out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["advise", "--memory", "-80GB"], "argument --memory: expected one argument"),
        (["advise", "--memory=-80GB"], "is no size above 0"),
        (["advise", "none.json"], "cannot read none.json"),
        (["advise", "--engine", "magic"], "engine: 'magic' is not known"),
        (["advise", "--model", "no-such-model"], "no model card for 'no-such-model'"),
        (["advise", "--run", "nowhere"], "no run folder at nowhere"),
        (["advise", "--candidates", "llama-3-8b"], "--candidates needs --memory"),
        (["advise", "--stop-check"], "Which engine serves the model? (--engine)"),
        (["advise", "--why", "--prefill-share", "2"], "a share from 0 to 1"),
        (["card", "llama-3-8b", "--memory", "80GB", "--gpus", "0"], "at least one GPU"),
        (["card", "llama-3-8b", "--memory", "0GB"], "is no size above 0"),
        (["card", "llama-3-8b", "--kv", "int3"], "KV cache type 'int3' is not known"),
        (
            ["card", "llama-3-8b", "--params", "9e9"],
            "9,000,000,000 parameters are stated but its dimensions make 8,030,261,248",
        ),
        (["card", "llama-3-8b", "--memory", "80GB", "--gpus", "3"], "cannot be split over 3 GPUs"),
        (["card", "llama-3-8b", "--kv-bytes-per-token", "-1"], "kv_bytes_per_token must be above 0"),
        (["reconcile", "--claim", "fast"], "no claim: write tokens/s"),
        (["reconcile", "--claim", "4", "--board", "rk1"], "no published rates for board 'rk1'"),
        (["reconcile", "--claim", "4", "--bus-bits", "64"], "go together"),
        (
            ["reconcile", "--claim", "4", "--model", "qwen2.5-1.5b", "--quant", "w4a16", "--board", "rk3588"],
            "below 8 bits",
        ),
        (["callsites", "none.jsonl"], "cannot read none.jsonl"),
        (["whatif"], "a unit price is needed"),
        (["whatif", "--unit-price", "fast", "--tokens", "2", "--instead", "1"], "--unit-price 'fast': ms per token"),
        (["whatif", "--unit-price", "1"], "nothing to compare"),
        (["whatif", "--unit-price", "1", "--tokens", "1K"], "--tokens and --instead go together"),
        (["whatif", "--unit-price", "1@2K", "--against-price", "1@1K"], "share no prompt length"),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else None,
)
def test_input_that_cannot_be_is_named(told, words, says):
    """One line and the exit code of wrong use; nothing is computed."""
    code, out, err = told(*words)
    assert code == ExitCode.USAGE
    assert says in err
    assert err.count("\n") == 1
    assert out == ""


def test_tables_of_advise_fit_eighty_columns(told, monkeypatch):
    """On a terminal of 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    names = ("llama-3-70b", "llama-3-8b", "qwen3-30b-a3b", "deepseek-r1-distill-qwen-1.5b")
    for words in (("--why",), ("--candidates", *names, "--memory", "24GB", "--context", "8K")):
        out = told("advise", *words)[1]
        assert max(map(len, out.splitlines())) <= 80, out
