"""loadkit measures how an LLM endpoint behaves as context and concurrency grow. Importing it has no effect."""

__version__ = "0.1.0"
