"""From a command line to what a run needs."""

import argparse
import traceback

import pytest

from loadkit.plan.errors import ConfigError
from loadkit.plan.options import add_options, resolve

SECRET = "sk-test-0123456789abcdefghij"
LAB = '[endpoints.lab]\nbase_url = "https://h/v1"\nmodel = "m"\nwindow = "4K"\ntimeouts = { ttft = 900 }\n'


def ids(request):
    return [cell.id for cell in request.plan.cells]


def test_nothing_said_is_the_embedded_engine(run, tmp_path):
    """Six tiers alone and 512 at 2, three rounds, one warm-up, 16 output tokens of full length, ./runs."""
    made = run()
    assert (made.target, made.endpoint, made.out) == ("engine", None, tmp_path / "runs")
    assert ids(made) == ["128x1", "256x1", "512x1", "1024x1", "1536x1", "2048x1", "512x2"]
    plan = made.plan
    assert (plan.rounds, plan.warmup, plan.max_tokens, plan.ignore_eos, plan.short_warmup) == (3, 1, 16, True, False)
    assert (plan.retry, plan.open_loop, plan.temperature, plan.seed) == (True, False, 0.0, 7)
    assert (made.check, made.dry_run, made.yes) == (True, False, False)


@pytest.mark.parametrize("argv", [("http://h",), ("--url", "http://h"), ("http://h", "--url", "http://h")])
def test_a_url_is_an_endpoint_with_the_default_grid(run, argv):
    """128, 1K and 4K at 1, 2 and 4; 128 output tokens; short warm-ups, for the host is not this machine."""
    made = run(*argv)
    assert (made.target, made.endpoint.base_url, made.endpoint.model) == ("endpoint", "http://h", None)
    assert ids(made) == [f"{t}x{c}" for t in (128, 1024, 4096) for c in (1, 2, 4)]
    assert (made.plan.max_tokens, made.plan.ignore_eos, made.plan.short_warmup) == (128, False, True)


def test_the_documented_command_line(run):
    """`loadkit run URL --model M --tiers 1K,4K --concurrency 1,2 --rounds 3`."""
    made = run("http://127.0.0.1:8000", "--model", "M", "--tiers", "1K,4K", "--concurrency", "2,1", "--rounds", "5")
    assert ids(made) == ["1024x1", "1024x2", "4096x1", "4096x2"]
    assert (made.endpoint.model, made.plan.rounds, made.plan.short_warmup) == ("M", 5, False)


def test_lengths_is_another_name_of_tiers(run):
    """The articles' option works."""
    assert ids(run("--lengths", "4096,32768")) == ["4096x1", "32768x1"]


def test_tiers_alone_keep_the_usual_concurrency(run):
    """1 on the engine, 1, 2, 4 on a URL; concurrency alone keeps the usual tiers."""
    assert ids(run("--tiers", "1K")) == ["1024x1"]
    assert ids(run("http://h", "--tiers", "1K")) == ["1024x1", "1024x2", "1024x4"]
    assert ids(run("http://h", "--concurrency", "8")) == ["128x8", "1024x8", "4096x8"]


def test_named_plans(run):
    """Long has its 51 requests, edge its three tiers."""
    assert run("http://h", "--plan", "long").plan.requests().measured == 51
    assert ids(run("http://h", "--plan", "edge")) == ["128x1", "512x1", "1024x1"]


def test_a_board_has_the_edge_plan_and_three_warm_ups(run):
    """Boards bring their own server; a URL may name one on the board."""
    made = run("--board", "rk")
    assert (made.target, made.board, made.endpoint, made.plan.warmup) == ("board", "rk", None, 3)
    assert ids(made) == ["128x1", "512x1", "1024x1"]
    assert run("--board", "rk", "http://h", "--model", "m").endpoint.model == "m"


def test_an_endpoint_comes_from_the_file_and_options_change_it(run, endpoints_toml):
    """The default grid is clipped to its window and its last tier shrinks; timeouts, headers and body are merged."""
    endpoints_toml(LAB + 'headers = { X-A = "1", X-B = "2" }\nextra_body = { k = 1 }\n')
    made = run(
        "--endpoint", "lab", "--protocol", "anthropic", "--header", "X-A=3", "--extra-body", '{"j": 2}',
        "--read-timeout", "50", "--connect-timeout", "2",
    )  # fmt: skip
    assert (made.endpoint.protocol, made.endpoint.model) == ("anthropic", "m")
    assert made.plan.cells[-1].target_tokens == 4096 - 128 - 64
    assert made.plan.headers == made.endpoint.headers == {"X-A": "3", "X-B": "2"}
    assert made.plan.extra_body == made.endpoint.extra_body == {"k": 1, "j": 2}
    assert made.plan.timeouts == made.endpoint.timeouts
    assert (made.plan.timeouts.connect, made.plan.timeouts.ttft, made.plan.timeouts.read) == (2, 900, 50)


