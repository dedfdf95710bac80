"""Logging and other signals for the operator."""
