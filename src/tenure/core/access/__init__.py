"""Who may call and what they may do: keys, principals, permissions, task tokens, the audit log.

Pure like all of the core: edges check, the engine stores.
"""
