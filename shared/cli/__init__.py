"""The command line of every operator: options, the entry point, and the check that `helm test` runs."""
