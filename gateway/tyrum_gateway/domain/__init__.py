"""Pure rules of the kernel: standard library only, no I/O, no clock, no asyncio."""
