"""Extensions for few jobs: each registers its events, timers and phases (`registry`), and the core names none."""
