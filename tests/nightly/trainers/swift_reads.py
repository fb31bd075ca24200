"""ms-swift: `swift_reads.py KIND FILE`, by its preprocessor, and for one conversation by its ChatML template."""

from __future__ import annotations

import sys
from types import SimpleNamespace

from common import TEMPLATE, loaded, printed, texts, tokenizer

KIND, FILE = sys.argv[1:3]
sys.argv = sys.argv[:1]  # the package reads the arguments of its own command when it is imported
from swift.dataset.preprocessor import AutoPreprocessor  # noqa: E402
from swift.template import get_template  # noqa: E402

rows = [dict(row) for row in AutoPreprocessor()(loaded(FILE), load_from_cache_file=False, strict=False)]
if KIND == "pairs":
    printed(rows)
    sys.exit()
of = tokenizer(TEMPLATE, "<|im_start|>", "<|im_end|>")
of.model_info = SimpleNamespace(model_dir="none", max_model_len=None, task_type="causal_lm", config=None)
of.model_meta = SimpleNamespace(template="chatml", is_multimodal=False)
template = get_template(of, template_type="chatml", agent_template="hermes")
template.set_mode("train")
found = []
for row in rows:
    made = template.encode(dict(row))
    shown = texts(of, made["input_ids"], [label != -100 for label in made["labels"]])
    found.append({**shown, "label": row.get("label")})
printed(found)
