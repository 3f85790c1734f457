"""Which counter is used: the server's own where its usage proves it, else words at a measured price, else a guess."""

import pytest

from loadkit.plan.endpoint import Endpoint
from loadkit.target.control import open_client
from loadkit.target.counting import GUESSED_OVERHEAD, GUESSED_TOKENS_PER_WORD, choose_counter

TOKENIZE = "POST /tokenize"
SHORT = "is this line working?"
LONG = "the ferry leaves the quay at seven. " * 100
TEMPLATE = 11


def byte_tokens(text):
    """A tokenizer that reads bytes."""
    return list(text.encode())


@pytest.fixture
def choose(server):
    """Chooses a counter for the server and the given pings."""

    def chosen(*pings):
        endpoint = Endpoint("lab", f"{server.url}/v1", model="m1")
        with open_client(endpoint, None, {}) as client:
            found = choose_counter(client, endpoint, pings)
            return found, found.counter.count("one two three four")

    return chosen


def pings(extra=TEMPLATE):
    """What a byte-level server with a template counts for both texts."""
    return [(text, len(text) + extra) for text in (SHORT, LONG)]


def test_llama_cpp_counts_by_content(server, choose):
    """llama.cpp's form: {"content"} gives {"tokens"}; the template is what the usage has beyond them."""
    server.routes[TOKENIZE] = lambda body: server.document({"tokens": byte_tokens(body["content"])})
    found, four_words = choose(*pings())
    assert (found.counter.source, found.counter.exact, four_words) == ("server", True, 18)
    assert found.overhead_tokens == TEMPLATE
    assert "2 pings" in found.note


def test_vllm_counts_by_prompt(server, choose):
    """vLLM's form: {"prompt", "model"} gives {"count", "tokens"}; special tokens are asked apart, one in front here."""

    def answer(body):
        if "prompt" not in body:
            return server.refusal(400, "prompt is required")
        tokens = [1] * body["add_special_tokens"] + byte_tokens(body["prompt"])
        return server.document({"count": len(tokens), "tokens": tokens, "max_model_len": 4096})

    server.routes[TOKENIZE] = answer
    found, four_words = choose(*pings())
    assert (found.counter.source, four_words, found.overhead_tokens, found.bos_tokens) == ("server", 18, TEMPLATE, 1)
    assert server.asked[-1][1]["model"] == "m1"


def test_a_tokenizer_that_disagrees_is_not_used(server, choose):
    """A /tokenize that leaves another overhead on each text is not the model's: words are priced by the usage."""
    server.routes[TOKENIZE] = lambda body: server.document({"tokens": byte_tokens(body["content"])})
    (short, few), (text, many) = pings()
    found, four_words = choose((short, few), (text, many + 50))
    assert (found.counter.source, found.counter.exact) == ("estimate", False)
    price = (many + 50 - few) / (700 - 4)
    assert found.counter.tokens_per_word == pytest.approx(price)
    assert four_words == round(4 * price)
    assert found.note.startswith("estimate")


def test_a_tokenizer_that_counts_more_than_the_server_is_not_used(server, choose):
    """Fewer prompt tokens than the text has cannot be the same tokenizer."""
    server.routes[TOKENIZE] = lambda body: server.document({"tokens": byte_tokens(body["content"] * 9)})
    assert choose(*pings())[0].counter.source == "estimate"


def test_without_tokenize_words_are_priced(choose):
    """Two pings give a line: tokens per word and what the template takes."""
    found, _ = choose(("a b c d", 4 * 2 + 7), ("a b c d " * 25, 100 * 2 + 7))
    assert (found.counter.tokens_per_word, found.overhead_tokens) == (2.0, 7)
    assert not found.counter.exact


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        ([], "stated no prompt tokens"),
        ([(SHORT, 30)], "one request only"),
        ([(SHORT, 30), (LONG, 30)], "counted two texts alike"),
    ],
)
def test_a_guess_is_called_one(choose, seen, why):
    """Without usage nothing is known: a usual price, and the note says that it is a guess, and why."""
    found, four_words = choose(*seen)
    assert (found.counter.source, found.counter.exact) == ("estimate", False)
    assert four_words == round(4 * GUESSED_TOKENS_PER_WORD)
    assert found.overhead_tokens == GUESSED_OVERHEAD
    assert found.note.startswith("guessed")
    assert why in found.note


def test_one_answered_request_proves_a_tokenizer(server, choose):
    """Where the longer request was refused for its length, the shorter one still shows the template."""
    server.routes[TOKENIZE] = lambda body: server.document({"tokens": byte_tokens(body["content"])})
    found, _ = choose((SHORT, len(SHORT) + TEMPLATE))
    assert (found.counter.source, found.overhead_tokens) == ("server", TEMPLATE)


def test_the_check_counts_what_the_server_counts(server, checked):
    """Through the check: bytes and a template of 11, proven by the two requests; no usage, and it is a guess."""
    text = lambda body: body["messages"][0]["content"]  # noqa: E731
    server.routes = {
        "GET /v1/models": server.models("m1", bos_tokens=0),
        "POST /v1/chat/completions": lambda body: server.stream(len(text(body).encode()) + TEMPLATE),
        TOKENIZE: lambda body: server.document({"tokens": byte_tokens(body["content"])}),
    }
    counting = checked(server.url).counting
    assert (counting.counter.source, counting.overhead_tokens, counting.bos_tokens) == ("server", TEMPLATE, 0)
    server.routes["POST /v1/chat/completions"] = server.stream()
    assert checked(server.url).counting.note.startswith("guessed")
    assert "guessed" in checked.said[-1]