def test_a_chosen_first_token_timeout_does_not_grow(run):
    """The default grows with the tier, `--ttft-timeout` never."""
    assert run("http://h").plan.timeouts.for_tier(1048576).ttft == 4800
    assert run("http://h", "--ttft-timeout", "600").plan.timeouts.for_tier(1048576).ttft == 600


def test_asking_for_warm_ups_makes_them_full_length(run):
    """Short ones are for who did not ask."""
    made = run("http://h", "--warmup", "2")
    assert (made.plan.warmup, made.plan.short_warmup) == (2, False)


def test_the_rest_of_the_options_reach_the_plan(run, tmp_path):
    """Each option has its place."""
    made = run(
        "http://h", "--rate", "2.5", "--slo", "ttft=2s", "--no-retry", "--ignore-eos", "--seed", "5", "--yes",
        "--temperature", "0.5", "--max-tokens", "9", "--out", "x/y", "--dry-run", "--no-check",
    )  # fmt: skip
    plan = made.plan
    assert [cell.rate for cell in plan.cells] == [2.5]
    assert (plan.slo, plan.retry, plan.ignore_eos, plan.seed) == ("ttft=2s", False, True, 5)
    assert (plan.temperature, plan.max_tokens, made.out) == (0.5, 9, tmp_path / "x" / "y")
    assert (made.dry_run, made.yes, made.check) == (True, True, False)
    assert run("--weights", "w.gguf").weights == "w.gguf"


def test_a_fresh_seed_where_none_is_named(tmp_path):
    """Two runs without --seed do not send the same prompts, or the second would meet the first one's prefix cache."""
    parser = argparse.ArgumentParser()
    add_options(parser)
    seeds = {resolve(parser.parse_args([]), {}, tmp_path).plan.seed for _ in range(8)}
    assert len(seeds) > 1


def test_locusts_own_host_serves_as_url(tmp_path):
    """`locust -f … --host URL`: the option is Locust's."""
    parser = argparse.ArgumentParser()
    parser.add_argument("-H", "--host")
    add_options(parser)
    made = resolve(parser.parse_args(["--host", "http://h"]), {}, tmp_path)
    assert (made.target, made.endpoint.base_url) == ("endpoint", "http://h")


def test_variables_name_an_endpoint(run):
    """A CI run needs no file: LOADKIT_BASE_URL alone decides, other families when an endpoint is asked for."""
    made = run(LOADKIT_BASE_URL="http://a", LOADKIT_MODEL="m", LOADKIT_API_KEY=SECRET)
    assert (made.target, made.endpoint.name, made.endpoint.model) == ("endpoint", "loadkit", "m")
    assert made.endpoint.key_env == "LOADKIT_API_KEY"
    assert run(OPENAI_BASE_URL="http://b").target == "engine"
    assert run("--target", "endpoint", OPENAI_BASE_URL="http://b").endpoint.base_url == "http://b"
    assert run("--target", "engine", LOADKIT_BASE_URL="http://a").endpoint is None


def test_the_only_endpoint_of_a_file_needs_no_name(run, endpoints_toml):
    """Two of them do."""
    path = endpoints_toml(LAB)
    assert run("--target", "endpoint").endpoint.name == "lab"
    path.write_text(LAB + LAB.replace("lab", "rack"))
    with pytest.raises(ConfigError, match="--endpoint NAME; it has lab, rack"):
        run("--target", "endpoint")
    assert run("--endpoint", "rack").endpoint.name == "rack"


def test_a_missing_key_stops_a_run_and_only_warns_a_dry_one(run, endpoints_toml):
    """A dry run sends nothing, so it shows the plan and what will be missing."""
    endpoints_toml(LAB + 'key_env = "LAB_KEY"\n')
    with pytest.raises(ConfigError, match="LAB_KEY is not set"):
        run("--endpoint", "lab")
    assert "LAB_KEY is not set" in run("--endpoint", "lab", "--dry-run").warnings[0]
    assert run("--endpoint", "lab", LAB_KEY=SECRET).warnings == ()


