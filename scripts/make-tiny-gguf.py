"""Writes a random Llama of a few thousand weights as GGUF, with a vocabulary of bytes and letters: enough for a server to
serve. Usage: make-tiny-gguf.py FILE"""

import sys

import gguf
import numpy as np

WIDTH, INNER, LAYERS, HEADS, WINDOW = 64, 128, 2, 4, 2048

special = ["<unk>", "<s>", "</s>"]
letters = ["▁"] + [chr(c) for c in range(33, 127)] + ["▁" + chr(c) for c in range(97, 123)]
tokens = special + [f"<0x{byte:02X}>" for byte in range(256)] + letters
kinds = [gguf.TokenType.UNKNOWN] + [gguf.TokenType.CONTROL] * 2 + [gguf.TokenType.BYTE] * 256
kinds += [gguf.TokenType.NORMAL] * len(letters)

writer = gguf.GGUFWriter(sys.argv[1], "llama")
writer.add_name("tiny")
writer.add_context_length(WINDOW)
writer.add_embedding_length(WIDTH)
writer.add_feed_forward_length(INNER)
writer.add_block_count(LAYERS)
writer.add_head_count(HEADS)
writer.add_head_count_kv(HEADS)
writer.add_layer_norm_rms_eps(1e-5)
writer.add_rope_dimension_count(WIDTH // HEADS)
writer.add_vocab_size(len(tokens))
writer.add_tokenizer_model("llama")
writer.add_token_list(tokens)
writer.add_token_scores([0.0] * 259 + [-float(len(letter)) for letter in letters])
writer.add_token_types(kinds)
writer.add_bos_token_id(1)
writer.add_eos_token_id(2)
writer.add_add_bos_token(True)
writer.add_add_space_prefix(False)
writer.add_chat_template(
    "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\n' }}{% endfor %}{{ 'assistant: ' }}"
)

draw = np.random.default_rng(7)


def matrix(name: str, outputs: int, inputs: int) -> None:
    writer.add_tensor(name, draw.normal(0, 0.2, (outputs, inputs)).astype(np.float32))


matrix("token_embd.weight", len(tokens), WIDTH)
matrix("output.weight", len(tokens), WIDTH)
writer.add_tensor("output_norm.weight", np.ones(WIDTH, np.float32))
for layer in range(LAYERS):
    at = f"blk.{layer}."
    for norm in ("attn_norm", "ffn_norm"):
        writer.add_tensor(f"{at}{norm}.weight", np.ones(WIDTH, np.float32))
    for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
        matrix(f"{at}{name}.weight", WIDTH, WIDTH)
    matrix(f"{at}ffn_gate.weight", INNER, WIDTH)
    matrix(f"{at}ffn_up.weight", INNER, WIDTH)
    matrix(f"{at}ffn_down.weight", WIDTH, INNER)

writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
