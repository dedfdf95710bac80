"""The Tyrum gateway: a small kernel that owns every decision about an agent's turn."""
