"""The A2A surface: what callers see, how a message becomes a turn, and the questions on the way."""

import os

# Before the SDK is imported: its spans cost 10 to 20 % of a call, and telemetry is off unless asked for.
os.environ.setdefault("OTEL_INSTRUMENTATION_A2A_SDK_ENABLED", "false")
