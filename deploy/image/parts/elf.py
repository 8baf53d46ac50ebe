"""The dynamic section of an ELF file: which libraries it needs, and by which name it is loaded."""

import struct

PT_LOAD, PT_DYNAMIC, PT_INTERP = 1, 2, 3
DT_NULL, DT_NEEDED, DT_STRTAB, DT_SONAME = 0, 1, 5, 14


class Elf:
    """needed, soname (or None) and interpreter (or None) of a 64-bit little-endian ELF image.

    Raises ValueError for anything else; `is_elf` says beforehand whether the bytes are one.
    """

    def __init__(self, data):
        if not is_elf(data) or data[4:6] != b"\x02\x01":
            raise ValueError("no 64-bit little-endian ELF file")
        self.needed, self.soname, self.interpreter = [], None, None
        offset, = struct.unpack_from("<Q", data, 32)
        size, count = struct.unpack_from("<HH", data, 54)
        segments = [struct.unpack_from("<IIQQQQQQ", data, offset + i * size) for i in range(count)]
        loads = [s for s in segments if s[0] == PT_LOAD]
        for kind, _, at, _, _, length, _, _ in segments:
            if kind == PT_INTERP:
                self.interpreter = data[at:at + length].split(b"\0")[0].decode()
            if kind == PT_DYNAMIC:
                self._read_dynamic(data, at, length, loads)

    def _read_dynamic(self, data, at, length, loads):
        entries = list(struct.iter_unpack("<QQ", data[at:at + length - length % 16]))
        end = next((i for i, (tag, _) in enumerate(entries) if tag == DT_NULL), len(entries))
        strings = next((value for tag, value in entries[:end] if tag == DT_STRTAB), None)
        if strings is None:
            return
        # The section has an address; the file offset is that of the segment which holds it.
        base = next(o + strings - a for _, _, o, a, _, n, _, _ in loads if a <= strings < a + n)

        def text(value):
            return data[base + value:data.index(b"\0", base + value)].decode()

        self.needed = [text(value) for tag, value in entries[:end] if tag == DT_NEEDED]
        self.soname = next((text(value) for tag, value in entries[:end] if tag == DT_SONAME), None)


def is_elf(data):
    return data[:4] == b"\x7fELF"
