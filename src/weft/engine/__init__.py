"""The Application Master's mind: a function from events to commands. No I/O, no clock, no threads."""
