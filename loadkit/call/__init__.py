"""One measured request: `request.Caller` drives attempts over a transport of `choose` and returns a Record."""
