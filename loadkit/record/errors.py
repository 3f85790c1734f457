"""What a person is told when the run folder cannot be used."""


class FolderError(Exception):
    """The run folder or a file in it cannot be made, written or read. The message is one line that says what to do."""


def reason(error: OSError) -> str:
    """The operating system's words for the error, without the number and the path."""
    return error.strerror or str(error)
