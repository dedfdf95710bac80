"""Tests of the gateway's models room."""
