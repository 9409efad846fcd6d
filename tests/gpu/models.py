#!/usr/bin/env python3
"""Training steps of public models whose sizes are new in each step: what they reserve, and the time that they take, with PyTorch's
allocator, with its expandable segments, and with libgpumem_alloc.so.

    models.py DIR [MODEL...]      with DIR/gpumem-tui and DIR/libgpumem_alloc.so, of MODELS all or some; a row each
    models.py one MODEL           one of them, on whatever allocator; prints one JSON line

Models and losses are the libraries' (transformers, timm, torchvision), with random weights; each run is a process of its own, and the first
of a model is slower as its files are not in the page cache.
"""

import json
import os
import random
import subprocess
import sys
import time
import warnings

from figures import plugged

MIB = 1 << 20
STEPS, WARM = 24, 3
TOKENS = 6000


def text(kind):
    """A language model, and the words that it knows."""
    import transformers as t

    if kind == "gpt2":
        return t.GPT2LMHeadModel(t.GPT2Config(vocab_size=32000)), 32000
    if kind == "llama":
        sizes = dict(hidden_size=1024, intermediate_size=2816, num_hidden_layers=12)
        return t.LlamaForCausalLM(t.LlamaConfig(num_attention_heads=16, num_key_value_heads=4, vocab_size=32000, **sizes)), 32000
    if kind == "mixtral":
        sizes = dict(hidden_size=512, intermediate_size=1024, num_hidden_layers=6, num_attention_heads=8, num_key_value_heads=4)
        return t.MixtralForCausalLM(t.MixtralConfig(vocab_size=16000, num_local_experts=8, **sizes)), 16000
    sizes = dict(d_model=512, num_layers=6, num_heads=8, d_ff=2048)
    return t.T5ForConditionalGeneration(t.T5Config(vocab_size=32000, decoder_start_token_id=0, **sizes)), 32000


def text_steps(torch, kind):
    """Batches of as many tokens, of a length of their own."""
    model, words = text(kind)
    model, lengths = model.cuda().train(), random.Random(1)

    def loss():
        length = lengths.randrange(100, 900)
        x = torch.randint(0, words, (max(1, TOKENS // length), length), device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            return model(input_ids=x, labels=x).loss

    return loss, torch.optim.AdamW(model.parameters(), 1e-4)


def image_steps(torch, _kind):
    """Batches and images of several sizes."""
    import timm

    model, sizes = timm.create_model("convnext_tiny", num_classes=100).cuda(), random.Random(2)

    def loss():
        batch, side = sizes.choice([16, 24, 32]), sizes.choice([160, 192, 224, 256])
        x, y = torch.randn(batch, 3, side, side, device="cuda"), torch.randint(0, 100, (batch,), device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            return torch.nn.functional.cross_entropy(model(x), y)

    return loss, torch.optim.AdamW(model.parameters(), 1e-4)


def detection_steps(torch, _kind):
    """Four images of any size, with boxes."""
    import torchvision

    make = torchvision.models.detection.fasterrcnn_resnet50_fpn
    model, sizes = make(weights=None, weights_backbone=None, num_classes=20).cuda(), random.Random(3)

    def loss():
        images = [torch.rand(3, sizes.randrange(300, 700), sizes.randrange(300, 700), device="cuda") for _ in range(4)]
        targets = []
        for _ in images:
            count = sizes.randrange(1, 30)
            corner = torch.rand(count, 4, device="cuda") * 100
            boxes = corner.clone()
            boxes[:, 2:] = corner[:, :2] + 1 + corner[:, 2:]
            targets.append({"boxes": boxes, "labels": torch.randint(1, 20, (count,), device="cuda")})
        return sum(model(images, targets).values())

    return loss, torch.optim.SGD(model.parameters(), 1e-3)


MODELS = {"gpt2": text_steps, "llama": text_steps, "mixtral": text_steps, "t5": text_steps, "convnext": image_steps, "detection": detection_steps}


def one(kind):
    warnings.filterwarnings("ignore")
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    import torch

    torch.manual_seed(0)
    loss, optimizer = MODELS[kind](torch, kind)
    times = []
    for _ in range(STEPS):
        torch.cuda.synchronize()
        began = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        value = loss()
        value.backward()
        optimizer.step()
        value.item()
        times.append(time.perf_counter() - began)
    figures = torch.cuda.memory_stats()
    print(json.dumps({
        "reserved": figures["reserved_bytes.all.peak"] / MIB,
        "requested": figures["requested_bytes.all.peak"] / MIB,
        "ms": sum(times[WARM:]) * 1e3,
    }))


def compare(folder, kinds):
    allocators = {
        "PyTorch": ([], ""),
        "expandable": ([], "expandable_segments:True"),
        "gpumem": (plugged(folder), ""),
    }
    print(f"{'MiB, ms':<12}" + "".join(f"{name:>12} {'time':>8}" for name in allocators) + f"{'requested':>12}")
    for kind in kinds or MODELS:
        row, requested = f"{kind:<12}", "-"
        for before, conf in allocators.values():
            environment = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": conf, "GPUMEM_QUIET": "1"}
            run = subprocess.run([*before, sys.executable, __file__, "one", kind], env=environment, capture_output=True, text=True)
            if run.returncode != 0:
                sys.exit(f"{kind}: exit code {run.returncode}\n{run.stderr[-3000:]}")
            result = json.loads(run.stdout.splitlines()[-1])
            row += f"{result['reserved']:>12,.0f} {result['ms']:>8,.0f}"
            requested = f"{result['requested']:,.0f}"
        print(f"{row}{requested:>12}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["one"]:
        one(sys.argv[2])
    elif len(sys.argv) > 1:
        compare(sys.argv[1], sys.argv[2:])
    else:
        sys.exit(__doc__)
