"""Tests of how a gateway is composed and where it lives."""
