#!/usr/bin/env python3
"""Writes tiny checkpoints of every quant layout, and what their weights are.

    tests/model/quant/make_goldens.py [--check] FOLDER

With --check it writes nothing and compares what it would write with what is there.

Each checkpoint is a folder as its tools would write it: config.json, the quant config where the
family keeps it, model.safetensors. expected.tsv has the SHA-256 of every projection's weights as
FP32, little endian, row-major [out, in], and the first of them in full.

Everything is worked out here from the formats' definitions, weight by weight, in Python's own
arithmetic: a product or quotient of two FP32 numbers is exact enough in a double that rounding it
once more to FP32 gives what one FP32 operation gives. Only the standard library is used, and the
output depends on nothing but this file.
"""
import hashlib
import json
import pathlib
import random
import struct
import sys
import tempfile

PROJECTIONS = ("gate_proj", "up_proj", "down_proj")


def f32(value):
    """The FP32 number nearest to `value`."""
    return struct.unpack("<f", struct.pack("<f", value))[0]


def f16(value):
    return struct.unpack("<e", struct.pack("<e", value))[0]


def bf16_bits(value):
    """Nearest BF16, ties to even; no NaN here."""
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


def bf16(value):
    return struct.unpack("<f", struct.pack("<I", bf16_bits(value) << 16))[0]


def e4m3(code):
    """OFP8 E4M3: 1 sign, 4 exponent (bias 7), 3 fraction; no infinity, S.1111.111 is NaN."""
    sign = -1.0 if code & 0x80 else 1.0
    exponent, fraction = code >> 3 & 15, code & 7
    assert not (exponent == 15 and fraction == 7)
    if exponent == 0:
        return sign * fraction / 8 * 2.0 ** -6
    return sign * (1 + fraction / 8) * 2.0 ** (exponent - 7)


def e2m1(code):
    """OCP FP4: 1 sign, 2 exponent (bias 1), 1 fraction."""
    sign = -1.0 if code & 8 else 1.0
    exponent, fraction = code >> 1 & 3, code & 1
    if exponent == 0:
        return sign * fraction * 0.5
    return sign * (1 + fraction / 2) * 2.0 ** (exponent - 1)


def signed(nibble):
    return nibble - 16 if nibble >= 8 else nibble


class Source:
    """Random numbers of the kinds that checkpoints hold."""

    def __init__(self, seed):
        self.rng = random.Random(seed)

    def integers(self, count, low, high):
        return [self.rng.randint(low, high) for _ in range(count)]

    def e4m3(self, count):
        codes = [code for code in range(256) if code & 0x7F != 0x7F]
        return [self.rng.choice(codes) for _ in range(count)]

    def e4m3_scales(self, count):
        """Above zero, as scales are; the smallest ones too."""
        return self.integers(count, 1, 0x7E)

    def scales(self, count, rounding=f32):
        return [rounding(f32(self.rng.uniform(0.5, 2.0) * 2.0 ** self.rng.randint(-9, 1)))
                for _ in range(count)]


FORMATS = {"F32": "f", "F16": "e", "I8": "b", "U8": "B", "I32": "i", "I64": "q", "F8_E4M3": "B",
           "F8_E8M0": "B"}


def tensor_bytes(dtype, values):
    if dtype == "BF16":
        return struct.pack(f"<{len(values)}H", *[bf16_bits(value) for value in values])
    return struct.pack(f"<{len(values)}{FORMATS[dtype]}", *values)


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name in sorted(tensors):
        dtype, shape, values = tensors[name]
        raw = tensor_bytes(dtype, values)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


