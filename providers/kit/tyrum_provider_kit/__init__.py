"""The provider's side of the provider protocol, for providers written in Python; optional."""
