"""Composition root: the only module that knows every room of the gateway."""
