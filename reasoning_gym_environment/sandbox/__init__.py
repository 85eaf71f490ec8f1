"""Worker processes for all of reasoning-gym, and the containment of those that see model text."""
