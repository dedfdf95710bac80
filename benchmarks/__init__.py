"""Measurements of the gateway's promises about speed."""
