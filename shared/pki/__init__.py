"""Certificates: certificate authorities, issuing, rotation, stores and verification."""
