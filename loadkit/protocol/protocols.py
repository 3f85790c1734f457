"""Every protocol by name: the one line a new protocol adds."""

from loadkit.protocol import anthropic, ollama, openai
from loadkit.protocol.contract import Protocol

PROTOCOLS: dict[str, Protocol] = {
    protocol.name: protocol for protocol in (openai.CHAT, openai.COMPLETIONS, anthropic.MESSAGES, ollama.CHAT)
}
