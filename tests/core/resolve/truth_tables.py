#!/usr/bin/env python3
"""Writes the truth tables of the dispatch dtype from its definition, for the C++ to be held against.

    tests/core/resolve/truth_tables.py [FOLDER]      default: testdata beside this file

Nothing here is read from the C++ sources: each function below is one column of the table of the
dispatch semantics (SGLang PR 22822 as merged and as drafted, and the order of this service), as a
chain of conditions in the order of its steps. A cell is dtype@step, or error@step.

sglang_compat.tsv, draft.tsv   5 options x 2 flags x 4 configs, 4 runners x 3 devices across
merged.tsv                     the same for each scheme, "-" being an unknown one
differences_draft.tsv          every input where draft is not sglang_compat
differences_merged.tsv         every input where merged is not sglang_compat
"""
import itertools
import pathlib
import sys

OPTIONS = ["auto", "bf16", "fp8", "int8", "nvfp4"]
FLAGS = [0, 1]
CONFIGS = ["null", "scale", "key", "both"]  # key: dispatcher_output_dtype is int8
RUNNERS = ["auto", "deep_gemm", "flashinfer_cutedsl", "cutlass"]
DEVICES = ["cuda", "ascend_a2", "cpu"]
SCHEMES = ["-", "none", "fp8_block", "fp8_tensor_static", "fp8_tensor_dynamic", "fp8_channel",
           "nvfp4", "w4afp8", "w8a8_int8", "w4a8_int8", "w4a4_int4", "w4a16_int4", "awq_int4",
           "mxfp8"]
KEY = "int8"


def sglang_compat(option, flag, config, runner, device, _scheme):
    if option != "auto":
        return option + "@0"
    if flag:
        return "bf16@1"
    if config in ("scale", "both"):
        return "nvfp4@2"
    if config == "key":
        return KEY + "@3"
    if runner in ("flashinfer_cutedsl", "cutlass"):
        return "bf16@4"
    if device == "ascend_a2":
        return "bf16@5"
    return "fp8@6"


def draft(option, flag, config, runner, device, _scheme):
    if flag:
        return "bf16@0"
    if option != "auto":
        return "error@1" if option == "int8" else option + "@1"
    if config in ("scale", "both"):
        return "nvfp4@2"
    if config == "key":
        return "error@3" if KEY == "int8" else KEY + "@3"
    if runner == "flashinfer_cutedsl":
        return "bf16@4"
    if device == "ascend_a2":
        return "bf16@5"
    return "fp8@6"


def preferred(scheme, device):
    """Column "dispatch auto" of the table of schemes, for a layer without a global scale."""
    if scheme == "fp8_block":
        return "bf16" if device == "ascend_a2" else "fp8"
    if scheme == "w8a8_int8":
        return "bf16" if device == "cuda" else "int8"
    if scheme == "w4a8_int8":
        return "int8"
    return "bf16"


def merged(option, flag, config, runner, device, scheme):
    if option != "auto":
        return option + "@0"
    if flag:
        return "bf16@1"
    if config in ("scale", "both"):
        return "nvfp4@2"
    if config == "key":
        return KEY + "@3"
    if runner in ("flashinfer_cutedsl", "cutlass"):
        return "bf16@4"
    if scheme != "-":
        return preferred(scheme, device) + "@3b"
    if device == "ascend_a2":
        return "bf16@5"
    if device == "cpu":
        return "bf16@5b"
    return "fp8@6"


def table(rule, schemes):
    lines = ["scheme\toption\tflag\tconfig\t" +
             "\t".join(f"{runner}/{device}" for runner in RUNNERS for device in DEVICES)]
    for scheme, option, flag, config in itertools.product(schemes, OPTIONS, FLAGS, CONFIGS):
        cells = [rule(option, flag, config, runner, device, scheme)
                 for runner in RUNNERS for device in DEVICES]
        lines.append("\t".join([scheme, option, str(flag), config] + cells))
    return lines


def differences(one, other, schemes):
    lines = [f"scheme\toption\tflag\tconfig\trunner\tdevice\t{one.__name__}\t{other.__name__}"]
    for row in itertools.product(schemes, OPTIONS, FLAGS, CONFIGS, RUNNERS, DEVICES):
        scheme, option, flag, config, runner, device = row
        cells = [rule(option, flag, config, runner, device, scheme) for rule in (one, other)]
        if cells[0].split("@")[0] != cells[1].split("@")[0]:
            lines.append("\t".join(map(str, row)) + "\t" + "\t".join(cells))
    return lines


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else
                          pathlib.Path(__file__).parent / "testdata")
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in {
            "sglang_compat.tsv": table(sglang_compat, ["-"]),
            "draft.tsv": table(draft, ["-"]),
            "merged.tsv": table(merged, SCHEMES),
            "differences_draft.tsv": differences(sglang_compat, draft, ["-"]),
            "differences_merged.tsv": differences(sglang_compat, merged, SCHEMES),
    }.items():
        (folder / name).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
