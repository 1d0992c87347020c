"""Describes values of torch, which is not imported: they exist only if it is already loaded.

Of a tensor count dtype, shape, device, layout, names, whether it requires a gradient and is a leaf,
its gradient, every element (NaN equals NaN), and which tensors share its memory. Strides don't
count. Subclasses other than `torch.nn.Parameter` can't be compared, nor can quantized and nested
tensors.
"""

import sys
import warnings
from typing import Any

from abreast.jobs.candidates.values.object_layout import Owner, Unreadable, ValueDescription

# What makes the loaded module torch, and not another of that name.
_NEEDED = ("Tensor", "Size", "nn", "strided", "float32", "dtype", "device", "Generator")
# By dtype: how its elements lie in memory, as `struct` writes it.
_STRUCT_FORMATS = {
    f"torch.{name}": form
    for name, form in (
        *(("float16", "<e"), ("float32", "<f"), ("float64", "<d")),
        *(("int8", "<b"), ("int16", "<h"), ("int32", "<i"), ("int64", "<q")),
        *(("uint8", "<B"), ("uint16", "<H"), ("uint32", "<I"), ("uint64", "<Q")),
        *(("complex64", "<ff"), ("complex128", "<dd"), ("bool", "1s")),
    )
}


def describe(value: object) -> ValueDescription | None:
    """Describe a value of torch; None if it is something else. Raises `Unreadable`."""
    torch = sys.modules.get("torch")
    if torch is None or not all(hasattr(torch, name) for name in _NEEDED):
        return None
    return _describe(torch, value)


def _describe(torch: Any, value: Any) -> ValueDescription | None:  # noqa: ANN401 - not imported
    cls = type(value)
    if cls is torch.dtype or cls is torch.device or cls is torch.layout:
        return ValueDescription("atom", str(value))
    if cls is torch.Size:
        return ValueDescription("items", items=tuple(value))
    if cls is torch.Generator:
        state = [("device", str(value.device)), ("state", value.get_state())]
        return ValueDescription("object", state=state, identity=True)
    if not issubclass(cls, torch.Tensor):
        return None
    if cls is not torch.Tensor and cls is not torch.nn.Parameter:
        raise Unreadable("a tensor of a class that is not torch's own")
    if value.has_names() or value.layout is not torch.strided:
        with warnings.catch_warnings():  # torch warns that these are not stable yet
            warnings.simplefilter("ignore")
            return _tensor(torch, value)
    return _tensor(torch, value)


def _tensor(torch: Any, value: Any) -> ValueDescription:  # noqa: ANN401 - not imported
    if value.is_quantized or getattr(value, "is_nested", False):
        raise Unreadable("a quantized or nested tensor")
    state: list[tuple[str, object]] = [
        ("dtype", str(value.dtype)),
        ("shape", tuple(value.shape)),
        ("device", str(value.device)),
        ("layout", str(value.layout)),
        ("names", tuple(value.names) if value.has_names() else ()),
        ("requires_grad", value.requires_grad),
        ("is_leaf", value.is_leaf),
    ]
    if value.is_leaf:
        state.append(("grad", value.grad))
    state += [(f"<own>.{name}", held) for name, held in vars(value).items()]
    plain = value.detach()
    if value.device.type == "meta":  # it has no elements
        return ValueDescription("object", state=state, identity=True)
    if value.layout is not torch.strided:
        parts = _sparse_parts(torch, plain)
        return ValueDescription("object", state=[*state, *parts], identity=True)
    state.append(("<memory>", Owner(_memory_of(plain))))
    return _elements(torch, plain, state)


def _sparse_parts(torch: Any, plain: Any) -> list[tuple[str, object]]:  # noqa: ANN401 - not imported
    """The tensors that a sparse tensor is made of. Raises `Unreadable`."""
    names = {
        torch.sparse_coo: ("_indices", "_values", "is_coalesced"),
        torch.sparse_csr: ("crow_indices", "col_indices", "values"),
        torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
    }.get(plain.layout)
    if names is None:
        raise Unreadable(f"a tensor of layout {plain.layout}")
    return [(name, getattr(plain, name)()) for name in names]


def _memory_of(plain: Any) -> object:  # noqa: ANN401 - not imported
    """Return the same object for tensors of one storage, and others for others.

    Interned, as the wrapper of a storage need not be the same each time.
    """
    return sys.intern(f"{plain.device} {plain.untyped_storage().data_ptr()}")


def _elements(
    torch: Any,  # noqa: ANN401 - not imported
    plain: Any,  # noqa: ANN401 - not imported
    state: list[tuple[str, object]],
) -> ValueDescription:
    nameless = plain.rename(None) if plain.has_names() else plain
    flat = nameless.cpu().resolve_conj().resolve_neg().reshape(-1).contiguous()
    layout = _STRUCT_FORMATS.get(str(plain.dtype))
    if layout is None:
        if not plain.dtype.is_floating_point:
            raise Unreadable(f"a tensor of {plain.dtype}")
        # Narrow floats that Python has no format for: each of them is a float32, too.
        flat, layout = flat.to(torch.float32), "<f"
    data = bytes(flat.view(torch.uint8).tolist()) if flat.numel() else b""
    return ValueDescription(f"block:{layout}", data.decode("latin-1"), state=state, identity=True)
