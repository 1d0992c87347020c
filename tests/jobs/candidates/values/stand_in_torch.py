"""A stand-in for torch with as much of its tensors as the comparison reads; torch is huge."""

import struct
from types import SimpleNamespace


class dtype:  # noqa: N801 - torch's own name
    def __init__(self, name, form, is_floating_point):
        self.name, self.form, self.is_floating_point = name, form, is_floating_point

    def __repr__(self):
        return f"torch.{self.name}"


class device:  # noqa: N801 - torch's own name
    def __init__(self, kind):
        self.type = kind.partition(":")[0]
        self.kind = kind

    def __repr__(self):
        return self.kind


class layout:  # noqa: N801 - torch's own name
    def __init__(self, name):
        self.name = name

    def __repr__(self):
        return f"torch.{self.name}"


strided, sparse_coo, sparse_csr, sparse_csc, jagged = map(
    layout, ("strided", "sparse_coo", "sparse_csr", "sparse_csc", "jagged")
)
float32, float64 = dtype("float32", "f", True), dtype("float64", "d", True)
int64, uint8 = dtype("int64", "q", False), dtype("uint8", "B", False)
bfloat16, complex64 = dtype("bfloat16", "e", True), dtype("complex64", "ff", False)
bool = dtype("bool", "?", False)  # noqa: A001 - torch's own name
bits8 = dtype("bits8", "B", False)


class Generator:
    device = device("cpu")

    def __init__(self, seed=0):
        self.seed = seed

    def get_state(self):
        return tensor([self.seed], dtype=int64)


class Tensor:
    is_quantized = is_nested = False
    layout, names, grad = strided, (None,), None

    def __init__(self, flat, shape, kind, where="cpu", *, requires_grad=False):
        self._flat, self._shape, self._dtype = flat, shape, kind
        self._device, self._requires_grad = device(where), requires_grad

    shape = property(lambda self: self._shape)
    dtype = property(lambda self: self._dtype)
    device = property(lambda self: self._device)
    requires_grad = property(lambda self: self._requires_grad)
    is_leaf = property(lambda self: True)
    # An instance of torch has nothing of its own in its `__dict__`.
    __dict__ = property(lambda self: getattr(self, "own", {}))
    __slots__ = ("_device", "_dtype", "_flat", "_requires_grad", "_shape", "own")

    def detach(self):
        return self

    cpu = resolve_conj = resolve_neg = contiguous = detach

    def has_names(self):
        return self.names != (None,)

    def rename(self, _):
        return self

    def reshape(self, _):
        return self

    def numel(self):
        return len(self._flat)

    def untyped_storage(self):
        return SimpleNamespace(data_ptr=lambda: id(self._flat))

    def to(self, kind):
        return Tensor(self._flat, self._shape, kind)

    def view(self, _):
        data = [struct.pack(f"<{self._dtype.form}", *_parts(one)) for one in self._flat]
        return SimpleNamespace(tolist=lambda: list(b"".join(data)))


def _parts(one):
    return (one.real, one.imag) if isinstance(one, complex) else (one,)


class Size(tuple):
    __slots__ = ()


class Parameter(Tensor):
    __slots__ = ()


nn = SimpleNamespace(Parameter=Parameter)


def tensor(data, dtype=float32, device="cpu", requires_grad=False):
    rows = data if data and isinstance(data[0], list) else None
    flat = [one for row in rows for one in row] if rows else list(data)
    shape = (len(rows), len(rows[0])) if rows else (len(flat),)
    return Tensor(flat, shape, dtype, device, requires_grad=requires_grad)
