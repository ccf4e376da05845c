"""What the process that is forked for steps has when it has made its imports, of which this is the last."""

import os
import threading

import torch

PROCESS = os.getpid()
THREADS = threading.active_count()
GPU = torch.cuda.is_initialized()
