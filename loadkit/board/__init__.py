"""Edge boards: what they are, how to reach them, and clocks held still while they are measured."""
