"""Tools: what a model can ask for. A tool checks and resolves a call and executes it; it never decides."""
