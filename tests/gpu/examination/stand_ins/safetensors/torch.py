"""`safetensors.torch.save_file` for the scripts: the examined machine may have PyTorch alone."""

import ctypes
import json

import torch

DTYPES = {
    torch.float32: "F32",
    torch.float64: "F64",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.int64: "I64",
}


def save_file(tensors, path):
    """A header of JSON after its length in 8 bytes, then the tensors' bytes."""
    header, parts, end = {}, [], 0
    for name, tensor in tensors.items():
        tensor = tensor.detach().cpu().contiguous()
        content = ctypes.string_at(tensor.data_ptr(), tensor.nbytes)
        begin, end = end, end + len(content)
        shape = list(tensor.shape)
        header[name] = {"dtype": DTYPES[tensor.dtype], "shape": shape, "data_offsets": [begin, end]}
        parts.append(content)
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for part in parts:
            file.write(part)
