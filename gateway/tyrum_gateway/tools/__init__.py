"""The closed set of tools a model may call, and their schemas."""
