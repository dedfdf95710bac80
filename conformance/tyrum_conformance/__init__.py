"""The conformance runner for provider contracts; not built yet, see conformance/README.md."""
