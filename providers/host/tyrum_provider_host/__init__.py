"""The gateway's side of the provider protocol: launch, handshake, admission, supervision."""