class Case:
    """One checkpoint: sizes, config, tensors and what the weights are."""

    def __init__(self, name, scheme, hidden, intermediate, experts=2, model_type="qwen3_moe",
                 container="model.layers.0.mlp.experts", parts=PROJECTIONS):
        self.name, self.scheme = name, scheme
        self.hidden, self.intermediate, self.experts = hidden, intermediate, experts
        self.container, self.parts = container, parts
        self.config = {"model_type": model_type, "hidden_size": hidden,
                       "moe_intermediate_size": intermediate, "num_experts": experts}
        self.files, self.tensors, self.expected = {}, {}, {}
        self.source = Source(name)

    def each(self):
        """(expert, projection, module, rows, columns) of every projection."""
        for expert in range(self.experts):
            for projection, part in zip(PROJECTIONS, self.parts):
                down = projection == "down_proj"
                rows = self.hidden if down else self.intermediate
                columns = self.intermediate if down else self.hidden
                yield expert, projection, f"{self.container}.{expert}.{part}", rows, columns

    def put(self, name, dtype, shape, values):
        count = 1
        for dim in shape:
            count *= dim
        assert count == len(values), (name, shape, len(values))
        self.tensors[name] = (dtype, shape, values)

    def expect(self, expert, projection, rows, columns, weight_at):
        self.expected[expert, projection] = [f32(weight_at(n, k)) for n in range(rows)
                                             for k in range(columns)]

    def write(self, folder):
        target = folder / self.name
        target.mkdir(parents=True, exist_ok=True)
        (target / "config.json").write_text(json.dumps(self.config, indent=1) + "\n")
        for name, content in self.files.items():
            (target / name).write_text(json.dumps(content, indent=1) + "\n")
        write_safetensors(target / "model.safetensors", self.tensors)

    def rows(self):
        for (expert, projection), weights in self.expected.items():
            digest = hashlib.sha256(struct.pack(f"<{len(weights)}f", *weights)).hexdigest()
            first = " ".join(value.hex() for value in weights[:4])
            yield f"{self.name}\t{self.scheme}\t{expert}\t{projection}\t{digest}\t{first}"


