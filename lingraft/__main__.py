"""The program `lingraft`; `torchrun` starts it as a module: `torchrun --nproc-per-node 2 -m lingraft pretrain ...`."""

from lingraft.signals import end_quietly_on_ctrl_c


def main() -> None:
    """Run the command line of this process."""
    end_quietly_on_ctrl_c()
    from lingraft import cli

    cli.main()


if __name__ == "__main__":
    main()
