"""`python -m lingraft`, which is how `torchrun` starts it: `torchrun --nproc-per-node 2 -m lingraft pretrain ...`."""

from lingraft.cli import main

if __name__ == "__main__":
    main()
