"""What every pass may use: identity of ops, the ledger, policies, rewriting."""
