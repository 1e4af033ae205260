"""A made-up PyTorch for tests/gpu/script_test.sh: tensors are shapes and types, nothing is computed, but shapes that do not
fit are refused as PyTorch refuses them. Only what tests/gpu/torch_*.py call. MADE_UP_TORCH names what shall go wrong:
profiler (it throws), memory (models of more than a billion parameters do not fit), cudnn (its attention takes no shape).
Whatever lies between two events has taken a tenth of a millisecond a call of attention, a fifth for its gradients.
"""

import contextlib
import os
import sys
import time
import types

__version__ = "0.made-up"
version = types.SimpleNamespace(cuda="13.0")
float32, bfloat16, int64 = "float32", "bfloat16", "int64"
WRONG = os.environ.get("MADE_UP_TORCH", "").split(",")
used = set()  # of what the profiler would see


def product(shape):
    n = 1
    for s in shape:
        n *= s
    return n


def broadcast(a, b):
    n = max(len(a), len(b))
    a, b = (1,) * (n - len(a)) + tuple(a), (1,) * (n - len(b)) + tuple(b)
    if any(x != y and 1 not in (x, y) for x, y in zip(a, b)):
        raise RuntimeError(f"shapes {a} and {b} do not fit")
    return tuple(max(x, y) for x, y in zip(a, b))


