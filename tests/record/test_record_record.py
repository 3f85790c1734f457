"""The record: its keys, its copies, and what the header says about it."""

import json

from loadkit.record.jsonl import header
from loadkit.record.names import Flag, Outcome, Phase
from loadkit.record.record import FIELDS, Record


def test_members_of_closed_sets_become_plain_strings():
    """A packer that takes only builtins, such as that of the worker channel, can take the row."""
    row = Record(
        outcome=Outcome.OK,
        phase=Phase.MEASURE,
        flags=[Flag.BURSTY],
        attempts=[{"outcome": Outcome.RATE_LIMITED, "http_status": 429}],
    ).to_json()
    assert (row["outcome"], row["phase"], row["flags"]) == ("ok", "measure", ["bursty"])
    assert row["attempts"] == [{"outcome": "rate_limited", "http_status": 429}]
    plain = [row["outcome"], row["phase"], row["flags"][0], row["attempts"][0]["outcome"]]
    assert {type(value) for value in plain} == {str}


def test_a_row_has_every_key_in_order_and_absent_is_null():
    """A reader may index any key of the schema; nothing unknown reads as 0."""
    row = Record().to_json()
    assert tuple(row) == FIELDS
    assert row["kind"] == "request"
    assert row["attempts"] == row["flags"] == []
    rest = set(FIELDS) - {"kind", "attempts", "flags"}
    assert all(row[name] is None for name in rest)


def test_a_row_shares_nothing_with_the_record():
    """Changing a row that was shipped does not change the record, nor the other way round."""
    record = Record(itl_ms=[1.0], flags=["cold"])
    row = record.to_json()
    row["itl_ms"].append(2.0)
    record.flags.append("bursty")
    assert record.itl_ms == [1.0]
    assert row["flags"] == ["cold"]


def test_a_record_survives_its_row():
    """from_json undoes to_json; keys of a later schema are left out, missing ones are absent."""
    record = Record(run_id="r", ttft_ms=12.5, itl_ms=[1.0, 2.5], flags=["cold"], attempts=[{"wait_ms": 3.0}])
    row = json.loads(json.dumps(record.to_json()))
    assert Record.from_json(row) == record
    assert Record.from_json({"ttft_ms": 4.0, "from_the_future": 1}) == Record(ttft_ms=4.0)


def test_the_header_explains_every_field():
    """A file can be read without the program: every key has a meaning, every time its unit."""
    row = header()
    assert row["kind"] == "header"
    assert row["schema"] == "loadkit-records/1"
    assert tuple(row["fields"]) == FIELDS
    assert all(described["doc"] for described in row["fields"].values())
    units = {name: described["unit"] for name, described in row["fields"].items()}
    assert (units["ttft_ms"], units["tpot_ms"], units["prompt_tokens"]) == ("ms", "ms/token", "tokens")
    assert not [name for name, unit in units.items() if name.endswith("_ms") and not unit.startswith("ms")]
    assert {"clock", "absent", "ttft", "tpot", "itl", "success", "percentiles"} <= set(row["rules"])
