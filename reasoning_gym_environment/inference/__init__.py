"""Client library for inference servers: dialects, clients, failover, negotiation, errors."""
