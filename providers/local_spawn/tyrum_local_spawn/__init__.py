"""Isolation provider that starts plain host processes; it confines nothing."""
