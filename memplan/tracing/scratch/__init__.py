"""Memory that kernels take and return inside one op: tables of rules, each with its source."""
