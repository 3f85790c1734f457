"""Numbers recomputed from a file, ours or another tool's, without measuring anything."""
