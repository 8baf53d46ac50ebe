#!/usr/bin/env python3
"""Writes preset_fits.tsv: which wire dtype rows of each preset get on each kind of device.

Worked out from the rules as they are written down (scheme, then hardware, then mode), not from the
C++ code. `--check FOLDER` compares instead of writing.
"""
import pathlib
import sys

PRESETS = {  # experts, top-k, schemes
    "deepseek-v3": (256, 8, ["fp8_block", "w4afp8", "w8a8_int8", "w4a8_int8", "nvfp4"]),
    "deepseek-r1": (256, 8, ["fp8_block", "w4afp8", "w8a8_int8", "w4a8_int8", "nvfp4"]),
    "kimi-k2": (384, 8, ["fp8_block"]),
    "kimi-k2.5": (384, 8, ["w4a16_int4"]),
    "qwen3.5-397b-a17b": (512, 10, ["none", "fp8_block", "nvfp4", "w8a8_int8"]),
    "qwen3.5-35b-a3b": (256, 8, ["none", "w8a8_int8"]),
    "qwen3-next-80b-a3b": (512, 10, ["none", "fp8_block"]),
    "qwen3-235b-a22b": (128, 8, ["none", "fp8_block"]),
    "qwen3-30b-a3b": (128, 8, ["none", "fp8_block"]),
}
# kind, most of top-k and of tokens in low_latency (0: no bound), experts divide by ranks
PROFILES = {
    "cpu": ("cpu", 32, 0, False),
    "deepep_v1": ("cuda", 11, 1024, True),
    "cuda_sm90": ("cuda", 32, 0, False),
    "cuda_sm100": ("cuda", 32, 0, False),
    "ascend_a2": ("ascend", 16, 512, True),
    "ascend_a3": ("ascend", 16, 512, True),
    "ascend_a5": ("ascend", 16, 512, True),
}
TOKENS = 512


def travels(scheme, profile, mode, ranks):
    kind = PROFILES[profile][0]
    if scheme in ("none", "w4a16_int4", "w4afp8"):
        return "bf16"  # what these experts take when nobody asks for more
    if scheme == "fp8_block":  # NPUs would send INT8 in its place, which such experts do not take
        return "bf16" if kind == "ascend" else "fp8"
    if scheme == "nvfp4":
        if kind == "ascend":
            return "-"  # refused, not replaced
        able = profile in ("cpu", "cuda_sm100")
        return "nvfp4" if able and mode == "low_latency" else "bf16"
    if kind == "cuda":  # GPUs have no INT8 rows
        return "bf16" if scheme == "w8a8_int8" else "-"
    if profile == "ascend_a2" and mode == "normal" and ranks > 8:  # the way between nodes
        return "bf16" if scheme == "w8a8_int8" else "-"
    return "int8"


def cell(preset, scheme, profile, mode, ranks):
    experts, top_k, _ = PRESETS[preset]
    _, most_top_k, most_tokens, divides = PROFILES[profile]
    if divides and experts % ranks:
        return "-"
    if mode == "low_latency" and (top_k > most_top_k or 0 < most_tokens < TOKENS):
        return "-"
    return travels(scheme, profile, mode, ranks)


def table():
    lines = [
        "# Wire dtype of rows that nobody asked for, by ranks; -: this use is refused.",
        "# preset<TAB>scheme<TAB>device profile<TAB>mode<TAB>8<TAB>16<TAB>32<TAB>64",
    ]
    for preset, (_, _, schemes) in PRESETS.items():
        for scheme in schemes:
            for profile in PROFILES:
                for mode in ("normal", "low_latency"):
                    cells = [cell(preset, scheme, profile, mode, r) for r in (8, 16, 32, 64)]
                    lines.append("\t".join([preset, scheme, profile, mode, *cells]))
    return "\n".join(lines) + "\n"


def main():
    folder = pathlib.Path(sys.argv[-1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
    path = folder / "preset_fits.tsv"
    if "--check" not in sys.argv:
        path.write_text(table())
        return 0
    if path.read_text() == table():
        return 0
    print(f"{path} is not what this script writes; run it and read the difference")
    return 1


if __name__ == "__main__":
    sys.exit(main())