class Tensor:
    def __init__(self, shape, dtype=float32):
        self.shape, self.dtype, self.device = tuple(shape), dtype, "cuda"
        self.grad, self.owners = None, ()

    def numel(self):
        return product(self.shape)

    def dim(self):
        return len(self.shape)

    def like(self, *shape, dtype=None):
        out = Tensor(shape, dtype or self.dtype)
        out.owners = self.owners
        return out

    def view(self, *shape):
        if -1 in shape:
            rest = product(s for s in shape if s != -1)
            shape = tuple(self.numel() // rest if s == -1 else s for s in shape)
        if product(shape) != self.numel():
            raise RuntimeError(f"view {shape} of {self.shape}")
        return self.like(*shape)

    reshape = view

    def transpose(self, i, j):
        shape = list(self.shape)
        shape[i], shape[j] = shape[j], shape[i]
        return self.like(*shape)

    def split(self, sizes, dim):
        assert dim == -1
        if sum(sizes) != self.shape[-1]:
            raise RuntimeError(f"split {sizes} of {self.shape}")
        return [self.like(*self.shape[:-1], n) for n in sizes]

    def chunk(self, n, dim):
        return self.split((self.shape[-1] // n,) * n, dim)

    def to(self, dtype):
        return self.like(*self.shape, dtype=dtype)

    def float(self):
        return self.to(float32)

    def detach(self):
        return self.like(*self.shape)

    cos = sin = detach

    def binary(self, other):
        if not isinstance(other, Tensor):
            return self.like(*self.shape)
        out = self.like(*broadcast(self.shape, other.shape))
        out.owners = self.owners or other.owners
        return out

    __add__ = __sub__ = __mul__ = __truediv__ = __rpow__ = binary

    def __neg__(self):
        return self.like(*self.shape)

    def __getitem__(self, key):
        if isinstance(key, slice):
            return self.like(len(range(self.shape[0])[key]), *self.shape[1:])
        if key >= self.shape[0]:
            raise IndexError(key)
        return self.like(*self.shape[1:])

    def backward(self):
        for p in self.owners:
            p.grad = Tensor(p.shape, p.dtype)


class Parameter(Tensor):
    def __init__(self, of):
        super().__init__(of.shape, of.dtype)


class Module:
    def __init__(self):
        self.kept = {}

    def __setattr__(self, name, value):
        if isinstance(value, (Parameter, Module)):
            self.kept[name] = value
        object.__setattr__(self, name, value)

    def parameters(self):
        seen = {}
        for value in self.kept.values():
            for p in [value] if isinstance(value, Parameter) else value.parameters():
                seen[id(p)] = p
        return iter(seen.values())

    def register_buffer(self, name, value, persistent):
        assert not persistent
        setattr(self, name, value)

    def to(self, dtype):
        for p in self.parameters():
            p.dtype = dtype
        return self

    def __call__(self, *args):
        out = self.forward(*args)
        if isinstance(out, Tensor) and out.shape == ():
            out.owners = tuple(self.parameters())
        return out


class Linear(Module):
    def __init__(self, inner, out, bias):
        super().__init__()
        self.inner, self.out, self.weight = inner, out, Parameter(Tensor((out, inner)))
        self.bias = Parameter(Tensor((out,))) if bias else None

    def forward(self, x):
        if x.shape[-1] != self.inner or self.weight.shape != (self.out, self.inner):
            raise RuntimeError(f"{x.shape} times {self.weight.shape}")
        if not amp and x.dtype != self.weight.dtype:
            raise RuntimeError(f"{x.dtype} times {self.weight.dtype}")
        return Tensor((*x.shape[:-1], self.out), bfloat16 if amp else x.dtype)


class Embedding(Module):
    def __init__(self, rows, cols):
        super().__init__()
        self.weight = Parameter(Tensor((rows, cols)))

    def forward(self, ids):
        return Tensor((*ids.shape, self.weight.shape[1]), self.weight.dtype)


class LayerNorm(Module):
    def __init__(self, cols):
        super().__init__()
        self.weight, self.bias = Parameter(Tensor((cols,))), Parameter(Tensor((cols,)))

    def forward(self, x):
        broadcast(x.shape, self.weight.shape)
        return Tensor(x.shape, float32 if amp else x.dtype)


class ModuleList(Module):
    def __init__(self, items):
        super().__init__()
        for i, item in enumerate(items):
            setattr(self, str(i), item)

    def __iter__(self):
        return iter(self.kept.values())


queued_ms = 0.0  # by all calls so far, as events see it
backend = None  # of sdpa_kernel


def sdpa(q, k, v, is_causal, enable_gqa=False):
    global queued_ms
    assert is_causal
    if backend == "CUDNN_ATTENTION" and "cudnn" in WRONG:
        raise RuntimeError("No available kernel.")
    queued_ms += 0.1
    if k.shape != v.shape or q.shape[2:] != k.shape[2:] or q.shape[1] % k.shape[1] or (q.shape[1] != k.shape[1] and not enable_gqa):
        raise RuntimeError(f"attention of {q.shape} over {k.shape}")
    used.add("attention")
    return Tensor(q.shape, q.dtype)


def cross_entropy(logits, targets):
    if logits.dim() != 2 or logits.dtype != float32 or targets.shape != logits.shape[:1]:
        raise RuntimeError(f"cross entropy of {logits.shape} {logits.dtype}")
    return Tensor((), float32)


@contextlib.contextmanager
def sdpa_kernel(backends):
    global backend
    [backend] = backends
    yield
    backend = None


def gradients(out, of, gradient, retain_graph):
    global queued_ms
    if gradient.shape != out.shape or not retain_graph:
        raise RuntimeError(f"a gradient of {gradient.shape} for {out.shape}")
    queued_ms += 0.2
    return [Tensor(x.shape, x.dtype) for x in of]


class Event:
    def __init__(self, enable_timing):
        assert enable_timing

    def record(self):
        self.at = queued_ms

    def synchronize(self):
        pass

    def elapsed_time(self, other):
        return other.at - self.at


class AdamW:
    def __init__(self, parameters, lr, betas, weight_decay, fused):
        self.parameters = parameters
        if any(p.dtype != float32 for p in parameters):
            raise RuntimeError("the optimizer's parameters are not fp32")
        if "memory" in WRONG and sum(p.numel() for p in parameters) > 1e9:
            raise RuntimeError("CUDA out of memory")

    def step(self):
        for p in self.parameters:
            if p.grad is None or p.grad.shape != p.shape or p.grad.dtype != float32:
                raise RuntimeError(f"the gradient of a parameter {p.shape}: {p.grad}")


amp = False


@contextlib.contextmanager
def autocast(device, dtype, enabled):
    global amp
    assert device == "cuda" and dtype == bfloat16
    amp = enabled
    yield
    amp = False


def foreach_copy(to, of):
    if len(to) != len(of) or any(a.shape != b.shape for a, b in zip(to, of)):
        raise RuntimeError("copies of other shapes")
    used.add("masters")


class Profile:
    def __init__(self, activities):
        if "profiler" in WRONG:
            raise RuntimeError("CUPTI is not to be had")

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return False

    def events(self):
        names = ["sm90_xmma_gemm_bf16", "flash_fwd_kernel", "flash_bwd_kernel"] + (["direct_copy_kernel"] if "masters" in used else [])
        return [types.SimpleNamespace(device_type="DeviceType.CUDA", name=n, self_device_time_total=10 * (i + 1), time_range=types.SimpleNamespace(start=i)) for i, n in enumerate(names)]


def module(name, **items):
    made = types.ModuleType(name)
    made.__dict__.update(items)
    sys.modules[name] = made
    return made


@contextlib.contextmanager
def device(name):
    yield name


def no_grad():
    return contextlib.nullcontext()


def manual_seed(seed):
    return seed


def ones(n):
    return Tensor((n,))


def randn(*shape, device, dtype, requires_grad):
    return Tensor(shape, dtype)


def randn_like(x):
    return x.like(*x.shape)


def randint(limit, shape, device):
    return Tensor(shape, int64)


def arange(*limits, device=None):
    return Tensor((len(range(*limits)),), int64)


def outer(a, b):
    return Tensor((*a.shape, *b.shape))


def cat(parts, dim):
    assert dim == -1
    return parts[0].like(*parts[0].shape[:-1], sum(p.shape[-1] for p in parts))


def compile(model):  # noqa: A001 - PyTorch's name
    return model


_foreach_copy_ = foreach_copy
_dynamo = types.SimpleNamespace(reset=lambda: None)
cuda = types.SimpleNamespace(
    is_available=lambda: True,
    get_device_name=lambda i: "Made-up GPU",
    synchronize=lambda: time.sleep(1e-4),
    empty_cache=lambda: None,
    reset_peak_memory_stats=lambda: None,
    max_memory_allocated=lambda: 2**30,
    Event=Event,
    _sleep=lambda cycles: None,
)
backends = types.SimpleNamespace(
    cuda=types.SimpleNamespace(matmul=types.SimpleNamespace(allow_tf32=True)), cudnn=types.SimpleNamespace(version=lambda: 91900)
)
autograd = types.SimpleNamespace(grad=gradients)
optim = types.SimpleNamespace(AdamW=AdamW)
functional = module(
    "torch.nn.functional",
    rms_norm=lambda x, shape, weight, eps: x.like(*broadcast(x.shape, weight.shape)),
    scaled_dot_product_attention=sdpa,
    gelu=lambda x, approximate: x.like(*x.shape),
    silu=lambda x: x.like(*x.shape),
    cross_entropy=cross_entropy,
)
init = types.SimpleNamespace(normal_=lambda p, std: p)
utils = types.SimpleNamespace(clip_grad_norm_=lambda parameters, most: [p.grad.shape for p in parameters])
nn = module(
    "torch.nn",
    Module=Module,
    Parameter=Parameter,
    Linear=Linear,
    Embedding=Embedding,
    LayerNorm=LayerNorm,
    ModuleList=ModuleList,
    functional=functional,
    init=init,
    utils=utils,
)
names = {name: name for name in ("CUDNN_ATTENTION", "FLASH_ATTENTION")}
module("torch.nn.attention", sdpa_kernel=sdpa_kernel, SDPBackend=types.SimpleNamespace(**names))
module("torch.utils")
module("torch.utils.checkpoint", checkpoint=lambda f, *args, use_reentrant: f(*args))
module("torch.profiler", profile=Profile, ProfilerActivity=types.SimpleNamespace(CUDA="cuda"))
