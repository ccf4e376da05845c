"""`python -m benchmarks.mutations`: break the library in known ways and see whether the fast tests notice.

Each mutation replaces one passage of one file in a copy of the tree. The tests named beside it run first, and the whole
fast suite where these pass. A mutation that no test notices is a test that is missing.
"""

import argparse
import ast
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from lingraft.artifacts.files import write_text
from lingraft.errors import LingraftError

ROOT = Path(__file__).parents[1]
_PYTEST = ("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", "not integration and not nightly")
_FAILED, _STOPPED = 1, 2
"""Exit codes of pytest where at least one test failed; the second one with several workers, which `-x` stops."""
_OWN_TESTS = "--ignore=tests/benchmarks/test_mutations.py"
"""The tests of this list look for the passages themselves."""


class Mutation(NamedTuple):
    """One mistake that a developer could make."""

    name: str
    file: str
    before: str
    """Passage that is replaced; it occurs exactly once in the file."""
    after: str
    tests: tuple[str, ...]
    """Tests that are most likely to notice, relative to `tests/`."""

    def apply(self, tree: Path) -> None:
        """Replace the passage in a copy of the tree.

        Raises:
            LingraftError: the passage is not there exactly once, so the mutation has to be written anew.
        """
        file = tree / self.file
        text = file.read_text(encoding="utf-8")
        if text.count(self.before) != 1:
            raise LingraftError(
                f"mutation {self.name!r}: its passage occurs {text.count(self.before)} times in {self.file}, not once. "
                "Write it anew in benchmarks/mutations.py."
            )
        mutated = text.replace(self.before, self.after)
        ast.parse(mutated)  # a file that does not compile fails every test, which says nothing of the tests
        file.write_text(mutated, encoding="utf-8")


class Outcome(NamedTuple):
    """Whether the fast tests noticed a mutation, and by which test first."""

    name: str
    caught_by: str | None
    whole_suite: bool
    """Whether the tests named beside the mutation passed, so that the whole fast suite was run."""
    elapsed_s: float


