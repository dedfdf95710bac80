"""Tests of the gateway's tools room."""
