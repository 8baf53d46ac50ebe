#!/usr/bin/env python3
"""Tables of the number formats and of encoded rows, from the formats' definitions.

Exact rational arithmetic throughout: a code's value is sign * fraction * 2^exponent, a conversion
goes to the nearest value (of two equally near ones, to that with the even code), an FP32 operation is the
exact result rounded once. Shares nothing with the C++ code that the tables test.

  number_tables.py FOLDER            writes the tables
  number_tables.py --check FOLDER    exits with 1 when a table there is not what would be written
"""
import functools
import random
import struct
import sys
from fractions import Fraction
from pathlib import Path

INF = float("inf")
NAN = "nan"


def floor_log2(value):
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    return exponent if Fraction(2) ** exponent <= value else exponent - 1


class Format:
    """A binary format: 1 sign bit, `ebits` of exponent, `mbits` of fraction.

    `specials`: "ieee" (the largest exponent holds infinity and NaN), "fn" (only the largest code is NaN) or
    "none".
    """

    def __init__(self, ebits, mbits, bias, specials):
        self.ebits, self.mbits, self.bias, self.specials = ebits, mbits, bias, specials
        self.sign = 1 << (ebits + mbits)
        last = {"ieee": ((1 << ebits) - 1) << mbits, "fn": self.sign - 1, "none": self.sign}[specials]
        self.max_code = last - 1
        self.max = self.magnitude(self.max_code)

    @functools.cache
    def magnitude(self, code):
        exponent, fraction = code >> self.mbits, code & ((1 << self.mbits) - 1)
        if exponent == 0:
            return Fraction(fraction) * Fraction(2) ** (1 - self.bias - self.mbits)
        return (Fraction((1 << self.mbits) + fraction)
                * Fraction(2) ** (exponent - self.bias - self.mbits))

    def value(self, code):
        """A Fraction, INF, -INF or NAN."""
        magnitude = code & (self.sign - 1)
        if magnitude > self.max_code:
            if self.specials == "ieee" and magnitude == self.max_code + 1:
                return -INF if code & self.sign else INF
            return NAN
        return -self.magnitude(magnitude) if code & self.sign else self.magnitude(magnitude)

    def nearest(self, magnitude, saturate):
        """The code of a magnitude (a Fraction >= 0, or INF)."""
        beyond = self.max_code if saturate else self.max_code + 1
        if magnitude == INF:
            return beyond
        exponent = 1 - self.bias  # of the smallest normal number
        if magnitude > 0:
            exponent = max(exponent, floor_log2(magnitude))
        steps = magnitude / Fraction(2) ** (exponent - self.mbits)
        # round() takes ties to even, and a code is even when its number of steps is.
        code = round(steps) + ((exponent - (1 - self.bias)) << self.mbits)
        return code if code <= self.max_code else beyond

    def check_nearest(self, magnitude, code):
        """Panics unless `code` is the nearest of all values, the even one of two."""
        distances = [abs(self.magnitude(c) - magnitude) for c in range(self.max_code + 1)]
        least = min(distances)
        near = [c for c, distance in enumerate(distances) if distance == least]
        assert code == (near[0] if len(near) == 1 else next(c for c in near if c % 2 == 0))


FP32 = Format(8, 23, 127, "ieee")
BF16 = Format(8, 7, 127, "ieee")
E4M3 = Format(4, 3, 7, "fn")
E2M1 = Format(2, 1, 1, "none")


def f32(value):
    """A Fraction >= 0 rounded to FP32, as a Fraction or INF."""
    if value == INF:
        return INF
    code = FP32.nearest(value, saturate=False)
    return FP32.value(code)


def f32_bits(value):
    return FP32.nearest(value, saturate=False)


# --- conversions of single values ---------------------------------------------------------------


