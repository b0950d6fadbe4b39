"""Decides whether a tenant may have what it asks for, keeps the usage behind that, and says why."""

__version__ = "0.1.0"
