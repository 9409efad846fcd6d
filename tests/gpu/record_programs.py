"""PyTorch programs whose sizes change from step to step, as those of real ones do: for record.py."""

import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

DEVICE = "cuda"


def sizes_of(name):
    """Random numbers for sizes: the same in every run."""
    torch.manual_seed(7)
    return random.Random(sum(map(ord, name)))


def detect(steps=16):
    """Detection: images of many sizes, regions in any number."""
    rnd = sizes_of("detect")

    def conv(i, o, stride=1):
        return nn.Sequential(nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(True))

    stages = [
        conv(3, 64, 2),
        conv(64, 128, 2),
        nn.Sequential(conv(128, 256, 2), conv(256, 256)),
        nn.Sequential(conv(256, 512, 2), conv(512, 512)),
        nn.Sequential(conv(512, 512, 2), conv(512, 512)),
    ]
    body = nn.ModuleList(stages).to(DEVICE)
    head = nn.Conv2d(512, 45, 1).to(DEVICE)
    sides = nn.ModuleList(nn.Conv2d(c, 512, 1) for c in (256, 512, 512)).to(DEVICE)
    box = nn.Sequential(nn.Linear(512 * 49, 1024), nn.ReLU(), nn.Linear(1024, 84)).to(DEVICE)
    parameters = [p for m in (body, head, sides, box) for p in m.parameters()]
    opt = torch.optim.SGD(parameters, 0.001, momentum=0.9)
    for _ in range(steps):
        batch, height, width = 8, rnd.randrange(15, 32) * 32, rnd.randrange(20, 42) * 32
        h, features = torch.rand(batch, 3, height, width, device=DEVICE), []
        for stage in body:
            h = stage(h)
            features.append(h)
        features = [side(f) for side, f in zip(sides, features[2:])]
        loss, regions = 0, []
        for f in features:
            p = head(f).flatten(1)
            score, _ = p.topk(min(1000, p.shape[1]), 1)
            loss = loss + score[score > score.mean()].mean()
            count = rnd.randrange(20, 400)
            pooled = F.adaptive_avg_pool2d(f, 7).flatten(1)
            regions.append(pooled[torch.randint(0, batch, (count,), device=DEVICE)])
        loss = loss + box(torch.cat(regions)).pow(2).mean()
        loss.backward()
        opt.step()
        opt.zero_grad()