def convert_lines(fmt, nan_code):
    """fp32 bits -> code: every value and every tie of the format, their FP32 neighbors, the ends."""
    patterns = set()
    for code in range(fmt.max_code + 1):
        patterns.add(f32_bits(fmt.magnitude(code)))
        if code < fmt.max_code:
            tie = (fmt.magnitude(code) + fmt.magnitude(code + 1)) / 2
            bits = f32_bits(tie)
            assert FP32.value(bits) == tie
            patterns.add(bits)
    step = fmt.max - fmt.magnitude(fmt.max_code - 1)
    for beyond in (fmt.max + step / 2, fmt.max + step, fmt.max * 2, fmt.max * 1000):
        patterns.add(f32_bits(beyond))
    patterns |= {1, 2, 0x007fffff, 0x00800000, 0x7f7fffff}
    for bits in list(patterns):
        patterns |= {max(bits - 1, 0), min(bits + 1, 0x7f800000)}
    rng = random.Random(88)
    for _ in range(2000):
        patterns.add(rng.randrange(0x30000000, 0x48000000))
    for bits in sorted(patterns):
        value = FP32.value(bits)
        code = fmt.nearest(value, saturate=True)
        if value != INF and bits % 7 == 0:  # the slow, obvious search, on some
            fmt.check_nearest(value, code)
        yield f"{bits:08x}\t{code:02x}"
        yield f"{bits | 0x80000000:08x}\t{code | fmt.sign:02x}"
    for bits in (0x7f800001, 0x7fc00000, 0x7fffffff):
        yield f"{bits:08x}\t{nan_code(0):02x}"
        yield f"{bits | 0x80000000:08x}\t{nan_code(1):02x}"


def value_lines(fmt):
    """code -> fp32 bits; NaN as the quiet one of its sign."""
    for code in range(2 * fmt.sign):
        value = fmt.value(code)
        sign = 0x80000000 if code & fmt.sign else 0
        bits = 0x7fc00000 if value == NAN else f32_bits(abs(value))
        yield f"{code:02x}\t{bits | sign:08x}"


def ue8m0_value(byte):
    return NAN if byte == 255 else Fraction(2) ** (byte - 127)


UE8M0_VALUES = [ue8m0_value(byte) for byte in range(255)]


def ue8m0_round_up(value):
    if value == INF:
        return 254
    for byte in range(255):
        if UE8M0_VALUES[byte] >= value:
            return byte
    return 254


def ue8m0_value_lines():
    for byte in range(256):
        value = ue8m0_value(byte)
        yield f"{byte:02x}\t{0x7fc00000 if value == NAN else f32_bits(value):08x}"


def ue8m0_round_up_lines():
    patterns = {0, 1, 0x7f7fffff, 0x7f800000}
    for byte in range(255):
        bits = f32_bits(ue8m0_value(byte))
        patterns |= {bits - 1, bits, bits + 1, bits + 0x200000}
    for bits in sorted(patterns):
        yield f"{bits:08x}\t{ue8m0_round_up(FP32.value(bits)):02x}"
    for bits in (0x7f800001, 0x7fc00000, 0xffc00000, 0xbf800000, 0xff800000, 0x80000001):
        yield f"{bits:08x}\tff"
    yield "80000000\t00"


# --- encoded rows -------------------------------------------------------------------------------
# A row is a list of BF16 patterns. An encoder returns (data bytes, scale bytes); a group with a NaN or an
# infinity has a NaN scale, and its codes are NaN where the format has one, else 0.

BF16_NAN = 0x7fc0


def magnitude(pattern):
    """Fraction of a finite BF16 pattern."""
    return abs(BF16.value(pattern))


def finite(group):
    return all((p & 0x7fff) < 0x7f80 for p in group)


def negative(pattern):
    return pattern >> 15


def groups_of(row, size):
    return [row[at:at + size] for at in range(0, len(row), size)]


def fp32_bytes(bits):
    return struct.pack("<I", bits)


def encode_fp8(row, power_of_two):
    data, scales = bytearray(), bytearray()
    for group in groups_of(row, 128):
        if not finite(group):
            scales += bytes([0xff]) if power_of_two else fp32_bytes(0x7fc00000)
            data += bytes([0x7f]) * len(group)
            continue
        amax = max([f32(Fraction(1, 10000))] + [magnitude(p) for p in group])
        scale = f32(amax / 448)
        if power_of_two:
            byte = ue8m0_round_up(scale)
            factor = 1 / ue8m0_value(byte)
            scales.append(byte)
        else:
            factor = f32(448 / amax)
            scales += fp32_bytes(f32_bits(scale))
        for p in group:
            data.append(E4M3.nearest(f32(magnitude(p) * factor), saturate=True) | negative(p) << 7)
    return bytes(data), bytes(scales)


