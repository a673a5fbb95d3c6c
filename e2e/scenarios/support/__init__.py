"""Helpers of the scenarios: clients, load, the operators, the release."""
