"""Reports of runs: one HTML file that needs no network, and the graph alone as SVG or Mermaid."""
