"""The command line: `weft run`, `ls`, `show`, `logs`, `cancel` and the others; data on stdout, all else on stderr."""
