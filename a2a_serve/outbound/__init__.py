"""Calls from here to elsewhere: other agents, model APIs."""
