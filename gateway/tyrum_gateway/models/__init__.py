"""Model transports: where the next step comes from. A transport owns no turn and decides nothing."""
