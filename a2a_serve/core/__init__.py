"""Values and decisions: standard library only, no sockets, no asyncio, no clock (time is a parameter)."""
