"""The page's script is made once and kept."""

from loadkit.report.html import bundle as module
from loadkit.report.html.bundle import bundle


def test_it_is_made_once_for_each_source(tmp_path, monkeypatch):
    """The second time nothing is joined; another source is another file."""
    made = []
    monkeypatch.setattr(
        module.vl_convert, "javascript_bundle", lambda source: made.append(source) or f"all of {source}"
    )
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    told = [bundle(source, environ) for source in ("a", "a", "b", "a")]
    assert (told, made) == (["all of a", "all of a", "all of b", "all of a"], ["a", "b"])
    assert len(list((tmp_path / "loadkit").iterdir())) == 2


def test_a_cache_that_cannot_be_used_costs_only_time(tmp_path, monkeypatch):
    """Where the cache folder is a file, or what it holds is no text, the script is made all the same."""
    monkeypatch.setattr(module.vl_convert, "javascript_bundle", lambda source: "joined")
    (tmp_path / "loadkit").write_text("not a folder")
    assert bundle("a", {"XDG_CACHE_HOME": str(tmp_path)}) == "joined"
    other = {"XDG_CACHE_HOME": str(tmp_path / "other")}
    assert bundle("a", other) == "joined"
    for kept in (tmp_path / "other" / "loadkit").iterdir():
        kept.write_bytes(b"\xff\xfe\xff")
    assert bundle("a", other) == "joined"
