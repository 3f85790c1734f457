"""Anyone's CSV as curves: what the column names tell, what counts as repeats, and one line for what cannot be read."""

from pathlib import Path

import pytest

from loadkit.analysis.curves import read
from loadkit.plan.errors import ConfigError

LADDER = "tokens,ttft_ms\n100,10\n200,20\n400,40\n800,80\n"


@pytest.fixture
def table(tmp_path):
    """Writes a file and returns its path."""

    def write(text):
        path = tmp_path / "table.csv"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def repeats(curve):
    return {point.x: list(point.repeats) for point in curve.points}


def test_names_of_columns_say_what_they_are(table):
    """tokens is a length and ttft_ms a TTFT; the first column is x."""
    (curve,) = read(table(LADDER))
    assert (curve.axis, curve.metric, curve.columns) == ("length", "ttft", ["ttft_ms"])
    assert repeats(curve) == {100: [10], 200: [20], 400: [40], 800: [80]}


@pytest.mark.parametrize(
    ("column", "axis"),
    [
        ("prompt_tokens", "length"),
        ("Context length", "length"),
        ("users", "concurrency"),
        ("Concurrency", "concurrency"),
    ],
)
def test_an_axis_is_told_by_its_name(table, column, axis):
    """Usual names of both axes, in any case."""
    assert read(table(f"{column},ttft\n1,2\n"))[0].axis == axis


@pytest.mark.parametrize(
    ("column", "metric"),
    [
        ("TTFT (s)", "ttft"),
        ("time to first token_ms", "ttft"),
        ("tok/s", "throughput"),
        ("output_tokens_per_s", "throughput"),
        ("e2e_latency", "latency"),
        ("prefill_s", "ttft"),
    ],
)
def test_a_metric_is_told_by_its_name(table, column, metric):
    """Rates before times: output_tokens_per_s ends like a time in seconds and is none."""
    assert read(table(f"users,{column}\n1,2\n"))[0].metric == metric


def test_a_comment_names_the_axis_and_others_are_passed_over(table):
    """Published tables carry their source in lines with #; one of them may say the axis of a plain x."""
    text = "# title: a server, 5000 in\n# axis: concurrency\nx,ttft_s,throughput\n1,0.4,50\n# note\n5,0.5,220\n"
    first, second = read(table(text))
    assert (first.axis, first.metric, repeats(first)) == ("concurrency", "ttft", {1: [0.4], 5: [0.5]})
    assert (second.axis, second.metric, repeats(second)) == ("concurrency", "throughput", {1: [50], 5: [220]})


def test_repeats_are_rows_or_columns(table):
    """Two rows of one x, and three columns of one metric, are the same kind of evidence."""
    (rows,) = read(table("tokens,ttft\n100,1\n200,2\n100,1.5\n"))
    (columns,) = read(table("tokens,ttft_1,ttft_2,ttft_3\n100,1,1.5,1.2\n200,2,,2.2\n"))
    assert repeats(rows) == {100: [1, 1.5], 200: [2]}
    assert repeats(columns) == {100: [1, 1.5, 1.2], 200: [2, 2.2]}


def test_options_choose_columns_axis_and_metric(table):
    """What is named wins over what the names tell."""
    path = table("run,n,a,b\n7,1,2,3\n7,2,4,5\n")
    (curve,) = read(path, x="n", y=["a", "b"], axis="concurrency", metric="latency")
    assert (curve.axis, curve.metric, repeats(curve)) == ("concurrency", "latency", {1: [2, 3], 2: [4, 5]})


def test_other_separators_and_a_byte_order_mark_are_read(table):
    """Spreadsheets write semicolons, tabs and a BOM."""
    assert repeats(read(table(b"\xef\xbb\xbftokens;ttft\n100;1\n"))[0]) == {100: [1]}
    assert repeats(read(table("tokens\tttft\r\n100\t1\r\n"))[0]) == {100: [1]}


