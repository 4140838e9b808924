"""A plan: records and their schema, the page, prefill and decode apart."""
