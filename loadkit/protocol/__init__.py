"""Sans-IO protocols: request bodies out, bytes in, marks and outcomes out. Nothing here reads a clock or a socket."""

from loadkit.protocol.answer import Answer, Chunk
from loadkit.protocol.contract import Protocol
from loadkit.protocol.errors import Failure, classify
from loadkit.protocol.fill import fill
from loadkit.protocol.outcome import Ending
from loadkit.protocol.parser import Parser
from loadkit.protocol.protocols import PROTOCOLS
from loadkit.protocol.replay import replay
from loadkit.protocol.retry_after import retry_after_s

__all__ = [
    "PROTOCOLS",
    "Answer",
    "Chunk",
    "Ending",
    "Failure",
    "Parser",
    "Protocol",
    "classify",
    "fill",
    "replay",
    "retry_after_s",
]
