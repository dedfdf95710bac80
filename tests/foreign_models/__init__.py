"""Model servers that nobody here wrote."""
