"""Telemetry: what the gateway says about itself, to operators, without secrets."""
