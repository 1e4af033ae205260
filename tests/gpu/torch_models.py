"""GPT-2 and Llama of scenarios/models in PyTorch: their shapes, and modules that are checked against them."""

# Shapes as scenarios/models has them.
MODELS = {
    "gpt2-small": dict(family="gpt", layers=12, hidden=768, heads=12, vocab=50257, max_seq=1024),
    "gpt2-medium": dict(family="gpt", layers=24, hidden=1024, heads=16, vocab=50257, max_seq=1024),
    "gpt2-large": dict(family="gpt", layers=36, hidden=1280, heads=20, vocab=50257, max_seq=1024),
    "gpt2-xl": dict(family="gpt", layers=48, hidden=1600, heads=25, vocab=50257, max_seq=1024),
    "tinyllama-1.1b": dict(family="llama", layers=22, hidden=2048, heads=32, kv_heads=4, ffn=5632, vocab=32000, max_seq=2048),
}


def parameter_shapes(m):
    """Name and shape of every parameter; the modules below are checked against it."""
    h, v = m["hidden"], m["vocab"]
    shapes = [("embedding", (v, h))]
    if m["family"] == "gpt":
        shapes.append(("position", (m["max_seq"], h)))
        for i in range(m["layers"]):
            for name, out, inner in (("qkv", 3 * h, h), ("proj", h, h), ("up", 4 * h, h), ("down", h, 4 * h)):
                shapes += [(f"layer{i}.{name}.weight", (out, inner)), (f"layer{i}.{name}.bias", (out,))]
            for norm in ("norm1", "norm2"):
                shapes += [(f"layer{i}.{norm}.weight", (h,)), (f"layer{i}.{norm}.bias", (h,))]
        shapes += [("norm.weight", (h,)), ("norm.bias", (h,))]  # the head is the embedding
    else:
        d = h // m["heads"]
        for i in range(m["layers"]):
            shapes += [(f"layer{i}.qkv.weight", ((m["heads"] + 2 * m["kv_heads"]) * d, h)), (f"layer{i}.proj.weight", (h, h))]
            shapes += [(f"layer{i}.up.weight", (2 * m["ffn"], h)), (f"layer{i}.down.weight", (h, m["ffn"]))]
            shapes += [(f"layer{i}.norm1.weight", (h,)), (f"layer{i}.norm2.weight", (h,))]
        shapes += [("norm.weight", (h,)), ("head.weight", (v, h))]
    return shapes


def parameter_count(m):
    total = 0
    for _, shape in parameter_shapes(m):
        size = 1
        for n in shape:
            size *= n
        total += size
    return total


def make_model(torch, m, recompute):
    """nn.Module whose forward takes tokens [batch, seq] and targets, and returns the mean loss."""
    import torch.nn.functional as F
    from torch import nn
    from torch.utils.checkpoint import checkpoint

    hidden, heads = m["hidden"], m["heads"]
    kv_heads, dim = m.get("kv_heads", m["heads"]), m["hidden"] // m["heads"]
    gpt = m["family"] == "gpt"

    class RmsNorm(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(hidden))

        def forward(self, x):
            return F.rms_norm(x, (hidden,), self.weight.to(x.dtype), 1e-5)

    def rotate(x, cos, sin):
        a, b = x.chunk(2, dim=-1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1 = nn.LayerNorm(hidden) if gpt else RmsNorm()
            self.norm2 = nn.LayerNorm(hidden) if gpt else RmsNorm()
            self.qkv = nn.Linear(hidden, (heads + 2 * kv_heads) * dim, bias=gpt)
            self.proj = nn.Linear(hidden, hidden, bias=gpt)
            inner = 4 * hidden if gpt else m["ffn"]
            self.up = nn.Linear(hidden, inner if gpt else 2 * inner, bias=gpt)
            self.down = nn.Linear(inner, hidden, bias=gpt)

        def forward(self, x, cos, sin):
            batch, seq, _ = x.shape
            q, k, v = self.qkv(self.norm1(x)).split((heads * dim, kv_heads * dim, kv_heads * dim), dim=-1)
            q = q.view(batch, seq, heads, dim).transpose(1, 2)
            k = k.view(batch, seq, kv_heads, dim).transpose(1, 2)
            v = v.view(batch, seq, kv_heads, dim).transpose(1, 2)
            if not gpt:
                q, k = rotate(q, cos, sin), rotate(k, cos, sin)
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=kv_heads != heads)
            x = x + self.proj(out.transpose(1, 2).reshape(batch, seq, hidden))
            y = self.up(self.norm2(x))
            if gpt:
                y = F.gelu(y, approximate="tanh")
            else:
                gate, up = y.chunk(2, dim=-1)
                y = F.silu(gate) * up
            return x + self.down(y)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(m["vocab"], hidden)
            if gpt:
                self.position = nn.Embedding(m["max_seq"], hidden)
            self.layers = nn.ModuleList(Layer() for _ in range(m["layers"]))
            self.norm = nn.LayerNorm(hidden) if gpt else RmsNorm()
            self.head = nn.Linear(hidden, m["vocab"], bias=False)
            if gpt:
                self.head.weight = self.embedding.weight
            for p in self.parameters():
                if p.dim() > 1:
                    nn.init.normal_(p, std=0.02)
            angles = torch.outer(torch.arange(m["max_seq"]).float(), 10000.0 ** (-torch.arange(0, dim, 2) / dim))
            self.register_buffer("cos", angles.cos().to(torch.bfloat16), persistent=False)
            self.register_buffer("sin", angles.sin().to(torch.bfloat16), persistent=False)

        def forward(self, tokens, targets):
            seq = tokens.shape[1]
            x = self.embedding(tokens)
            if gpt:
                x = x + self.position(torch.arange(seq, device=tokens.device))
            cos, sin = self.cos[:seq], self.sin[:seq]
            for layer in self.layers:
                x = checkpoint(layer, x, cos, sin, use_reentrant=False) if recompute else layer(x, cos, sin)
            logits = self.head(self.norm(x))
            return F.cross_entropy(logits.view(-1, m["vocab"]).float(), targets.view(-1))

    return Model()
