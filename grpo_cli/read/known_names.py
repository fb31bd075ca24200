"""Every name that a column is recognised by where nobody says what it is. An id comes before a text that may repeat."""

from __future__ import annotations

from typing import Final

# Tiers in the order in which they are looked through; two candidates inside a tier are an error that lists them.
GROUP_TIERS: Final = (
    (
        "prompt_id", "group_id", "uid", "prompt_uid", "task_id", "problem_id", "question_id", "example_id",
        "prompt_idx", "group_idx", "group_index", "prompt_index", "doc_id", "row_id", "instance_id", "scenario_id",
        "task_idx", "puzzle_id", "qid",
    ),
    ("prompt", "input", "question", "problem", "messages"),
)  # fmt: skip
REWARD_TIERS: Final = (
    ("reward",),
    (
        "rewards",
        "score",
        "total_reward",
        "final_reward",
        "reward_score",
        "reward_total",
        "episode_return",
        "final_score",
    ),
    ("acc", "is_correct", "correct", "is_solved", "solved", "resolved"),
)
# Often the id of a row, sometimes that of a prompt: beside a key that is only text it has to be looked at.
ROW_IDS: Final = ("id", "uuid", "idx", "index", "sample_uid")
# What a name that could be meant often holds: such columns are listed first where none is known.
LIKELY_GROUP: Final = r"id$|idx|uid|index|key|prompt|question|problem|task|group|input|params"
LIKELY_REWARD: Final = r"reward|score|return|correct|solved|resolved|pass|success|acc|grade|metric|value"
# What a response answers: where it differs inside a group of an id, the id is that of something larger.
PROMPT_TEXTS: Final = (
    "prompt", "input_prompt", "prompt_text", "prompt_str", "raw_prompt", "user_prompt", "task_prompt", "question", "question_text",
    "query", "problem", "problem_statement", "instruction", "instructions", "goal", "input", "responses_create_params",
    "messages", "conversation", "conversations",
)  # fmt: skip
# What the name of a text holds that is no prompt: responses come back where several judges score each of them.
NO_PROMPT: Final = r"respon|complet|output|generat|answer|repl(y|ies)|predict|solution|judg|ration|reason|feedback|critique|traj|trace|action|observ|tool|error|log"
CONVERSATIONS: Final = ("messages", "conversation", "conversations")  # which may hold the response as well
SAMPLE_IDS: Final = ("sample", "sample_id", "sample_idx", "rollout_idx", "completion_id", "traj_idx")
STEP_LIKE: Final = (
    "step", "global_step", "training_step", "train_step", "gen_step", "iteration", "iter", "epoch", "run_name",
)  # fmt: skip
OWN_STEP: Final = "step"  # the one step-like name that may also count the steps inside a rollout
LENGTHS: Final = (
    "length", "response_length", "completion_length", "output_length", "num_output_tokens", "completion_tokens",
    "response_tokens", "output_tokens", "num_tokens", "seqlen",
)  # fmt: skip
TEXTS: Final = (
    "completion", "response", "output", "completion_text", "response_text", "output_response", "llm_completion_raw",
    "answer_text", "generation", "text", "content",
)  # fmt: skip
RESPONSES: Final = (
    "completion", "response", "output", "completion_text", "response_text", "output_response", "generation",
    "llm_completion_raw", "solution",
)  # fmt: skip
LIKELY_TEXT: Final = (
    r"prompt|question|problem|input|instruct|message|convers|completion|response|output|generat|answer|text"
)
LIKELY_TOKENS: Final = r"token|mask|_ids|length|_len"
PROMPTS: Final = ("prompt", "question", "problem", "input", "instruction", "prompt_text", "input_prompt")
ADVANTAGES: Final = ("advantage", "advantages")