def fp8_block(name, hidden, intermediate, experts, suffix, scale_dtype):
    case = Case(name, "fp8_block", hidden, intermediate, experts, model_type="deepseek_v3")
    for expert, projection, module, rows, columns in case.each():
        codes = case.source.e4m3(rows * columns)
        grid = [-(-rows // 128), -(-columns // 128)]
        blocks = grid[0] * grid[1]
        if scale_dtype == "F8_E8M0":
            stored = case.source.integers(blocks, 110, 130)
            scales = [2.0 ** (byte - 127) for byte in stored]
        else:
            stored = scales = case.source.scales(blocks, bf16 if scale_dtype == "BF16" else f32)
        case.put(f"{module}.weight", "F8_E4M3", [rows, columns], codes)
        case.put(f"{module}.{suffix}", scale_dtype, grid, stored)
        case.expect(expert, projection, rows, columns, lambda n, k: e4m3(codes[n * columns + k]) *
                    scales[n // 128 * grid[1] + k // 128])
    return case


def compressed(form, weights, inputs):
    return {"quant_method": "compressed-tensors", "format": form, "ignore": ["lm_head"],
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights,
                                          "input_activations": inputs}}}


def arguments(bits, kind, strategy, group_size=None, dynamic=False, **more):
    return {"num_bits": bits, "type": kind, "strategy": strategy, "group_size": group_size,
            "symmetric": True, "dynamic": dynamic, **more}


def fp8_tensor(name, scheme, static):
    case = Case(name, scheme, 24, 16)
    case.config["quantization_config"] = {"quant_method": "fp8",
                                          "activation_scheme": "static" if static else "dynamic"}
    for expert, projection, module, rows, columns in case.each():
        codes = case.source.e4m3(rows * columns)
        scale = case.source.scales(1)
        shape = [] if expert == 0 else [1]  # both spellings of one element
        case.put(f"{module}.weight", "F8_E4M3", [rows, columns], codes)
        case.put(f"{module}.weight_scale", "F32", shape, scale)
        if static:
            case.put(f"{module}.input_scale", "F32", shape, case.source.scales(1))
        case.expect(expert, projection, rows, columns,
                    lambda n, k: e4m3(codes[n * columns + k]) * scale[0])
    return case


def fp8_channel(name):
    case = Case(name, "fp8_channel", 24, 16)
    case.config["quantization_config"] = compressed(
        "float-quantized", arguments(8, "float", "channel"),
        arguments(8, "float", "token", dynamic=True))
    for expert, projection, module, rows, columns in case.each():
        codes = case.source.e4m3(rows * columns)
        scales = case.source.scales(rows, bf16)
        case.put(f"{module}.weight", "F8_E4M3", [rows, columns], codes)
        case.put(f"{module}.weight_scale", "BF16", [rows, 1], scales)
        case.expect(expert, projection, rows, columns,
                    lambda n, k: e4m3(codes[n * columns + k]) * scales[n])
    return case


def nvfp4(name, family, unequal=False):
    """Two E2M1 in a byte, the even one in the low nibble; an E4M3 scale for 16; a global scale that
    ModelOpt multiplies with and compressed-tensors divides by."""
    case = Case(name, "nvfp4", 48, 32)
    is_modelopt = family == "modelopt"
    packed, scale_name, input_name = (
        ("weight", "weight_scale_2", "input_scale") if is_modelopt
        else ("weight_packed", "weight_global_scale", "input_global_scale"))
    gate_global = None
    for expert, projection, module, rows, columns in case.each():
        bytes_ = case.source.integers(rows * columns // 2, 0, 255)
        scales = case.source.e4m3_scales(rows * columns // 16)
        own = case.source.scales(1)[0] if is_modelopt else f32(1.0 / case.source.scales(1)[0])
        if projection == "gate_proj":
            gate_global = own
        if projection == "up_proj" and not (unequal and expert == 1):
            own = gate_global
        case.put(f"{module}.{packed}", "U8", [rows, columns // 2], bytes_)
        case.put(f"{module}.weight_scale", "F8_E4M3", [rows, columns // 16], scales)
        case.put(f"{module}.{scale_name}", "F32", [] if is_modelopt else [1], [own])
        case.put(f"{module}.{input_name}", "F32", [] if is_modelopt else [1], [0.0078125])

        def weight_at(n, k):
            nibble = bytes_[n * (columns // 2) + k // 2] >> (4 * (k % 2)) & 15
            scaled = e2m1(nibble) * e4m3(scales[n * (columns // 16) + k // 16])
            assert scaled == f32(scaled)
            return scaled * own if is_modelopt else scaled / own
        case.expect(expert, projection, rows, columns, weight_at)
    return case


def w4afp8(name):
    """Two INT4 of a row in a byte, two's complement, the even one in the low nibble."""
    case = Case(name, "w4afp8", 256, 128, experts=1, model_type="deepseek_v3")
    case.config["quantization_config"] = {"quant_method": "w4afp8", "activation_scheme": "dynamic",
                                          "weight_block_size": [128, 128], "fmt": "e4m3"}
    for expert, projection, module, rows, columns in case.each():
        values = case.source.integers(rows * columns // 2, -128, 127)
        scales = case.source.scales(rows * columns // 128, bf16)
        case.put(f"{module}.weight", "I8", [rows, columns // 2], values)
        case.put(f"{module}.weight_scale_inv", "BF16", [rows, columns // 128], scales)
        case.put(f"{module}.input_scale", "BF16", [1], case.source.scales(1, bf16))
        case.expect(expert, projection, rows, columns, lambda n, k: signed(
            (values[n * (columns // 2) + k // 2] & 255) >> (4 * (k % 2)) & 15) *
            scales[n * (columns // 128) + k // 128])
    return case


def int8_compressed(name):
    case = Case(name, "w8a8_int8", 24, 16, model_type="mixtral", parts=("w1", "w3", "w2"),
                container="model.layers.0.block_sparse_moe.experts")
    case.config["quantization_config"] = compressed(
        "int-quantized", arguments(8, "int", "channel"), arguments(8, "int", "token", dynamic=True))
    for expert, projection, module, rows, columns in case.each():
        values = case.source.integers(rows * columns, -128, 127)
        scales = case.source.scales(rows)
        case.put(f"{module}.weight", "I8", [rows, columns], values)
        case.put(f"{module}.weight_scale", "F32", [rows, 1], scales)
        case.expect(expert, projection, rows, columns,
                    lambda n, k: values[n * columns + k] * scales[n])
    return case


def describe(case, module, kind, suffixes):
    rows = case.files.setdefault("quant_model_description.json", {"version": "1.0.0"})
    for suffix in suffixes:
        rows[f"{module}.{suffix}"] = kind


def modelslim_int8(name, scheme, kinds):
    """One value in a byte, INT8 or INT4; an offset of zeros beside the scale."""
    case = Case(name, scheme, 24, 16)
    for expert, projection, module, rows, columns in case.each():
        kind = kinds[projection]
        low, high = (-8, 7) if kind == "W4A4_DYNAMIC" else (-128, 127)
        values = case.source.integers(rows * columns, low, high)
        scales = case.source.scales(rows)
        case.put(f"{module}.weight", "I8", [rows, columns], values)
        case.put(f"{module}.weight_scale", "F32", [rows, 1], scales)
        case.put(f"{module}.weight_offset", "F32", [rows, 1], [0.0] * rows)
        describe(case, module, kind, ("weight", "weight_scale", "weight_offset"))
        case.expect(expert, projection, rows, columns,
                    lambda n, k: values[n * columns + k] * scales[n])
    return case


def modelslim_w4a8(name, group):
    """Two rows in a byte, the even one in the low nibble. scale_bias is 8 times the sum of a row's
    weights; down's is kept in 16 parts of the columns."""
    case = Case(name, "w4a8_int8", 64, 32)
    for expert, projection, module, rows, columns in case.each():
        values = [case.source.integers(columns, -8, 7) for _ in range(rows)]
        scales = case.source.scales(rows)
        second = case.source.scales(rows * columns // group) if group else None

        def scale_at(n, k):
            if not group:
                return scales[n]
            return f16(f32(scales[n] * second[n * (columns // group) + k // group]))

        packed = [((values[n + 1][k] & 15) << 4 | values[n][k] & 15) for n in range(0, rows, 2)
                  for k in range(columns)]
        case.put(f"{module}.weight", "I8", [rows // 2, columns],
                 [byte - 256 if byte >= 128 else byte for byte in packed])
        case.put(f"{module}.weight_scale", "F32", [rows, 1], scales)
        case.put(f"{module}.weight_offset", "F32", [rows, 1], [0.0] * rows)
        suffixes = ["weight", "weight_scale", "weight_offset", "scale_bias"]
        if group:
            shape = [rows, columns // group]
            case.put(f"{module}.weight_scale_second", "F32", shape, second)
            case.put(f"{module}.weight_offset_second", "F32", shape, [0.0] * len(second))
            suffixes += ["weight_scale_second", "weight_offset_second"]
        parts = 16 if projection == "down_proj" else 1
        width = columns // parts
        bias = [f32(8 * sum(values[n][k] * scale_at(n, k) for k in range(p * width, (p + 1) * width)))
                for n in range(rows) for p in range(parts)]
        case.put(f"{module}.scale_bias", "F32", [rows, parts], bias)
        describe(case, module, "W4A8_DYNAMIC", suffixes)
        case.expect(expert, projection, rows, columns, lambda n, k: values[n][k] * scale_at(n, k))
    case.files["quant_model_description.json"]["group_size"] = group
    return case


def pack_quantized(name):
    """Eight INT4 of a row in 32 bits, value + 8, k = 8j + i at bits 4i."""
    case = Case(name, "w4a16_int4", 64, 32, model_type="kimi_k25",
                container="language_model.model.layers.0.mlp.experts")
    case.config["text_config"] = {"quantization_config": compressed(
        "pack-quantized", arguments(4, "int", "group", 32), None)}
    for expert, projection, module, rows, columns in case.each():
        words = case.source.integers(rows * columns // 8, -2 ** 31, 2 ** 31 - 1)
        scales = case.source.scales(rows * columns // 32, bf16)
        case.put(f"{module}.weight_packed", "I32", [rows, columns // 8], words)
        case.put(f"{module}.weight_scale", "BF16", [rows, columns // 32], scales)
        case.put(f"{module}.weight_shape", "I64", [2], [rows, columns])
        case.expect(expert, projection, rows, columns, lambda n, k: (
            (words[n * (columns // 8) + k // 8] >> (4 * (k % 8)) & 15) - 8) *
            scales[n * (columns // 32) + k // 32])
    return case


def awq(name):
    """Transposed; nibble i of word j is column 8j + ORDER[i], of weights and zero points alike."""
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    group = 32
    case = Case(name, "awq_int4", 64, 32)
    case.config["quantization_config"] = {"quant_method": "awq", "bits": 4, "group_size": group,
                                          "zero_point": True, "version": "gemm",
                                          "modules_to_not_convert": ["gate", "shared_expert"]}

    def unpack(words, lines, width):
        out = [[0] * width for _ in range(lines)]
        for line in range(lines):
            for j in range(width // 8):
                for i in range(8):
                    nibble = words[line * (width // 8) + j] >> (4 * i) & 15
                    out[line][8 * j + order[i]] = nibble
        return out

    for expert, projection, module, rows, columns in case.each():
        words = case.source.integers(columns * rows // 8, -2 ** 31, 2 ** 31 - 1)
        zeros = case.source.integers(columns // group * rows // 8, -2 ** 31, 2 ** 31 - 1)
        scales = case.source.scales(columns // group * rows, f16)
        case.put(f"{module}.qweight", "I32", [columns, rows // 8], words)
        case.put(f"{module}.qzeros", "I32", [columns // group, rows // 8], zeros)
        case.put(f"{module}.scales", "F16", [columns // group, rows], scales)
        quantized, zero_points = unpack(words, columns, rows), unpack(zeros, columns // group, rows)
        case.expect(expert, projection, rows, columns,
                    lambda n, k: (quantized[k][n] - zero_points[k // group][n]) *
                    scales[k // group * rows + n])
    return case


def packed_bf16(name):
    """All experts of a layer in one tensor, gate above up."""
    case = Case(name, "none", 12, 8, experts=3, model_type="qwen3_5_moe",
                container="model.language_model.layers.0.mlp.experts")
    rows = {"gate_up_proj": 16, "down_proj": 12}
    columns = {"gate_up_proj": 12, "down_proj": 8}
    values = {}
    for part in rows:
        values[part] = [bf16(case.source.rng.uniform(-0.05, 0.05))
                        for _ in range(3 * rows[part] * columns[part])]
        case.put(f"{case.container}.{part}", "BF16", [3, rows[part], columns[part]], values[part])
    for expert, projection, _, height, width in case.each():
        part = "down_proj" if projection == "down_proj" else "gate_up_proj"
        first = 8 if projection == "up_proj" else 0
        case.expect(expert, projection, height, width, lambda n, k: values[part][
            (expert * rows[part] + first + n) * width + k])
    return case


def all_cases():
    dynamic_block = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
                     "weight_block_size": [128, 128]}
    block = fp8_block("fp8_block", 136, 132, 1, "weight_scale_inv", "F32")
    block.config["quantization_config"] = dynamic_block
    powers = fp8_block("fp8_block_ue8m0", 24, 16, 2, "weight_scale_inv", "F8_E8M0")
    powers.config["quantization_config"] = {**dynamic_block, "scale_fmt": "ue8m0"}
    other = fp8_block("fp8_block_compressed", 24, 16, 2, "weight_scale", "BF16")
    other.config["quantization_config"] = compressed(
        "float-quantized", arguments(8, "float", "block", block_structure=[128, 128]),
        arguments(8, "float", "group", 128, dynamic=True))
    flat = nvfp4("nvfp4_modelopt_flat", "modelopt", unequal=True)
    flat.config["quantization_config"] = {
        "quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head", "*.mlp.gate"],
        "config_groups": {"group_0": {"targets": ["Linear"],
                                      "weights": {"num_bits": 4, "type": "float", "group_size": 16}}}}
    own_file = nvfp4("nvfp4_modelopt_file", "modelopt")
    own_file.files["hf_quant_config.json"] = {"quantization": {
        "quant_algo": "NVFP4", "group_size": 16, "kv_cache_quant_algo": None,
        "exclude_modules": ["lm_head"]}}
    reciprocal = nvfp4("nvfp4_compressed", "compressed-tensors")
    reciprocal.config["quantization_config"] = compressed(
        "nvfp4-pack-quantized", arguments(4, "float", "tensor_group", 16),
        arguments(4, "float", "tensor_group", 16, dynamic="local"))
    same = dict.fromkeys(PROJECTIONS, "W8A8_DYNAMIC")
    int4 = {**dict.fromkeys(PROJECTIONS, "W4A4_DYNAMIC"), "down_proj": "W8A8_DYNAMIC"}
    return [block, powers, other, fp8_tensor("fp8_tensor_static", "fp8_tensor_static", True),
            fp8_tensor("fp8_tensor_dynamic", "fp8_tensor_dynamic", False),
            fp8_channel("fp8_channel"), flat, own_file, reciprocal, w4afp8("w4afp8"),
            int8_compressed("w8a8_compressed"), modelslim_int8("modelslim_w8a8", "w8a8_int8", same),
            modelslim_int8("modelslim_w4a4", "w4a4_int4", int4),
            modelslim_w4a8("modelslim_w4a8_channel", 0), modelslim_w4a8("modelslim_w4a8_group", 16),
            pack_quantized("w4a16_kimi"), awq("awq"), packed_bf16("bf16_packed")]


def write_all(folder):
    lines = ["# checkpoint\tscheme\texpert\tprojection\tSHA-256 of the weights in FP32\tthe first four"]
    for case in all_cases():
        case.write(folder)
        lines += case.rows()
    (folder / "expected.tsv").write_text("\n".join(lines) + "\n")


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*")
            if path.is_file()}


def main(arguments):
    folder = pathlib.Path(arguments[-1])
    if arguments[:1] != ["--check"]:
        write_all(folder)
        return 0
    with tempfile.TemporaryDirectory() as temporary:
        write_all(pathlib.Path(temporary))
        wanted, found = contents(pathlib.Path(temporary)), contents(folder)
    wrong = sorted(name for name in wanted.keys() | found.keys()
                   if wanted.get(name) != found.get(name))
    if wrong:
        print(f"{', '.join(wrong)}: not what make_goldens.py writes; write them anew and look why")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
