"""The front end of training jobs: the files of kubeflow's training operator and Trainer v2, run by one pure controller.

A job file becomes records (`schema`), the records a graph, and `desired` decides from what is observed.
"""
