"""The A2A surface: what callers see, how a message becomes a turn, and the questions on the way."""
