"""Tests of the gateway's telemetry room."""
