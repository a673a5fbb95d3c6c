"""The command line of every operator: options, installation of CRDs, `helm test`."""
