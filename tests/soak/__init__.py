"""`make soak`: a thousand kills of gateway and provider at random moments and in every phase.

Lanes, each with a state directory of its own, serve conversations whose commands count their own executions,
while gateways and providers are killed. Whatever happens: nothing accepted is lost, nothing runs twice,
nothing is approved twice, every turn ends, and whoever watches sees each event once.
"""
