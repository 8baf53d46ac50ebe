#!/usr/bin/env python3
"""Reads a checkpoint folder with the reference package of safetensors and says what it found.

    read_back.py FOLDER        a line for each tensor, by name: name, dtype, shape, SHA-256 of its bytes

Every file goes through the package's own parser; what numpy has a type for is read a second time
through safe_open, as engines do, and must be the same bytes. With an index, index and files must name
the same tensors. Nothing of the C++ code is used.
"""
import hashlib
import json
import pathlib
import sys

import safetensors

NUMPY_DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "I64": "int64", "I32": "int32",
                "I16": "int16", "I8": "int8", "U8": "uint8", "BOOL": "bool"}


def tensors_of(path):
    """{name: (dtype, shape, bytes)} of one file."""
    found = {}
    for name, tensor in safetensors.deserialize(path.read_bytes()):
        found[name] = (tensor["dtype"], list(tensor["shape"]), bytes(tensor["data"]))
    with safetensors.safe_open(path, framework="np") as opened:
        if opened.metadata() != {"format": "pt"}:
            sys.exit(f"{path}: its metadata is {opened.metadata()}")
        if sorted(opened.keys()) != sorted(found):
            sys.exit(f"{path}: safe_open and deserialize find different tensors")
        for name, (dtype, shape, data) in found.items():
            if dtype not in NUMPY_DTYPES:
                continue
            array = opened.get_tensor(name)
            if str(array.dtype) != NUMPY_DTYPES[dtype] or list(array.shape) != shape:
                sys.exit(f"{name}: numpy has {array.dtype} {array.shape}")
            if array.tobytes() != data:
                sys.exit(f"{name}: numpy has other bytes")
    return found


def main(folder):
    everything = {}
    for path in sorted(folder.glob("*.safetensors")):
        for name, tensor in tensors_of(path).items():
            if name in everything:
                sys.exit(f"{name}: it is in two files")
            everything[name] = (*tensor, path.name)
    index = folder / "model.safetensors.index.json"
    if index.exists():
        wanted = json.loads(index.read_text())
        if wanted["weight_map"] != {name: tensor[3] for name, tensor in everything.items()}:
            sys.exit("the index names other tensors or files than there are")
        if wanted["metadata"]["total_size"] != sum(len(t[2]) for t in everything.values()):
            sys.exit("the index has another total_size")
    for name in sorted(everything):
        dtype, shape, data, _ = everything[name]
        print(name, dtype, ",".join(map(str, shape)), hashlib.sha256(data).hexdigest(), sep="\t")
    return 0 if everything else 1


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
