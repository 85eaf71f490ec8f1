"""Pure values and rules: standard library only, no files, no clock, no asyncio."""
