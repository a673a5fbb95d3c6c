"""kubectl platform: see and operate the databases of the platform from a terminal.

The package needs no operator's code: it reads what the operators report in the Kubernetes API, so that it shows the
same as the status, and works with the rights of its user. Pure modules decide what is shown (`overview`, `health`,
`diagnosis`); `session` talks to the API server and runs kubectl; `commands` joins the two.
"""
