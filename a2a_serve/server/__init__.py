"""The A2A surface: what callers see, how a message becomes a turn, and the questions on the way."""

import os

# Before the SDK is imported: its spans cost 10 to 20 % of a call, and telemetry is off unless asked for.
os.environ.setdefault("OTEL_INSTRUMENTATION_A2A_SDK_ENABLED", "false")
# Before gRPC is: its fork handlers print a line on our terminal for each agent process that is started.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
