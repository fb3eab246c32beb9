"""What torch computes in bf16, for the embedded models: the logits of the last positions of a text, in three ways.

- f32: everything in f32. The weights are the same in all three, because they are stored as bf16.
- bf16: everything in bf16, as torch does it with dtype=torch.bfloat16.
- rounded: f32, but each product with weights gets its input rounded to bf16. That's what our kernels do.
"""
import torch
from transformers import AutoModelForCausalLM
from transformers.pytorch_utils import Conv1D

from common import MODELS, STORY, model

LENGTH, LAST = 96, 4


@torch.no_grad()
def generate(oracle):
    for name in STORY:
        m = model(name)
        size = m.config.vocab_size
        ids = [5 + i * i * 37 % (size - 5) for i in range(LENGTH)]
        oracle.data[name] = ids
        text = torch.tensor([ids])
        oracle.tensor(f"{name}.f32", m(text).logits[0, -LAST:])
        for part in m.modules():
            if isinstance(part, (torch.nn.Linear, Conv1D)):
                part.register_forward_pre_hook(lambda _, x: (x[0].bfloat16().float(),))
        oracle.tensor(f"{name}.rounded", m(text).logits[0, -LAST:])
        m = AutoModelForCausalLM.from_pretrained(MODELS / name, dtype=torch.bfloat16).eval()
        oracle.tensor(f"{name}.bf16", m(text).logits[0, -LAST:].float())
