"""Tests of the gateway's domain room."""
