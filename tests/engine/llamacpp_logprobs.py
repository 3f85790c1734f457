"""llama.cpp's greedy answers with the log-probabilities of 20 candidates per token, in a process of its own.

`python llamacpp_logprobs.py MODEL.gguf TOKENS < prompts.json`: reads a list of prompts, each a list of token ids, and
prints one list per prompt: for each of TOKENS tokens {"id": chosen, "top": {id: natural log of its probability}}.
Keys and values are cached in float32, and nothing is kept between prompts.
"""

import json
import os
import sys

import xllamacpp


def answers(model: str, prompts: list[list[int]], tokens: int) -> list[list[dict[str, object]]]:
    """What llama.cpp says to each prompt."""
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_ctx = 512
    params.n_parallel = 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.fit_params = False
    params.cache_ram_mib = 0
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    server = xllamacpp.Server(params)
    asked = {"n_predict": tokens, "n_probs": 20, "temperature": 0, "cache_prompt": False, "ignore_eos": True}
    return [
        [
            {"id": step["id"], "top": {top["id"]: top["logprob"] for top in step["top_logprobs"]}}
            for step in server.handle_completions(asked | {"prompt": prompt})["choices"][0]["logprobs"]["content"]
        ]
        for prompt in prompts
    ]


if __name__ == "__main__":
    print("\n" + json.dumps(answers(sys.argv[1], json.load(sys.stdin), int(sys.argv[2]))), flush=True)
    os._exit(0)  # its threads have nothing left to do
