"""The reconcile engine: process, watches, cache, queue, plan and executor."""