def fsdp(steps=8):
    """Sharded training: parameters gathered by layer and let go of again."""
    rnd = sizes_of("fsdp")
    d, layers = 2048, 12
    shards = [torch.randn(12 * d * d // 4, device=DEVICE) * 0.01 for _ in range(layers)]
    moments = [(torch.zeros_like(s), torch.zeros_like(s)) for s in shards]

    def layer(x, w, b, t):
        q, k, v, o = w[: 4 * d * d].view(4, d, d)
        up, down = w[4 * d * d :].view(2, 4 * d * d)
        q, k, v = ((x @ m).view(b, t, 16, 128).transpose(1, 2) for m in (q, k, v))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + attended.transpose(1, 2).reshape(b, t, d) @ o
        return x + F.gelu(x @ up.view(d, 4 * d)) @ down.view(4 * d, d)

    for _ in range(steps):
        b, t = 4, rnd.randrange(256, 2048)
        x, inputs = torch.randn(b, t, d, device=DEVICE, dtype=torch.bfloat16), []
        for shard in shards:
            w = torch.cat([shard.to(torch.bfloat16)] * 4)
            with torch.no_grad():
                inputs.append(x)
                x = layer(x, w, b, t)
            del w
        g = torch.randn_like(x)
        for i in reversed(range(layers)):
            w = torch.cat([shards[i].to(torch.bfloat16)] * 4).requires_grad_()
            x = inputs.pop().requires_grad_()
            gw, g = torch.autograd.grad(layer(x, w, b, t), [w, x], g)
            gs = gw.view(4, -1).float().mean(0)
            del w, gw
            m, v = moments[i]
            m.mul_(0.9).add_(gs, alpha=0.1)
            v.mul_(0.99).addcmul_(gs, gs, value=0.01)
            shards[i] -= 1e-4 * m / (v.sqrt() + 1e-8)
            del gs


def gan(steps=25):
    """A generator and its critic at four resolutions, one after the other: pictures of a round live into the next one."""
    sizes_of("gan")

    def generator(resolution):
        layers, width, at = [nn.ConvTranspose2d(128, 256, 4), nn.ReLU()], 256, 4
        while at < resolution:
            half = max(width // 2, 32)
            layers += [nn.ConvTranspose2d(width, half, 4, 2, 1), nn.BatchNorm2d(half), nn.ReLU()]
            width, at = half, at * 2
        return nn.Sequential(*layers, nn.Conv2d(width, 3, 3, 1, 1), nn.Tanh()).to(DEVICE)

    def critic(resolution):
        layers, width, to, at = [], 3, 32, resolution
        while at > 4:
            layers += [nn.Conv2d(width, to, 4, 2, 1), nn.LeakyReLU(0.2)]
            width, to, at = to, min(to * 2, 256), at // 2
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(width * 16, 1)).to(DEVICE)

    for resolution in (16, 32, 64, 128):
        g, d = generator(resolution), critic(resolution)
        opt_g, opt_d = torch.optim.Adam(g.parameters()), torch.optim.Adam(d.parameters())
        batch = 64 if resolution < 128 else 48
        for step in range(steps):
            z = torch.randn(batch, 128, 1, 1, device=DEVICE)
            real = torch.randn(batch, 3, resolution, resolution, device=DEVICE)
            fake = g(z)
            loss_d = F.softplus(-d(real)).mean() + F.softplus(d(fake.detach())).mean()
            opt_d.zero_grad()
            loss_d.backward()
            opt_d.step()
            loss_g = F.softplus(-d(g(z))).mean()
            opt_g.zero_grad()
            loss_g.backward()
            opt_g.step()
            if step % 10 == 0:
                g.eval()
                with torch.no_grad():
                    g(torch.randn(100, 128, 1, 1, device=DEVICE)).mean().item()
                g.train()


def gnn(steps=40):
    """A graph network on sampled neighbours."""
    rnd = sizes_of("gnn")
    nodes, width = 400_000, 256
    feats = torch.randn(nodes, width)
    lins = nn.ModuleList([nn.Linear(2 * width, 512), nn.Linear(1024, 512), nn.Linear(1024, 64)]).to(DEVICE)
    opt = torch.optim.Adam(lins.parameters(), 1e-3)
    for _ in range(steps):
        layers, n = [], 1024
        for fanout in (15, 10, 5):
            edges = int(n * fanout * rnd.uniform(0.5, 1))
            more = min(nodes, n + int(edges * rnd.uniform(0.4, 0.9)))
            src = torch.randint(0, more, (edges,), device=DEVICE)
            layers.append((src, torch.randint(0, n, (edges,), device=DEVICE), n))
            n = more
        h = feats[torch.randint(0, nodes, (n,))].to(DEVICE)
        for (src, dst, n), lin in zip(reversed(layers), lins):
            summed = torch.zeros(n, h.shape[1], device=DEVICE).index_add_(0, dst, h[src])
            degree = torch.bincount(dst, minlength=n).clamp(min=1).unsqueeze(1)
            h = lin(torch.cat([h[:n], summed / degree], 1))
            h = F.dropout(F.relu(h), 0.3) if lin is not lins[-1] else h
        F.cross_entropy(h, torch.randint(0, 64, (h.shape[0],), device=DEVICE)).backward()
        opt.step()
        opt.zero_grad()


def rl(steps=30):
    """Reinforcement learning: episodes of any length in a buffer that grows."""
    rnd = sizes_of("rl")
    net = nn.Sequential(
        nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Flatten(),
        nn.Linear(64 * 81, 512), nn.ReLU(), nn.Linear(512, 6),
    ).to(DEVICE)  # fmt: skip
    opt, kept = torch.optim.Adam(net.parameters()), []
    for _ in range(steps):
        with torch.no_grad():
            episodes = [torch.rand(rnd.randrange(8, 64), 4, 84, 84, device=DEVICE) for _ in range(6)]
            actions = [net(e).argmax(1) for e in episodes]
        kept.append((torch.cat(episodes), torch.cat(actions)))
        if len(kept) > 12:
            kept.pop(rnd.randrange(6))
        for _ in range(4):
            seen, done = zip(*rnd.sample(kept, min(3, len(kept))))
            F.cross_entropy(net(torch.cat(seen)), torch.cat(done)).backward()
            opt.step()
            opt.zero_grad()


def serving(requests=24):
    """A server of a language model: sequences join and leave its batch, and the caches of each grow with every token."""
    rnd = sizes_of("serving")
    width, heads, groups, size, wide, layers, vocab = 2048, 16, 4, 128, 5632, 4, 32_000

    def weight(rows, columns):
        return torch.randn(rows, columns, device=DEVICE, dtype=torch.bfloat16) * 0.02

    words = weight(vocab, width)
    blocks = [
        (weight(width, width + 2 * groups * size), weight(width, width), weight(width, 2 * wide), weight(wide, width))
        for _ in range(layers)
    ]

    class Sequence:
        def __init__(self):
            self.caches = [None] * layers
            self.left = rnd.randrange(4, 80)

    def attend(sequence, layer, q, k, v):
        q, k, v = (t.view(1, len(t), -1, size).transpose(1, 2) for t in (q, k, v))
        known = sequence.caches[layer]
        k, v = (k.contiguous(), v.contiguous()) if known is None else (torch.cat(b, 2) for b in zip(known, (k, v)))
        sequence.caches[layer] = (k, v)
        every = [t.repeat_interleave(heads // groups, 1) for t in (k, v)]
        seen = F.scaled_dot_product_attention(q, *every, is_causal=known is None)
        return seen.transpose(1, 2).reshape(-1, width)

    def step(tokens, sequences):
        """So many tokens of each sequence go through the model: the next one of each."""
        lengths = [len(t) for t in tokens]
        x = words[torch.cat(tokens)]
        for layer, (into, out, up, down) in enumerate(blocks):
            parts = (F.rms_norm(x, (width,)) @ into).split([width, groups * size, groups * size], 1)
            rows = zip(sequences, *(p.split(lengths) for p in parts))
            x = x + torch.cat([attend(s, layer, *qkv) for s, *qkv in rows]) @ out
            gate, value = (F.rms_norm(x, (width,)) @ up).chunk(2, 1)
            x = x + (F.silu(gate) * value) @ down
        ends = torch.tensor(lengths, device=DEVICE).cumsum(0) - 1
        best, which = (x[ends] @ words.T).float().topk(50, 1)
        return which.gather(1, torch.multinomial(best.softmax(1), 1)).split(1)

    batch, waiting = [], requests
    with torch.no_grad():
        while waiting or batch:
            while waiting and len(batch) < 16 and rnd.random() < 0.6:
                waiting -= 1
                prompt = torch.randint(0, vocab, (int(rnd.triangular(32, 4000, 32)),), device=DEVICE)
                sequence = Sequence()
                batch.append((sequence, *step([prompt], [sequence])))
            if not batch:
                continue
            sequences, tokens = zip(*batch)
            batch = list(zip(sequences, step([t.flatten() for t in tokens], sequences)))
            for sequence in sequences:
                sequence.left -= 1
            batch = [(s, t) for s, t in batch if s.left > 0]


def speech(steps=20):
    """Speech: recordings of any length, as many at a time as fit."""
    rnd = sizes_of("speech")
    front = nn.Sequential(nn.Conv1d(80, 512, 5, 2, 2), nn.GELU(), nn.Conv1d(512, 512, 5, 2, 2), nn.GELU()).to(DEVICE)
    lstm = nn.LSTM(512, 768, 3, bidirectional=True, batch_first=True).to(DEVICE)
    out = nn.Linear(1536, 500).to(DEVICE)
    opt = torch.optim.Adam([*front.parameters(), *lstm.parameters(), *out.parameters()])
    for _ in range(steps):
        t = rnd.randrange(300, 3000)
        b = max(2, 40000 // t)
        h = front(torch.randn(b, 80, t, device=DEVICE)).transpose(1, 2)
        h = out(lstm(h)[0]).log_softmax(-1)
        lengths = torch.full((b,), h.shape[1], dtype=torch.long)
        said = torch.randint(5, max(6, h.shape[1] // 4), (b,))
        texts = torch.randint(1, 500, (b, int(said.max())), device=DEVICE)
        F.ctc_loss(h.transpose(0, 1), texts, lengths, said).backward()
        opt.step()
        opt.zero_grad(set_to_none=False)


def streams(steps=60):
    """Batches prepared on three streams, trained on a fourth, evaluated on a fifth, and scratch memory on a sixth."""
    rnd = sizes_of("streams")
    s = [torch.cuda.Stream() for _ in range(5)]
    net = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 1024))
    net, side = net.to(DEVICE), nn.Linear(1024, 2048).to(DEVICE)
    opt = torch.optim.SGD([*net.parameters(), *side.parameters()], 0.01, momentum=0.9)
    ready = []
    for step in range(steps):
        main = torch.cuda.current_stream()
        with torch.cuda.stream(s[step % 3]):
            rows = torch.randn(rnd.randrange(1000, 9000), 1024).pin_memory().to(DEVICE, non_blocking=True)
            x = F.normalize(rows * 2 + 1)
            x = torch.cat([x, x.roll(1, 0)[: len(x) // 3]])
            ready.append((x, s[step % 3]))
        if len(ready) <= 2:
            continue
        x, made_on = ready.pop(0)
        main.wait_stream(made_on)
        x.record_stream(main)
        y = net(x)
        s[3].wait_stream(main)
        with torch.cuda.stream(s[3]):
            best = torch.topk(side(y.detach()).relu().sum(1), 100).values
            y.record_stream(s[3])
        with torch.cuda.stream(s[4]):
            large = torch.empty(rnd.randrange(1, 60) << 20, dtype=torch.uint8, device=DEVICE).zero_()
            small = [torch.empty(rnd.randrange(1, 90_000), device=DEVICE) for _ in range(8)]
        main.wait_stream(s[3])
        (y.pow(2).mean() + best.mean() * 0).backward()
        opt.step()
        opt.zero_grad()
    del large, small


class Attention(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(d), nn.LayerNorm(d)])
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down, self.heads = nn.Linear(d, 4 * d), nn.Linear(4 * d, d), heads

    def forward(self, x):
        b, t, d = x.shape
        qkv = self.qkv(self.norms[0](x)).view(b, t, 3, self.heads, d // self.heads)
        attended = F.scaled_dot_product_attention(*qkv.permute(2, 0, 3, 1, 4))
        x = x + self.out(attended.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()

        def block(i, o):
            return nn.Sequential(
                nn.GroupNorm(8, i), nn.SiLU(), nn.Conv2d(i, o, 3, padding=1),
                nn.GroupNorm(8, o), nn.SiLU(), nn.Conv2d(o, o, 3, padding=1),
            )  # fmt: skip

        self.first, self.last = nn.Conv2d(4, 96, 3, padding=1), nn.Conv2d(96, 4, 3, padding=1)
        self.down = nn.ModuleList(block(i, o) for i, o in [(96, 192), (192, 384), (384, 512), (512, 512)])
        self.middle = Attention(512, 8)
        self.up = nn.ModuleList(block(i, o) for i, o in [(1024, 512), (1024, 384), (768, 192), (384, 96)])

    def forward(self, x):
        h, skips = self.first(x), []
        for down in self.down:
            h = down(h)
            skips.append(h)
            h = F.avg_pool2d(h, 2)
        b, c, height, width = h.shape
        h = self.middle(h.flatten(2).transpose(1, 2)).transpose(1, 2).reshape(b, c, height, width)
        for up, skip in zip(self.up, reversed(skips)):
            h = up(torch.cat([F.interpolate(h, size=skip.shape[2:]), skip], 1))
        return self.last(h)


def unet(steps=10):
    """Diffusion: pictures of several shapes, averaged weights, and samples drawn in between."""
    rnd = sizes_of("unet")
    net = UNet().to(DEVICE)
    averaged = [p.detach().clone() for p in net.parameters()]
    opt = torch.optim.Adam(net.parameters(), 1e-4)
    shapes = [(64, 64), (96, 64), (64, 96), (128, 128), (80, 112), (48, 144)]
    for step in range(steps):
        width, height = rnd.choice(shapes)
        x = torch.randn(8 if width * height > 9000 else 16, 4, height, width, device=DEVICE)
        with torch.autocast(DEVICE, torch.bfloat16):
            loss = F.mse_loss(net(x), torch.randn_like(x))
        loss.backward()
        opt.step()
        opt.zero_grad(set_to_none=True)
        with torch.no_grad():
            for average, p in zip(averaged, net.parameters()):
                average.lerp_(p, 0.001)
        if step % 5 == 4:
            with torch.no_grad(), torch.autocast(DEVICE, torch.bfloat16):
                y = torch.randn(4, 4, 96, 96, device=DEVICE)
                for _ in range(8):
                    y = y - 0.1 * net(torch.cat([y, y]))[:4].float()


def moe(steps=10):
    """A mixture of experts: any number of tokens for each, documents of any length."""
    rnd = sizes_of("moe")
    d, count, vocabulary = 768, 8, 16000

    def expert():
        return nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))

    layers = nn.ModuleList(
        nn.ModuleList([Attention(d, 12), nn.Linear(d, count), nn.ModuleList(expert() for _ in range(count))])
        for _ in range(4)
    ).to(DEVICE)
    words = nn.Embedding(vocabulary, d).to(DEVICE)
    parameters = [*layers.parameters(), *words.parameters()]
    opt = torch.optim.AdamW(parameters, 1e-4)
    for _ in range(steps):
        text = torch.randint(0, vocabulary, (rnd.randrange(2, 9), rnd.randrange(128, 1200)), device=DEVICE)
        with torch.autocast(DEVICE, torch.bfloat16):
            x = words(text)
            for attention, gate, experts in layers:
                x = attention(x)
                tokens = x.flatten(0, 1)
                weight, best = gate(tokens).softmax(-1).topk(2)
                y = torch.zeros_like(tokens)
                for number, network in enumerate(experts):
                    rows, place = (best == number).nonzero(as_tuple=True)
                    if len(rows):
                        y = y.index_add(0, rows, (network(tokens[rows]) * weight[rows, place, None]).to(y.dtype))
                x = x + y.view_as(x)
            loss = F.cross_entropy((x @ words.weight.T).float().flatten(0, 1), text.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        opt.step()
        opt.zero_grad()


def points(steps=30):
    """Clouds of any number of points: gathered, transformed, scattered into ever fewer, and back."""
    rnd = sizes_of("points")
    widths = [4, 32, 64, 128, 256]
    lins = nn.ModuleList(nn.Linear(i * 8, o) for i, o in zip(widths, widths[1:])).to(DEVICE)
    norms = nn.ModuleList(nn.BatchNorm1d(o) for o in widths[1:]).to(DEVICE)
    ups = nn.ModuleList(nn.Linear(o + i, i) for i, o in zip(widths[1:], widths[2:])).to(DEVICE)
    out = nn.Linear(32, 20).to(DEVICE)
    opt = torch.optim.SGD([p for m in (lins, norms, ups, out) for p in m.parameters()], 0.01, momentum=0.9)
    for _ in range(steps):
        x, skips = torch.randn(rnd.randrange(40_000, 400_000), 4, device=DEVICE), []
        for lin, norm in zip(lins, norms):
            near = torch.randint(0, len(x), (len(x), 8), device=DEVICE)
            x = F.relu(norm(lin(x[near].flatten(1))))
            skips.append(x)
            fewer = int(len(x) * rnd.uniform(0.2, 0.5))
            to = torch.randint(0, fewer, (len(x),), device=DEVICE)
            x = torch.zeros(fewer, x.shape[1], device=DEVICE).index_add_(0, to, x)
        for up, skip in zip(reversed(ups), reversed(skips[:-1])):
            x = x[torch.randint(0, len(x), (len(skip),), device=DEVICE)]
            x = F.relu(up(torch.cat([x, skip], 1)))
        F.cross_entropy(out(x), torch.randint(0, 20, (len(x),), device=DEVICE)).backward()
        opt.step()
        opt.zero_grad()


def segment(steps=14):
    """Segmentation: crops while training, whole pictures at three scales and flipped while testing."""
    rnd = sizes_of("segment")

    def conv(i, o, stride=1):
        return nn.Sequential(nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU())

    sizes = [(3, 64, 2), (64, 128, 2), (128, 256), (256, 256, 2), (256, 512), (512, 512)]
    body = nn.Sequential(*(conv(*size) for size in sizes)).to(DEVICE)
    pools = nn.ModuleList(nn.Conv2d(512, 128, 1) for _ in range(4)).to(DEVICE)
    last = nn.Conv2d(1024, 21, 1).to(DEVICE)
    opt = torch.optim.SGD([p for m in (body, pools, last) for p in m.parameters()], 0.01, momentum=0.9)

    def run(x):
        def grown(h, like):
            return F.interpolate(h, size=like.shape[2:], mode="bilinear")

        h = body(x)
        parts = [grown(pool(F.adaptive_avg_pool2d(h, n)), h) for pool, n in zip(pools, (1, 2, 3, 6))]
        return grown(last(torch.cat([h, *parts], 1)), x)

    for step in range(steps):
        batch, crop = rnd.choice([4, 6, 8]), rnd.choice([321, 385, 449, 513])
        seen = run(torch.rand(batch, 3, crop, crop, device=DEVICE))
        F.cross_entropy(seen, torch.randint(0, 21, (batch, crop, crop), device=DEVICE)).backward()
        opt.step()
        opt.zero_grad()
        if step % 4 < 3:
            continue
        with torch.no_grad():
            for _ in range(3):
                height, width = rnd.randrange(300, 1000), rnd.randrange(300, 1000)
                x, total = torch.rand(1, 3, height, width, device=DEVICE), 0
                for scale in (0.75, 1.0, 1.5):
                    y = F.interpolate(x, scale_factor=scale)
                    total = total + F.interpolate(run(y) + run(y.flip(3)).flip(3), size=(height, width))
                total.argmax(1)


def vit(steps=12):
    """A vision transformer: several resolutions, patches left out, activations computed again, averaged weights."""
    rnd = sizes_of("vit")
    d = 768
    layers = nn.ModuleList(Attention(d, 12) for _ in range(12)).to(DEVICE)
    patches, head = nn.Conv2d(3, d, 16, 16).to(DEVICE), nn.Linear(d, 1000).to(DEVICE)
    parameters = [p for m in (layers, patches, head) for p in m.parameters()]
    averaged = [p.detach().clone() for p in parameters]
    opt = torch.optim.AdamW(parameters, 1e-4)
    for _ in range(steps):
        side = rnd.choice([160, 192, 224, 288, 384])
        batch = max(8, 64 * 160 * 160 // side**2)
        with torch.autocast(DEVICE, torch.bfloat16):
            x = patches(torch.rand(batch, 3, side, side, device=DEVICE)).flatten(2).transpose(1, 2)
            kept = torch.randperm(x.shape[1], device=DEVICE)[: int(x.shape[1] * rnd.uniform(0.5, 1))]
            x = x[:, kept]
            for number, layer in enumerate(layers):
                x = checkpoint(layer, x, use_reentrant=False) if number % 2 else layer(x)
            loss = F.cross_entropy(head(x.mean(1)), torch.randint(0, 1000, (batch,), device=DEVICE))
        loss.backward()
        opt.step()
        opt.zero_grad()
        torch._foreach_lerp_(averaged, [p.detach() for p in parameters], 0.01)


PROGRAMS = {
    program.__name__: program
    for program in (detect, fsdp, gan, gnn, moe, points, rl, segment, serving, speech, streams, unet, vit)
}
