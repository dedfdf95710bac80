"""Tests of the configuration room."""