MUTATIONS = (
    Mutation(
        "the body is not frozen during adaptation",
        "lingraft/model/encoder.py",
        "    model.requires_grad_(False)\n",
        "    model.requires_grad_(True)\n",
        ("stages/test_stages.py",),
    ),
    Mutation(
        "adaptation trains the layers beside the embeddings",
        "lingraft/stages/adapt.py",
        "trained = freeze_except(mini, vocabulary.parameters())",
        "trained = freeze_except(mini, mini.parameters())",
        ("stages/test_stages.py",),
    ),
    Mutation(
        "gradients of rotary positions are not turned back",
        "lingraft/model/kernels/attention.py",
        "_rotate_(to_packed_3BHTK[:2], cos_TK, -sin_TK)",
        "_rotate_(to_packed_3BHTK[:2], cos_TK, sin_TK)",
        ("model/kernels/test_pre_norm_kernel.py",),
    ),
    Mutation(
        "keys of the block before get no gradient in local attention",
        "lingraft/model/kernels/attention.py",
        "    for shift in range(LOCAL_BLOCKS):\n        total",
        "    for shift in range(1, LOCAL_BLOCKS):\n        total",
        ("model/kernels/test_pre_norm_kernel.py",),
    ),
    Mutation(
        "finetuning trains the vocabulary",
        "lingraft/stages/finetune.py",
        "fixed = {*encoder.vocabulary.parameters(), *encoder.heads.parameters()}",
        "fixed = {*encoder.heads.parameters()}",
        ("stages/test_stages.py",),
    ),
    Mutation(
        "the mini-model takes the head of another depth",
        "lingraft/model/encoder.py",
        "primary.heads[str(headed)] if head is None",
        "primary.heads[str(primary.depths[-1])] if head is None",
        ("model/test_mini_model.py", "stages/test_build_mini.py"),
    ),
    Mutation(
        "MINIPOST's fresh layers stand below the primary's",
        "lingraft/model/encoder.py",
        "nn.ModuleList([*primary.layers[:depth], *fresh])",
        "nn.ModuleList([*fresh, *primary.layers[:depth]])",
        ("model/test_mini_model.py", "stages/test_build_mini.py"),
    ),
    Mutation(
        "the mini-model has the top layers of the primary",
        "lingraft/model/encoder.py",
        "nn.ModuleList([*primary.layers[:depth], *fresh])",
        "nn.ModuleList([*primary.layers[-depth:], *fresh])",
        ("model/test_mini_model.py", "stages/test_build_mini.py"),
    ),
    Mutation(
        "rows of shared pieces are not copied",
        "lingraft/model/initialisation/initial_rows.py",
        "table_VD[targets], bias_V[targets] = source_VD[sources], source_V[sources]",
        "bias_V[targets] = source_V[sources]",
        ("model/initialisation/test_initial_rows.py",),
    ),
    Mutation(
        "the output bias of shared pieces is not copied",
        "lingraft/model/initialisation/initial_rows.py",
        "table_VD[targets], bias_V[targets] = source_VD[sources], source_V[sources]",
        "table_VD[targets] = source_VD[sources]",
        ("model/initialisation/test_initial_rows.py",),
    ),
    Mutation(
        "special rows are not the source's",
        "lingraft/model/initialisation/initial_rows.py",
        "    shared |= dict(zip(target_pieces.special, source_pieces.special, strict=True))\n",
        "",
        ("model/initialisation/test_initial_rows.py",),
    ),
    Mutation(
        "a piece that begins a word is taken for one that continues it",
        "lingraft/model/initialisation/initial_rows.py",
        "agreeing = (None, False, True) if wanted.initial is None else (wanted.initial, None)",
        "agreeing = (None, False, True)",
        ("model/initialisation/test_initial_rows.py",),
    ),
    Mutation(
        "the swap leaves the output bias of the language before",
        "lingraft/model/swap.py",
        "    previous, encoder.vocabulary = encoder.vocabulary, vocabulary\n",
        "    previous, encoder.vocabulary = encoder.vocabulary, vocabulary\n    vocabulary.bias_V = previous.bias_V\n",
        ("model/test_swap.py",),
    ),
    Mutation(
        "embeddings of another primary are swapped in",
        "lingraft/artifacts/artifact.py",
        "    if aligned_with != primary:\n",
        "    if aligned_with is None:\n",
        ("model/test_loading.py", "artifacts/test_artifact.py"),
    ),
    Mutation(
        "losses of the heads are added, not averaged",
        "lingraft/training/masked_lm.py",
        "return torch.stack(losses).mean() / max(len(masked.targets_M), 1)",
        "return torch.stack(losses).sum() / max(len(masked.targets_M), 1)",
        ("training/test_masked_lm.py",),
    ),
    Mutation(
        "only the last head's loss counts",
        "lingraft/training/masked_lm.py",
        "return torch.stack(losses).mean() / max(len(masked.targets_M), 1)",
        "return losses[-1] / max(len(masked.targets_M), 1)",
        ("training/test_masked_lm.py",),
    ),
    Mutation(
        "masked tokens are judged with dropout",
        "lingraft/training/masked_lm.py",
        "    encoder.eval()\n",
        "    encoder.train()\n",
        ("training/test_masked_lm.py",),
    ),
    Mutation(
        "special tokens are masked, too",
        "lingraft/data/masking.py",
        "lots_BT = lots_BT.masked_fill(pieces.special_V[tokens_BT], -1)",
        "lots_BT = lots_BT.clone()",
        ("data/test_masking.py",),
    ),
    Mutation(
        "all chosen tokens are replaced by the mask",
        "lingraft/data/masking.py",
        "_REPLACED_BY_MASK, _REPLACED_AT_RANDOM = 0.8, 0.1",
        "_REPLACED_BY_MASK, _REPLACED_AT_RANDOM = 1.0, 0.0",
        ("data/test_masking.py",),
    ),
    Mutation(
        "padding is attended to",
        "lingraft/model/encoder.py",
        "visible_B11T = None if visible_BT is None else visible_BT[:, None, None, :]",
        "visible_B11T = None",
        ("model/test_encoder.py", "huggingface/test_weights.py"),
    ),
    Mutation(
        "padding is attended to in a served batch",
        "lingraft/serving/bundle.py",
        "visible_BT = np.arange(lengths_B.max()) < lengths_B[:, None]",
        "visible_BT = np.ones((len(encoded), lengths_B.max()), bool)",
        ("serving/test_answers.py", "export/test_bundling.py"),
    ),
    Mutation(
        "the languages of a served batch are crossed",
        "lingraft/serving/bundle.py",
        "self.languages[language].table.rows(np.asarray(ids))",
        "self.languages[encoded[0][0]].table.rows(np.asarray(ids))",
        ("serving/test_answers.py", "export/test_bundling.py"),
    ),
    Mutation(
        "rows of different versions of a bundle share a batch",
        "lingraft/serving/queue.py",
        "if each.snapshot is first.snapshot and each is not first]",
        "if each is not first]",
        ("serving/test_queue.py",),
    ),
    Mutation(
        "outputs of a batch go to its requests in another order",
        "lingraft/serving/queue.py",
        "for each, output in zip(batch, found, strict=True):",
        "for each, output in zip(batch, reversed(found), strict=True):",
        ("serving/test_queue.py",),
    ),
    Mutation(
        "int8 rows are read without their scales",
        "lingraft/bundle/tables.py",
        "return rows_ND if self.scale_V is None else rows_ND * self.scale_V[ids_N, None]",
        "return rows_ND",
        ("export/test_precision.py",),
    ),
    Mutation(
        "golden answers are not compared when a bundle is opened",
        "lingraft/serving/served_bundles.py",
        "            bundle.run_self_test()\n",
        "            bundle.languages.values()\n",
        ("serving/test_served.py", "export/test_bundling.py"),
    ),
    Mutation(
        "files are not compared with their hashes",
        "lingraft/artifacts/artifact.py",
        "        if actual != expected:\n",
        "        if not actual:\n",
        ("artifacts/test_artifact.py",),
    ),
    Mutation(
        "the gate's interval is turned",
        "lingraft/tracking/promotion/gate.py",
        "lower, upper = np.quantile(differences_R, [tail, 1 - tail])",
        "upper, lower = np.quantile(differences_R, [tail, 1 - tail])",
        ("tracking/promotion/test_gate.py", "tracking/promotion/test_bootstrap.py"),
    ),
    Mutation(
        "the gate compares the estimate, not the interval's lower end",
        "lingraft/tracking/promotion/gate.py",
        "beats = found.lower > gate.margin",
        "beats = found.estimate > gate.margin",
        ("tracking/promotion/test_gate.py", "tracking/promotion/test_bootstrap.py"),
    ),
    Mutation(
        "the gate lets a task fall",
        "lingraft/tracking/promotion/gate.py",
        "holds = found.lower > -tolerance",
        "holds = found.upper > -tolerance",
        ("tracking/promotion/test_gate.py", "tracking/promotion/test_bootstrap.py"),
    ),
    Mutation(
        "training goes on a step late",
        "lingraft/training/loop.py",
        "steps = range(state.step + 1, 1 +",
        "steps = range(state.step + 2, 1 +",
        ("training/test_checkpoint.py", "training/test_loop.py", "interrupted"),
    ),
    Mutation(
        "moments are not restored",
        "lingraft/training/optimizer.py",
        "name: tensor.to(parameter.device, copy=True) for name, tensor in named.items() if tensor is not None",
        "name: torch.zeros_like(tensor) for name, tensor in named.items() if tensor is not None",
        ("training/test_optimizer.py", "training/test_checkpoint.py", "interrupted"),
    ),
    Mutation(
        "dropout is the same in every step",
        "lingraft/training/loop.py",
        'derive_seed("dropout", seed, step, first + number)',
        'derive_seed("dropout", seed, 1, first + number)',
        ("training/test_loop.py",),
    ),
    Mutation(
        "a step that is not finite is taken",
        "lingraft/training/optimizer.py",
        "found_inf=bad.float()",
        "found_inf=torch.zeros_like(norm)",
        ("training/test_optimizer.py", "training/test_loop.py"),
    ),
    Mutation(
        "biases and LayerNorms decay",
        "lingraft/training/optimizer.py",
        '"weight_decay": 0.0}',
        '"weight_decay": weight_decay}',
        ("training/test_optimizer.py",),
    ),
    Mutation(
        "the learning rate does not warm up",
        "lingraft/training/schedule.py",
        "return self.learning_rate * place / self.warmup_steps",
        "return self.learning_rate",
        ("training/test_loop.py",),
    ),
    Mutation(
        "FLOPs are counted without the head",
        "lingraft/model/flops.py",
        "(2 * self._pass() + 2 * self._head + self.mask_rate * self._projection)",
        "2 * self._pass()",
        ("reports/cost",),
    ),
    Mutation(
        "near-maximal performance ignores the baseline",
        "lingraft/reports/paper/efficiency.py",
        "return baseline + NEAR_MAXIMAL * (reference - baseline)",
        "return NEAR_MAXIMAL * reference",
        ("reports/paper/test_efficiency.py",),
    ),
    Mutation(
        "the best dev score's weights are not put back",
        "lingraft/training/training_state.py",
        "            parameter.copy_(weight)\n",
        "            pass\n",
        ("training/test_loop_endings.py", "training/test_loop.py"),
    ),
    Mutation(
        "a look at the dev score leaves dropout off",
        "lingraft/training/masked_lm.py",
        "        trained.train()\n",
        "        pass\n",
        ("training/test_stage_output.py",),
    ),
    Mutation(
        "a look at a task's dev score leaves dropout off",
        "lingraft/stages/finetune.py",
        "        net.train()\n",
        "        pass\n",
        ("stages/test_stages.py",),
    ),
    Mutation(
        "blocks of another tokenizer are taken",
        "lingraft/data/blocks.py",
        "    if made_with != tokenizer.hash:\n",
        "    if made_with is None:\n",
        ("data/test_blocks.py",),
    ),
    Mutation(
        "the special ids of a vocabulary are always ours",
        "lingraft/model/swap.py",
        "    vocabulary = Vocabulary(0, table_VD.shape[1], special)\n",
        "    vocabulary = Vocabulary(0, table_VD.shape[1])\n",
        ("model/test_swap.py", "huggingface"),
    ),
    Mutation(
        "a task's scores are of the initial embeddings",
        "lingraft/stages/evaluate.py",
        "after = evaluate_tasks(tests, lambda model: model.swap_in(learned))",
        "after = evaluate_tasks(tests, lambda model: (model.swap_in(learned), swap(model.net.encoder, untrained)))",
        ("stages/test_evaluate.py",),
    ),
    Mutation(
        "a task's initial scores are of the learned embeddings",
        "lingraft/stages/evaluate.py",
        "before = evaluate_tasks(tests, lambda model: swap(model.net.encoder, untrained))",
        "before = evaluate_tasks(tests, lambda model: model.swap_in(learned))",
        ("stages/test_evaluate.py",),
    ),
    Mutation(
        "pieces on both sides of </s> are counted as neighbours",
        "lingraft/model/initialisation/static_vectors.py",
        "unbroken_NT = unbroken_NT[:, :-1] & text_NT[:, distance:]",
        "unbroken_NT = text_NT[:, :-distance] & text_NT[:, distance:]",
        ("model/initialisation/test_static_vectors.py",),
    ),
    Mutation(
        "both maps of an alignment are learned from the same half of the known pairs",
        "lingraft/model/initialisation/vector_alignment.py",
        "known.select(order[number::2])",
        "known.select(order[::2])",
        ("model/initialisation/test_vector_alignment.py",),
    ),
    Mutation(
        "known pairs are not kept while an alignment is learned",
        "lingraft/model/initialisation/vector_alignment.py",
        "map_WW = _fit_map(spaces, known, found.both_ways)",
        "map_WW = _fit_map(spaces, found.both_ways)",
        ("model/initialisation/test_vector_alignment.py",),
    ),
    Mutation(
        "neighbours are taken by cosine, without CSLS",
        "lingraft/model/initialisation/vector_alignment.py",
        "    scores_CC = similarity_CC.sub_(around_C / 2)\n",
        "    scores_CC = similarity_CC\n",
        ("model/initialisation/test_vector_alignment.py",),
    ),
    Mutation(
        "shared words are copied whether or not the alignment agrees",
        "lingraft/model/initialisation/mixed_rows.py",
        "self.classes[target] not in _WORDS or not len(near) or source in near",
        "self.classes[target] in PieceClass",
        ("model/initialisation/test_aligned_rows.py",),
    ),
    Mutation(
        "rows come from neighbours of an alignment that has failed",
        "lingraft/model/initialisation/aligned_rows.py",
        "    succeeded = alignment.succeeded\n",
        "    succeeded = True\n",
        ("model/initialisation/test_aligned_rows.py",),
    ),
    Mutation(
        "rows from translations are taken whatever they add to the masked loss",
        "lingraft/model/initialisation/aligned_rows.py",
        "        if of_translations <= MOST_ADDED_LOSS:\n",
        "        if of_translations:\n",
        ("model/initialisation/test_aligned_rows.py",),
    ),
    Mutation(
        "rows that a dictionary aligned are refused by the masked loss, too",
        "lingraft/model/initialisation/aligned_rows.py",
        "        succeeded = is_known or of_neighbours <= ",
        "        succeeded = of_neighbours <= ",
        ("model/initialisation/test_aligned_rows.py",),
    ),
    Mutation(
        "shared pieces pass for a dictionary that aligned them",
        "lingraft/model/initialisation/aligned_rows.py",
        "            and 2 * len(translated_P) > alignment.known_pairs\n",
        "",
        ("model/initialisation/test_aligned_rows.py",),
    ),
    Mutation(
        "special pieces are left out of what aligned rows count as copied",
        "lingraft/model/initialisation/mixed_rows.py",
        "exact = self._agreeing_pieces(weights_TS) | self.special",
        "exact = self._agreeing_pieces(weights_TS)",
        ("model/initialisation/test_aligned_rows.py",),
    ),
    Mutation(
        "rows are learned from pairs that alignment is measured on",
        "lingraft/stages/initialise.py",
        "        if is_held_out(pair):",
        "        if False:",
        ("stages/test_initialise.py",),
    ),
    Mutation(
        "the mini-model's masked accuracy is reported as the primary's",
        "lingraft/stages/evaluate.py",
        "        primary=primary.score,\n",
        "        primary=mini.score,\n",
        ("stages/test_evaluate.py",),
    ),
)


