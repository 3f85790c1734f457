"""Rules of goodput, replicas, queues and cost that hold for any numbers."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadkit.capacity.cost import listed_request, per_million, per_request, tokens_per_s_for
from loadkit.capacity.goodput import Point, goodput
from loadkit.capacity.inputs import InputError
from loadkit.capacity.queueing import in_flight, onset, residence_s, running, waiting
from loadkit.capacity.replicas import Load, decode_work, prefill_work, replicas, whole

POSITIVE = st.floats(0.01, 1000)
POINTS = st.lists(
    st.builds(
        Point,
        load=st.integers(1, 500).map(float),
        requests_per_s=POSITIVE,
        success=st.sampled_from((1.0, 0.995, 0.98)),
        missed=st.sampled_from(((), ("ttft.p95",))),
        unjudged=st.sampled_from(((), (), ("itl.p95",))),
    ),
    max_size=8,
    unique_by=lambda point: point.load,
)


@given(POINTS, st.randoms())
@settings(max_examples=60)
def test_goodput_is_a_measured_load_that_holds_and_no_other_does_more(points, random):
    """It never lies between two loads, and the order in which they were measured does not matter."""
    found = goodput(points)
    holding = [point for point in points if point.holds]
    assert (found.best in holding) if holding else found.best is None
    assert all(point.requests_per_s <= found.best.requests_per_s for point in holding)
    shuffled = list(points)
    random.shuffle(shuffled)
    assert goodput(shuffled) == found


@given(POINTS)
@settings(max_examples=60)
def test_what_bounds_a_measurement_between_two_loads(points):
    """The ceiling is no less than the goodput and there is one exactly where a higher load fails."""
    found = goodput(points)
    assert (found.ceiling is None) == (found.best is None or found.above is None)
    if found.ceiling is not None:
        assert found.ceiling >= found.best.requests_per_s
        assert found.above.load > found.best.load
        assert not found.above.holds
    assert all(load < found.best.load for load in found.doubtful)


def test_a_failed_request_in_a_hundred_is_allowed_and_two_are_not():
    """99 % success."""
    assert goodput([Point(1, 5.0, success=0.99)]).best is not None
    assert goodput([Point(1, 5.0, success=0.98)]).best is None


@given(st.lists(st.tuples(POSITIVE, POSITIVE), min_size=1, max_size=5), st.floats(1, 3))
@settings(max_examples=60)
def test_replicas_grow_with_the_load_and_never_fall_short(loads, headroom):
    """Enough for the work and less than one too many; a doubled load never takes fewer; a spare is one more."""
    found = replicas([Load(*load) for load in loads], headroom)
    work = sum(rate / good for rate, good in loads)
    assert found.work == pytest.approx(work)
    assert found.bare - 1 < work <= found.bare * (1 + 1e-8)
    assert found.bare <= found.with_headroom
    assert found.n_plus_1 == found.bare + 1
    assert found.utilisation() <= 1 + 1e-8
    assert replicas([Load(2 * rate, good) for rate, good in loads], headroom).recommended >= found.recommended


@given(POSITIVE, POSITIVE, st.integers(2, 5))
@settings(max_examples=40)
def test_a_tier_cut_into_parts_takes_the_same_replicas(rate, good, parts):
    """Work adds up: which is what makes a mix of tiers countable."""
    assert replicas([Load(rate / parts, good)] * parts).work == pytest.approx(replicas([Load(rate, good)]).work)


def test_a_load_that_is_whole_but_for_rounding_takes_no_replica_more():
    """0.1 + 0.2 is 0.3 here, and no work takes no replica."""
    assert whole((0.1 + 0.2) / 0.1) == 3
    assert whole(3.0001) == 4
    assert whole(0) == 0


@given(st.floats(0.05, 0.95), st.floats(0.01, 100))
@settings(max_examples=40)
def test_one_server_waits_as_the_textbook_says(utilisation, service):
    """M/M/1: P(wait) is the utilisation and the mean wait is rho S / (1 - rho)."""
    found = waiting(utilisation / service, service, 1)
    assert found.p_wait == pytest.approx(utilisation)
    assert found.mean_s == pytest.approx(utilisation * service / (1 - utilisation))
    assert found.quantile_s(0.5) <= found.quantile_s(0.99)


@given(st.integers(1, 300), st.floats(0.1, 0.99))
@settings(max_examples=40)
def test_more_places_wait_less(servers, utilisation):
    """P(wait) is a probability, one more place for the same load lowers it, thousands overflow nothing."""
    load = servers * utilisation
    found, more = waiting(load, 1.0, servers), waiting(load, 1.0, servers + 1)
    assert 0 <= more.p_wait <= found.p_wait <= 1
    assert waiting(5000 * utilisation, 1.0, 5000).p_wait <= 1


def test_an_overloaded_queue_has_no_end():
    """From an offered load of the servers on everything waits, for ever."""
    found = waiting(2.0, 1.0, 2)
    assert (found.p_wait, found.mean_s, found.quantile_s(0.95)) == (1.0, math.inf, math.inf)


@given(POSITIVE, POSITIVE, POSITIVE, st.integers(1, 2000))
@settings(max_examples=40)
def test_littles_law_in_both_directions(rate, ttft, gap, output):
    """N = X R, those that run are those in flight where nothing waits, and one token has no gap."""
    assert in_flight(rate, ttft, gap, output) == pytest.approx(rate * (ttft + (output - 1) * gap))
    assert running(rate, ttft, gap, output) == in_flight(rate, ttft, gap, output)
    assert residence_s(ttft, gap, 1) == ttft


def test_a_ttft_that_grows_with_the_load_waits_nowhere():
    """Elasticity 1 or less: the last load is good and none is bad; a load given twice is refused."""
    found = onset([1, 2, 4, 8], [10, 18, 30, 60])
    assert (found.last_good, found.first_bad) == (8, None)
    with pytest.raises(InputError, match="twice"):
        onset([1, 1], [10, 20])


@given(st.floats(0.01, 1e4), st.floats(0.001, 1e3))
@settings(max_examples=40)
def test_a_target_cost_names_the_tokens_that_meet_it(hour, target):
    """The rate that a target asks for costs exactly the target."""
    assert per_million(hour, tokens_per_s_for(hour, target)) == pytest.approx(target)


def test_a_request_costs_the_same_by_tokens_and_by_requests():
    """1000 requests of 500 tokens are half a million tokens."""
    assert 1000 * per_request(5.0, 2.0) == pytest.approx(0.5 * per_million(5.0, 1000.0))


def test_cached_prompt_tokens_have_a_price_of_their_own():
    """Per million: 1000 x 1 + 3000 x 0.1 + 100 x 4, and without a price for them the ordinary one."""
    assert listed_request(4000, 100, 1, 4, cached_tokens=3000, price_cached=0.1) == pytest.approx(1700e-6)
    assert listed_request(4000, 100, 1, 4, cached_tokens=3000) == pytest.approx(4400e-6)


IMPOSSIBLE = {
    "no goodput": lambda: Load(1, 0).work,
    "negative arrivals": lambda: replicas([Load(-1, 1)]),
    "headroom below 1": lambda: replicas([Load(1, 1)], headroom=0.9),
    "negative spare": lambda: replicas([Load(1, 1)], spare=-1),
    "no tokens": lambda: per_million(1, 0),
    "negative price": lambda: per_million(-1, 1),
    "no target": lambda: tokens_per_s_for(1, math.nan),
    "more cached than sent": lambda: listed_request(10, 1, 1, 1, cached_tokens=11),
    "negative list price": lambda: listed_request(10, 1, -1, 1),
    "no slot": lambda: waiting(1, 1, 0),
    "endless arrivals": lambda: waiting(math.inf, 1, 1),
    "the whole as a quantile": lambda: waiting(1, 1, 2).quantile_s(1.0),
    "no TTFT": lambda: onset([1, 2], [0, 1]),
    "negative TTFT": lambda: in_flight(1, -1, 1, 1),
    "prefill that does not read": lambda: prefill_work(1, 1, 0),
    "decode that unwrites": lambda: decode_work(1, 1, -1),
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_an_input_that_cannot_be_is_named_and_nothing_is_computed(name):
    """One line that says which input, and what it is."""
    with pytest.raises(InputError) as caught:
        IMPOSSIBLE[name]()
    assert "\n" not in str(caught.value)
