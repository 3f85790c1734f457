"""A server whose latency law is known: the truth for tests, rehearsals and selftest. It runs in its own process."""