def encode_int8(row):
    if not finite(row):
        return bytes(len(row)), fp32_bytes(0x7fc00000)
    scale = f32(max(magnitude(p) for p in row) / 127)
    data = bytearray()
    for p in row:
        code = 0
        if scale != 0:
            code = round(f32(magnitude(p) / scale))  # of a Fraction: ties to even
            code = max(-128, min(127, -code if negative(p) else code))
        data += struct.pack("b", code)
    return bytes(data), fp32_bytes(f32_bits(scale))


def encode_nvfp4(row, global_scale):
    codes, scales = [], bytearray()
    for block in groups_of(row, 16):
        if not finite(block):
            scales.append(0x7f)
            codes += [0] * len(block)
            continue
        product = f32(global_scale * max(magnitude(p) for p in block))
        scale = E4M3.nearest(INF if product == INF else f32(product / 6), saturate=True)
        scales.append(scale)
        factor = f32(global_scale / E4M3.magnitude(scale)) if scale else Fraction(0)
        for p in block:
            x = magnitude(p)
            scaled = INF if factor == INF and x != 0 else f32(x * factor)
            codes.append(E2M1.nearest(scaled, saturate=True) | negative(p) << 3)
    codes += [0] * (len(codes) % 2)
    return bytes(codes[i] | codes[i + 1] << 4 for i in range(0, len(codes), 2)), bytes(scales)


def bf16_bits(sign, value):
    """BF16 pattern of a magnitude that is an FP32 value."""
    return BF16.nearest(value, saturate=False) | sign << 15