def test_an_entry_that_is_no_number_is_left_out_and_named(table):
    """A tier that ran out of memory is dropped with what stood there; an empty field says nothing."""
    (curve,) = read(table("tokens,ttft\n100,1\n200,OOM\n400,\n800,0\n1600,4\n"))
    assert repeats(curve) == {100: [1], 1600: [4]}
    assert curve.dropped == [
        {"x": 200.0, "reason": "'OOM' is no number above 0"},
        {"x": 800.0, "reason": "'0' is no number above 0"},
    ]


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        ("", {}, "is empty"),
        ("# only a comment\n", {}, "is empty"),
        ("tokens,ttft\n", {}, "has column names and no rows"),
        ("1,2\n3,4\n", {}, "has no line of column names"),
        ("just some text\nof a letter\n", {}, "has no line of column names"),
        ("tokens,ttft\n1,2,3\n", {}, "line 2 has 3 fields and the header 2"),
        ("tokens,ttft\nmany,2\n", {}, "line 2: 'many' in column 'tokens' is no number > 0"),
        ("tokens,ttft\n-5,2\n", {}, "line 2: '-5'"),
        ("tokens,ttft\nnan,2\n", {}, "line 2: 'nan'"),
        ("tokens,ttft\n1,x\n", {}, "no number above 0 in column 'ttft'"),
        ("x,ttft\n1,2\n", {}, "column 'x' does not say what it is: give --axis"),
        ("tokens,value\n1,2\n", {}, "no column says what it measures: give --metric"),
        ("tokens,value,ttft\n1,2,3\n", {"y": ["value"]}, "column 'value' does not say what it measures"),
        ("tokens,ttft\n1,2\n", {"x": "length"}, "no column 'length'; it has tokens, ttft"),
        ("tokens,ttft\n1,2\n", {"y": ["tpot"]}, "no column 'tpot'"),
        (b"\xff\xfe\x00\x01", {}, "is not a text file"),
        (b"PK\x03\x04\x00\x00,\x00", {}, "column names"),
    ],
)
def test_a_foreign_file_gives_one_line(table, text, options, said):
    """Whatever the file is, the error is one line that says what is wrong with it."""
    with pytest.raises(ConfigError) as caught:
        read(table(text), **options)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_and_a_folder_give_one_line(tmp_path):
    """What cannot be opened is named."""
    for path in (tmp_path / "none.csv", tmp_path):
        with pytest.raises(ConfigError, match="cannot read"):
            read(path)


@pytest.mark.parametrize(
    ("header", "kinds"),
    [
        ("ttft_1,ttft_2", [["ttft_1", "ttft_2"]]),
        ("ttft1_ms,ttft2_ms", [["ttft1_ms", "ttft2_ms"]]),
        ("TTFT run 1 (s),TTFT run 2 (s)", [["TTFT run 1 (s)", "TTFT run 2 (s)"]]),
        ("ttft_p50_ms,ttft_p99_ms", [["ttft_p50_ms"], ["ttft_p99_ms"]]),
        ("ttft_mean,ttft_std", [["ttft_mean"], ["ttft_std"]]),
        ("ttft_s,ttft_ms", [["ttft_s"], ["ttft_ms"]]),
        ("tpot_ms,e2e_ms", [["tpot_ms"], ["e2e_ms"]]),
        ("requests/s,tokens/s", [["requests/s"], ["tokens/s"]]),
    ],
)
def test_columns_of_another_kind_are_no_repeats(table, header, kinds):
    """Only the number of a repeat may differ: another unit, statistic or quantity is a curve of its own."""
    curves = read(table(f"tokens,{header}\n100,1,2\n"), axis="length")
    assert [curve.columns for curve in curves] == kinds


def test_what_the_user_names_together_is_one_curve(table):
    """The columns of --y are repeats by the user's word, with or without a metric."""
    path = table("tokens,ttft_warm,ttft_cold\n100,1,2\n")
    assert [repeats(curve) for curve in read(path, y=["ttft_warm", "ttft_cold"])] == [{100: [1, 2]}]
    assert [repeats(curve) for curve in read(path, y=["ttft_warm", "ttft_cold"], metric="ttft")] == [{100: [1, 2]}]
    assert len(read(path)) == len(read(path, metric="ttft")) == 2


def test_decimal_commas_are_named(table):
    """A spreadsheet of a country with decimal commas: the line says what a decimal sign is here."""
    with pytest.raises(ConfigError, match=r"no number above 0 in column 'ttft'; a decimal sign is a point$"):
        read(table("tokens;ttft\n100;1,5\n200;2,5\n"))


def test_a_device_is_read_no_further_than_a_table_is_long():
    """/dev/zero has no size and no end."""
    with pytest.raises(ConfigError, match="larger than 64 MB"):
        read(Path("/dev/zero"))
