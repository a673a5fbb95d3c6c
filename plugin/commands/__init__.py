"""The commands, one module each, in `COMMANDS`; what they share is in `base`."""
