"""What runs tasks on the far side: the worker, and the guardian that keeps a command from outliving its owner."""