def run(mutation: Mutation, root: Path, whole: bool = True) -> Outcome:
    """Apply a mutation to a copy of the tree and run the fast tests on it.

    Args:
        mutation: change that breaks the library.
        root: tree of the project; it stays as it is.
        whole: whether the whole fast suite runs where the mutation's own tests notice nothing.

    Raises:
        LingraftError: the passage is not there, or the tests cannot run.
    """
    started_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="lingraft-mutation-") as folder:
        tree = Path(folder) / "tree"
        shutil.copytree(root, tree, ignore=shutil.ignore_patterns(".git", ".venv", ".demo", "*.pyc", ".*_cache"))
        mutation.apply(tree)
        named = [test for test in mutation.tests if (tree / "tests" / test).exists()]
        caught = _first_failure(tree, [f"tests/{test}" for test in named]) if named else None
        searched = caught is None and whole
        if searched:
            caught = _first_failure(tree, ["tests", "--numprocesses=auto", "--dist=worksteal"])
    return Outcome(mutation.name, caught, searched, round(time.monotonic() - started_s, 1))


def _first_failure(tree: Path, arguments: Sequence[str]) -> str | None:
    """Name of the first test that fails, or none."""
    # The copy comes before the installed tree, in children as well.
    environment = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": ""}
    command = [sys.executable, *_PYTEST, _OWN_TESTS, *arguments]
    found = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    if found.returncode == 0:
        return None
    failures = [line for line in found.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    if found.returncode not in (_FAILED, _STOPPED) or not failures:
        raise LingraftError(
            f"the tests did not run (exit code {found.returncode}): {(found.stdout + found.stderr)[-2000:]}"
        )
    return failures[0].split(" - ")[0].split(" ", 1)[1]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run mutations, write the record, and return how many nothing noticed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutations", description=__doc__)
    parser.add_argument("--root", type=Path, default=ROOT, help="tree that is mutated; default: this one")
    parser.add_argument("--only", default="", help="run only mutations whose name contains this")
    parser.add_argument("--record", type=Path, help="write what came out as JSON; outcomes that it has are kept")
    parser.add_argument("--quick", action="store_true", help="run only the tests named beside each mutation")
    options = parser.parse_args(arguments)
    record: dict[str, Outcome] = {}
    if options.record and options.record.exists():
        record = {each["name"]: Outcome(**each) for each in json.loads(options.record.read_text(encoding="utf-8"))}
    chosen = [each for each in MUTATIONS if options.only in each.name and each.name not in record]
    for number, mutation in enumerate(chosen, 1):
        outcome = record[mutation.name] = run(mutation, options.root, whole=not options.quick)
        print(
            f"[{number}/{len(chosen)}] {mutation.name}: {outcome.caught_by or 'MISSED'} ({outcome.elapsed_s} s)",
            flush=True,
        )
        if options.record:
            write_text(options.record, json.dumps([each._asdict() for each in record.values()], indent=1) + "\n")
    missed = [each.name for each in record.values() if each.caught_by is None]
    print(
        f"{len(record) - len(missed)} of {len(record)} mutations are caught" + (f"; missed: {missed}" if missed else "")
    )
    return len(missed)


if __name__ == "__main__":
    sys.exit(main())