def decode_fp8(data, scales, power_of_two):
    out = []
    for i, code in enumerate(data):
        if power_of_two:
            scale = ue8m0_value(scales[i // 128])
        else:
            scale = FP32.value(struct.unpack_from("<I", scales, i // 128 * 4)[0])
        value = E4M3.value(code)
        if NAN in (scale, value):
            out.append(BF16_NAN)
        else:
            out.append(bf16_bits(code >> 7, f32(abs(value) * scale)))
    return out


def decode_int8(data, scales):
    scale = FP32.value(struct.unpack("<I", scales)[0])
    if scale == NAN:
        return [BF16_NAN] * len(data)
    codes = struct.unpack(f"{len(data)}b", data)
    return [bf16_bits(int(c < 0), f32(abs(c) * scale)) for c in codes]


def decode_nvfp4(data, scales, hidden, global_scale):
    out = []
    for i in range(hidden):
        code = data[i // 2] >> 4 * (i % 2) & 0xf
        scale = E4M3.value(scales[i // 16])
        if scale == NAN:
            out.append(BF16_NAN)
        else:
            product = E2M1.magnitude(code & 7) * abs(scale)  # exact in FP32
            out.append(bf16_bits(code >> 3, f32(product / global_scale)))
    return out


def bf16(value):
    """The pattern of an exact BF16 value."""
    value = Fraction(value)
    pattern = BF16.nearest(abs(value), saturate=False)
    assert abs(BF16.value(pattern)) == abs(value), value
    return pattern | (0x8000 if value < 0 else 0)


def gauss(rng, hidden, deviation):
    return [BF16.nearest(Fraction(abs(v)), False) | (0x8000 if v < 0 else 0)
            for v in (rng.gauss(0, deviation) for _ in range(hidden))]


def rows():
    rng = random.Random(36)
    for hidden in (1, 2, 15, 16, 17, 31, 33, 127, 128, 129, 300, 531):
        yield gauss(rng, hidden, 1.0)
    yield gauss(rng, 270, 3e-6)      # everything below the floor of amax
    yield gauss(rng, 270, 2.0**-128)  # denormals among them
    yield gauss(rng, 270, 1e37)
    yield [rng.randrange(0x7f80) | rng.randrange(2) << 15 for _ in range(270)]  # any finite number
    yield [rng.randrange(1, 0x80) | rng.randrange(2) << 15 for _ in range(40)]  # denormals alone
    yield [rng.choice((0, 0x8000)) for _ in range(140)]
    # Groups of 16 and of 128 that are zero beside some that are not.
    yield [0] * 16 + gauss(rng, 16, 2.0) + [0] * 96 + [0] * 128 + gauss(rng, 20, 1.0)
    for special in (0x7f80, 0xff80, 0x7fc1, 0xffff, 0x7f81):
        row = gauss(rng, 300, 1.0)
        row[200] = special
        yield row
    row = gauss(rng, 45, 1.0)
    row[40] = 0x7fc0  # in a short block of an odd row
    yield row
    yield from order_rows()
    # The BF16 numbers on both sides of the floor of amax, 1e-4.
    for amax in (0x38d0, 0x38d1, 0x38d2, 0x38d3, 0x38d4):
        yield [amax] + gauss(rng, 20, 1e-5)
    # Golden amax of the UE8M0 scale, each in a group of its own.
    yield [p for amax in (1, Fraction(7, 2), 7, 448, 1000) for p in [bf16(amax)] + gauss(rng, 127, 0.2)]
    # Every tie and value of E4M3 with a factor of one.
    for sign in (1, -1):
        codes = [E4M3.magnitude(c) for c in range(E4M3.max_code + 1)]
        ties = [(a + b) / 2 for a, b in zip(codes, codes[1:])]
        yield [bf16(448)] + [bf16(sign * t) for t in ties[:127]]
        yield [bf16(448)] + [bf16(sign * v) for v in codes]
    # Ties of INT8 with a scale of one.
    yield [bf16(127)] + [bf16(s * (Fraction(k) + Fraction(1, 2))) for k in range(127) for s in (1, -1)]


def order_rows():
    """Rows whose codes would be others if the factor were not computed first (FP8), or were (INT8)."""
    for mantissa in (*range(133, 256, 7), 254):
        amax = Fraction(mantissa, 64)
        values = [v for v in (Fraction(m, 128) / scale for scale in (1, 2, 4, 8)
                              for m in range(128, 256)) if v < amax]
        fp8 = [v for v in values
               if E4M3.nearest(f32(v * f32(448 / amax)), True)
               != E4M3.nearest(f32(f32(v * 448) / amax), True)]
        int8 = [v for v in values
                if round(f32(v / f32(amax / 127))) != round(f32(v * f32(127 / amax)))]
        if fp8 or int8:
            yield [bf16(v) for v in ([amax] + fp8[:40] + int8[:40])]


def nvfp4_order_rows():
    """(row, global scale) where the order of two operations shows in a code or in a decoded value."""
    rng = random.Random(39)
    for _ in range(40):  # (g * amax) / 6, not g * (amax / 6)
        amax, tie = Fraction(rng.randrange(128, 256), 64), Fraction(2 * rng.randrange(8, 16) + 1, 16)
        bits = f32_bits(6 * tie / amax)
        for g in (FP32.value(b) for b in range(bits - 3, bits + 4)):
            product = E4M3.nearest(f32(f32(g * amax) / 6), True)
            if product != E4M3.nearest(f32(g * f32(amax / 6)), True):
                yield [bf16(amax)] + gauss(rng, 3, 0.5), g
    for _ in range(150):  # (q * scale) / g, not q * (scale / g)
        q, amax = Fraction(3), Fraction(6)
        scale = E4M3.magnitude(rng.randrange(0x50, 0x78))
        tie = Fraction(2 * rng.randrange(128, 256) + 1, 2) * Fraction(2) ** -7
        g = f32(q * scale / tie)
        if E4M3.nearest(f32(f32(g * amax) / 6), True) != E4M3.nearest(scale, True):
            amax = Fraction(0)
            for pattern in range(0x3f00, 0x4200):  # a largest value that gives this scale
                if E4M3.magnitude(E4M3.nearest(f32(f32(g * magnitude(pattern)) / 6), True)) == scale:
                    amax = magnitude(pattern)
                    break
        one = BF16.nearest(f32(q * scale / g), False)
        if amax != 0 and one != BF16.nearest(f32(q * f32(scale / g)), False):
            factor = f32(g / scale)
            x = next((p for p in range(0x3c00, 0x4200)
                      if E2M1.nearest(f32(magnitude(p) * factor), True) == 5), None)
            if x is not None and magnitude(x) <= amax:
                yield [bf16(amax), x], g


def nvfp4_rows():
    """(row, global scale)."""
    rng = random.Random(37)
    ties = [Fraction(t) / 4 for t in (1, 3, 5, 7, 10, 14, 20)]
    # With a global scale of 448 and a largest value of 6 the block's scale is 448 and the factor one.
    yield [bf16(6)] + [bf16(s * t) for t in ties for s in (1, -1)] + [bf16(-6)], Fraction(448)
    values = [E2M1.magnitude(c) for c in range(8)]
    yield [bf16(s * v) for v in values for s in (1, -1)], Fraction(448)
    for row in rows():
        yield row, f32(Fraction(448 * 6) / 4)  # a tensor whose largest value is 4
    for global_scale in (Fraction(2) ** -20, Fraction(3, 4), Fraction(2) ** 30):
        yield gauss(rng, 100, 1.0), global_scale
    # A tensor that outgrew its calibration: block scales saturate, and then the codes.
    yield gauss(rng, 100, 50.0), f32(Fraction(448 * 6) / 4)
    yield from nvfp4_order_rows()
    # So small that the block's scale is zero.
    yield gauss(rng, 100, 1e-6), Fraction(448)


def hexes(patterns):
    return "".join(f"{p:04x}" for p in patterns)


def row_lines():
    for row in rows():
        for name, power_of_two in (("fp8", False), ("fp8_ue8m0", True)):
            data, scales = encode_fp8(row, power_of_two)
            out = decode_fp8(data, scales, power_of_two)
            yield f"{name}\t3f800000\t{hexes(row)}\t{data.hex()}\t{scales.hex()}\t{hexes(out)}"
        data, scales = encode_int8(row)
        out = decode_int8(data, scales)
        yield f"int8\t3f800000\t{hexes(row)}\t{data.hex()}\t{scales.hex()}\t{hexes(out)}"
    for row, g in nvfp4_rows():
        data, scales = encode_nvfp4(row, g)
        out = decode_nvfp4(data, scales, len(row), g)
        yield f"nvfp4\t{f32_bits(g):08x}\t{hexes(row)}\t{data.hex()}\t{scales.hex()}\t{hexes(out)}"


def tables():
    return {
        "e4m3_values.tsv": ("code, fp32", value_lines(E4M3)),
        "e4m3_rounding.tsv": ("fp32, code", convert_lines(E4M3, lambda sign: 0x7f | sign << 7)),
        "e2m1_values.tsv": ("code, fp32", value_lines(E2M1)),
        # There is no NaN: it becomes +6.
        "e2m1_rounding.tsv": ("fp32, code", convert_lines(E2M1, lambda sign: 0x7)),
        "ue8m0_values.tsv": ("byte, fp32", ue8m0_value_lines()),
        "ue8m0_rounding.tsv": ("fp32, byte rounded up", ue8m0_round_up_lines()),
        "encoded_rows.tsv": ("format, global scale (fp32), row (bf16), data, scales, decoded (bf16)",
                             row_lines()),
    }


def main(arguments):
    check = arguments[:1] == ["--check"]
    folder = Path(arguments[-1])
    wrong = []
    for name, (columns, lines) in tables().items():
        text = f"# {columns}; written by tests/reference/number_tables.py\n" + "\n".join(lines) + "\n"
        if not check:
            (folder / name).write_text(text)
        elif not (folder / name).exists() or (folder / name).read_text() != text:
            wrong.append(name)
    if wrong:
        print(f"{', '.join(wrong)}: not what number_tables.py writes; write them anew and look why")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