def test_what_was_dropped_from_the_url_is_a_warning(run):
    """The user sees it beside the plan."""
    assert run("http://h/v1?x=1").warnings == ("the base URL had a query or fragment; it was dropped",)


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("--target", "gpu"), "endpoint, engine, sim, board"),
        (("http://a", "--url", "http://b"), "two different URLs"),
        (("http://a", "--endpoint", "x"), "keep one"),
        (("http://a", "--target", "engine"), "leave the URL or endpoint out"),
        (("http://a", "--target", "sim"), "leave the URL or endpoint out"),
        (("--target", "board"), "--board NAME"),
        (("--board", "x", "--target", "engine"), "leave one out"),
        (("--weights", "w", "http://a"), "--target engine"),
        (("--target", "engine", "--model", "m"), "leave --model out"),
        (("--target", "endpoint"), "no LOADKIT_BASE_URL"),
        (("--endpoint", "x"), "no endpoints.toml"),
        (("--endpoints", "none.toml"), "no such file"),
        (("nowhere:80",), "must begin with http"),
        (("http://a", "--protocol", "grpc"), "openai-chat, openai-completions, anthropic, ollama"),
        (("--protocol", "grpc"), "openai-chat"),
        (("--plan", "huge"), "long or edge"),
        (("--plan", "edge", "--tiers", "1K"), "leave --tiers and --concurrency out"),
        (("--tiers", "4G"), "unknown tier '4G'"),
        (("--tiers", ""), "--tiers is empty"),
        (("",), "URL is empty"),
        (("--url", " "), "URL is empty"),
        (("--endpoint", ""), "--endpoint is empty"),
        (("--target", ""), "--target is empty"),
        (("--rounds", "9" * 5000), "--rounds"),
        (("--concurrency", "0"), "from 1 to"),
        (("--concurrency", "1,,2"), "from 1 to"),
        (("--concurrency", "two"), "such as 1,2,4"),
        (("--rounds", "0"), "--rounds '0': must be a whole number"),
        (("--rounds", "1.5"), "--rounds"),
        (("--rounds", "9" * 400), "--rounds"),
        (("--warmup", "0"), "--warmup '0': must be a whole number from 1"),
        (("--max-tokens", "0"), "--max-tokens"),
        (("--temperature", "nan"), "--temperature"),
        (("--seed=-1",), "--seed"),
        (("--rate", "0"), "--rate"),
        (("--rate", "inf"), "--rate"),
        (("--slo", "speed=2"), "--slo"),
        (("--connect-timeout", "0"), "--connect-timeout"),
        (("--connect-timeout", "none"), "--connect-timeout"),
        (("--ttft-timeout", "-1"), "--ttft-timeout"),
        (("--extra-body", "{"), "JSON object"),
        (("--extra-body", "[1]"), "JSON object"),
        (("--extra-body", '{"a": NaN}'), "JSON object"),
        (("--extra-body", '{"messages": []}'), "--tiers"),
        (("--extra-body", '{"max_tokens": 4}'), "--max-tokens"),
        (("--extra-body", f'{{"a": "{SECRET}"}}'), "literal key"),
        (("--header", "X-A"), "NAME=VALUE"),
        (("--header", f"Authorization=Bearer {SECRET}"), "would carry a key"),
        (("--header", f"X-API-Key={SECRET}"), "would carry a key"),
        (("--header", "Host=x"), "set by loadkit itself"),
    ],
)
def test_every_bad_value_is_one_line_that_says_what_to_change(run, argv, words):
    """ConfigError, no line break, and no key in the message or its traceback."""
    with pytest.raises(ConfigError, match=words) as caught:
        run(*argv)
    assert "\n" not in caught.value.message
    assert SECRET not in "".join(traceback.format_exception_only(caught.value))


def test_refining_needs_a_ladder_a_knee_can_be_found_on(run):
    """Four tiers at one stream, and prompts that can be made at any length."""
    four = ("http://h", "--tiers", "128,256,512,1K", "--concurrency", "1,2")
    assert (run(*four).plan.refine, run(*four).plan.full_grid) == (0, False)
    asked = run(*four, "--refine", "3", "--full-grid").plan
    assert (asked.refine, asked.full_grid) == (3, True)
    for argv, words in (
        (("http://h", "--tiers", "128,256,512", "--refine", "1"), "at least 4 tiers at concurrency 1"),
        (("http://h", "--tiers", "128,256,512,1K", "--concurrency", "2", "--refine", "1"), "at concurrency 1"),
        ((*four, "--refine", "51"), "from 0 to 50"),
        ((*four, "--refine", "1", "--prompts", "p.txt", "--prompts-are-public"), "--prompts has its own"),
    ):
        with pytest.raises(ConfigError, match=words):
            run(*argv)


def test_a_tier_above_the_window_is_refused(run, endpoints_toml):
    """Named tiers and named plans are meant; only default plans are clipped."""
    endpoints_toml(LAB)
    for argv in (("--tiers", "8K"), ("--plan", "long")):
        with pytest.raises(ConfigError, match="above the endpoint's window of 4K"):
            run("--endpoint", "lab", *argv)


def test_no_key_is_in_what_a_run_is_made_of(run):
    """The request for a run, which goes into manifests and to workers, knows the variable only."""
    assert SECRET not in repr(run(LOADKIT_BASE_URL="http://a", LOADKIT_API_KEY=SECRET))


def test_no_option_takes_a_key():
    """A key on the command line is visible to every process of the machine."""
    parser = argparse.ArgumentParser()
    add_options(parser, positional_url=True)
    flags = [flag for action in parser._actions for flag in action.option_strings]
    innocent = {"--max-tokens", "--budget-tokens", "--tokenizer", "--token-ids"}
    assert not [flag for flag in flags if "key" in flag or ("token" in flag and flag not in innocent)]
    assert parser.format_help().count("--tiers") >= 1
