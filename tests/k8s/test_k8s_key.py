"""A Secret that is mounted as a file: root's, and readable by the group of the pod."""

import os
import stat

import pytest

from loadkit.plan import keys
from loadkit.plan.errors import ConfigError

KEY = "a-key-in-a-file"


@pytest.mark.parametrize(
    ("mode", "owner", "user", "taken"),
    [
        (0o440, 0, 10001, True),  # a Secret, mounted for the group of the pod
        (0o444, 0, 10001, False),
        (0o460, 0, 10001, False),
        (0o440, 10001, 10001, False),  # its owner could make it 600
        (0o440, 0, 0, False),
        (0o600, 0, 0, True),
    ],
)
def test_a_mounted_secret_is_a_key_file(tmp_path, monkeypatch, mode, owner, user, taken):
    """A pod that is not root reads a file of root's through its group; one that others could read is refused."""
    path = tmp_path / "key"
    path.write_text(KEY)
    about = os.stat_result((stat.S_IFREG | mode, 0, 0, 1, owner, 0, len(KEY), 0, 0, 0))
    with monkeypatch.context() as patch:
        patch.setattr(keys.os, "fstat", lambda _: about)
        patch.setattr(keys.os, "geteuid", lambda: user)
        try:
            read = keys.read_key_file(str(path))
        except ConfigError as error:
            read = str(error)
    assert read == KEY if taken else f"has mode {mode:03o}" in read
