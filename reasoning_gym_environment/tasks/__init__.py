"""The only code that knows reasoning-gym."""
