"""The processes that own runs: one spawner per provider, one supervisor per run.

Everything in this package imports the standard library only and never starts a thread: supervisors are forked
from a process without grpc, asyncio or locks that another thread could hold.
"""
