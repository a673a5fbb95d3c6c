"""Certificates: authorities, issuing, rotation, stores and verification."""
