import hashlib
import re

import pytest

from loadkit.prompt import FILLERS, filler


@pytest.mark.parametrize("name", FILLERS)
def test_filler_is_varied_text_with_its_hash(name: str) -> None:
    """A filler is a few thousand characters of text in which no sentence and no character run repeats."""
    text = filler(name)
    assert text.id == name
    assert text.sha256 == hashlib.sha256(text.text.encode()).hexdigest()
    assert len(text.text) > 2000
    assert text.text == text.text.strip()
    assert re.search(r"([^0-9])\1\1", text.text) is None
    sentences = [s for s in re.split(r"[.!?。！？]\s*", text.text) if len(s) > 12]
    assert len(sentences) > 60
    assert len(set(sentences)) == len(sentences)


def test_fillers_differ_by_script() -> None:
    """The zh filler is Chinese and the en filler is ASCII."""
    assert filler("en").text.isascii()
    assert sum("\u4e00" <= c <= "\u9fff" for c in filler("zh").text) > 0.8 * len(filler("zh").text)


def test_unknown_filler_names_the_choices() -> None:
    """A wrong name is refused with the right ones."""
    with pytest.raises(ValueError, match="en, zh"):
        filler("fr")
