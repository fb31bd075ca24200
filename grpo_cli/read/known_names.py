"""The names by which columns are recognised if no flag or schema names them. Ids come before texts, which may repeat."""

from __future__ import annotations

# --- the key and the reward -----------------------------------------------------------------------------------

# Tiers are searched in this order; two candidates in a tier are an error that lists them.
GROUP_TIERS = (
    (
        "prompt_id", "group_id", "uid", "prompt_uid", "task_id", "problem_id", "question_id", "example_id",
        "prompt_idx", "group_idx", "group_index", "prompt_index", "doc_id", "row_id", "instance_id", "scenario_id",
        "task_idx", "puzzle_id", "qid",
    ),
    ("prompt", "input", "question", "problem", "messages"),
)  # fmt: skip
REWARD_TIERS = (
    ("reward",),
    (
        "rewards", "score", "total_reward", "final_reward", "reward_score", "reward_total", "episode_return", "final_score",
    ),
    ("acc", "is_correct", "correct", "is_solved", "solved", "resolved"),
)  # fmt: skip
# Rewards where nothing better is and they have numbers or truths: each is often something else as well.
LAST_REWARDS = ("passed", "accuracy", "success", "result", "judge_score")
# Often the id of a row, sometimes of a prompt: compared with a key that is only a text.
ROW_IDS = ("id", "uuid", "idx", "index", "sample_uid")
# Parts of likely names: if no known name is found, such columns are listed first.
LIKELY_GROUP = r"id$|idx|uid|index|key|prompt|question|problem|task|group|input|params"
LIKELY_REWARD = r"reward|score|return|correct|solved|resolved|pass|success|acc|grade|metric|value"
# --- the prompt of a group ------------------------------------------------------------------------------------

# What a response answers: if it differs within a group, the id identifies something larger than a prompt.
PROMPT_TEXTS = (
    "prompt", "input_prompt", "prompt_text", "prompt_str", "raw_prompt", "user_prompt", "task_prompt", "question", "question_text",
    "query", "problem", "problem_statement", "instruction", "instructions", "goal", "input", "responses_create_params",
    "messages", "conversation", "conversations",
)  # fmt: skip
# They may contain the response as well as the prompt.
CONVERSATIONS = ("messages", "conversation", "conversations")
# Parts of names that no prompt has: responses repeat, too, if several judges score each.
NO_PROMPT = r"respon|complet|output|generat|answer|repl(y|ies)|predict|solution|judg|ration|reason|feedback|critique|traj|trace|action|observ|tool|error|log"

# --- steps and draws ------------------------------------------------------------------------------------------

STEP_LIKE = (
    "step", "global_step", "training_step", "train_step", "gen_step", "iteration", "iter", "epoch", "run_name",
)  # fmt: skip
# The version of the policy that sampled, or how far it is behind.
VERSIONS = ("policy_version", "weight_version", "head_version", "staleness")
# They separate draws, or number the rows or parts of a draw: their values show which.
TIME = "timestamp"
DRAW_LIKE = ("draw", "batch", "round", TIME)
STEPS = (*STEP_LIKE, *DRAW_LIKE)
OWN_STEP = "step"  # the only step-like name that may also count the steps inside a rollout

# Where a row is from: several of them under one key are several groups, if all have as many rows.
SOURCES = (
    "model", "model_name", "model_id", "policy", "checkpoint", "run_id", "run", "data_source", "dataset", "dataset_name",
    "env", "env_name", "environment", "split", "subset", "global_steps",
)  # fmt: skip
MOST_SOURCES = 3  # of them are read, since each takes memory
# Which task or world a prompt is from: a column of the table of a report.
ENVIRONMENTS = ("env_name", "env", "environment", "data_source", "dataset", "dataset_name", "source", "domain")

# --- rows that may not count --------------------------------------------------------------------------------

# Columns by which trainers and samplers mark rows, and how: by a truth or a text that is not empty, by a 0, or by an end that
# is a failure. An end by its stop token or its length is ordinary.
FAILED_ENDS = ("error", "abort", "aborted", "failed", "timeout", "timed_out", "cancelled", "canceled")
KNOWN_MARKS = {
    **dict.fromkeys(("mask_sample", "remove_sample", "is_masked"), "truth"),
    "sample_loss_mask": "zero",
    **dict.fromkeys(("failure_kind", "failure_reason", "error", "errors", "has_error", "is_truncated"), "truth"),
    "finish_reason": "end",
}  # fmt: skip
# The same where no tool is recognised: names that people give such columns. True or filled, false, or a status of failure.
MARKS_OF_PEOPLE = {
    **dict.fromkeys((
        "failed", "is_error", "timeout", "timed_out", "aborted", "crashed", "exception", "failure", "infra_error", "masked",
    ), "truth"),
    **dict.fromkeys(("ok", "valid"), "false"),
    "status": "end",
}  # fmt: skip
# Of these, the ones that a verifier writes as well: where they say of every row what its reward says, they are an outcome.
MAYBE_OUTCOMES = ("failed", "failure", "ok", "valid", "status")
# Beside one of these, `failed` is what the verifier found, and no failure of the run.
OUTCOMES = ("pass", "passed", "success", "succeeded", "solved", "correct", "right")
GOOD = (
    "ok",
    "valid",
    "is_valid",
    "success",
    "succeeded",
    "passed",
    "solved",
    "correct",
)  # names whose rows are to be kept
REASONS = ("failure_kind", "failure_reason")  # why a row is marked

# --- rollouts, samples and judges -----------------------------------------------------------------------------

SAMPLE_IDS = ("sample", "sample_id", "sample_idx", "sample_index", "rollout_idx", "completion_id", "traj_idx")
# Ids of rollouts. Not `uid`, which is verl's key of a prompt, and not `sample_id`, a number that restarts.
ROLLOUT_NUMBER = "rollout_id"  # also the name of a training step
ROLLOUT_IDS = ("trajectory_id", "traj_id", "traj_uid", "episode_id", "session_id", ROLLOUT_NUMBER)
# Beside a number that rises inside them, these are ids of rollouts as well, and without it mostly something else.
TURNS = (
    "turn", "turn_id", "turn_idx", "turn_index", "turn_number", "step_id", "step_idx", "step_index", OWN_STEP,
)  # fmt: skip
IDS_OF_TURNS = (
    "rollout", "trajectory", "traj", "episode", "attempt", "attempt_id", "conv_id", "conversation_id", *SAMPLE_IDS,
)  # fmt: skip
# Ids that identify a rollout in another file, those of single rows first; sample numbers are unique within a group.
PAIR_IDS = (
    "trajectory_id", "traj_id", "trace_id", "completion_id", "request_id", "uuid", "sample_uid", "episode_id", "session_id",
    "rollout_id", "id", "sample_id", "rollout_idx", "traj_idx", "sample_idx", "sample", "idx", "index",
)  # fmt: skip
# Where a file names the rollout of another file that it scores again: `harbor trial regrade` (SourceTrialConfig).
SOURCE_IDS = (("config.source_trial.trial_id", "id"), ("source_trial_id", "id"))
JUDGES = (
    "judge", "judge_id", "judge_name", "judge_model", "judge_idx", "grader", "grader_id", "grader_name", "rater",
    "rater_id", "reviewer", "reviewer_id", "annotator", "annotator_id", "verifier", "verifier_id", "criterion",
    "criterion_id", "rubric_id",
)  # fmt: skip

# --- what commands show ---------------------------------------------------------------------------------------

PROMPTS = ("prompt", "question", "problem", "input", "instruction", "prompt_text", "input_prompt")
RESPONSES = (
    "completion", "response", "output", "completion_text", "response_text", "output_response", "generation",
    "llm_completion_raw", "solution",
)  # fmt: skip
TEXTS = (
    "completion", "response", "output", "completion_text", "response_text", "output_response", "llm_completion_raw",
    "answer_text", "generation", "text", "content",
)  # fmt: skip
# The tools that a model may call; verifiers and prime-rl write the last two.
TOOLS = ("tools", "tool_defs", "info.oai_tools")
# Why a response ended, and the reasons that mean it was cut off.
STOPS = ("finish_reason", "stop_reason")
TRUNCATED = ("truncated", "is_truncated", *STOPS)
CUT_OFF = (
    "length", "max_tokens", "max_length", "model_length", "truncated", "true", "1",
    "max_output_tokens",  # of OpenAI's responses, which NeMo Gym keeps
    "max_response_length_exceeded",  # of rLLM
    "response_truncated",  # of Trinity-RFT
)  # fmt: skip
# What a response is compared with: shown first among the fields.
TRUTHS = (
    "answer", "ground_truth", "gold", "target", "solution", "label", "expected", "expected_answer", "reference_answer",
    "final_answer", "correct_answer", "reward_model", "verification_info",
)  # fmt: skip
LENGTHS = (
    "length", "response_length", "completion_length", "output_length", "num_output_tokens", "n_output_tokens",
    "completion_tokens", "response_tokens", "output_tokens", "num_tokens", "seqlen",
)  # fmt: skip
ADVANTAGES = ("advantage", "advantages")
LIKELY_TOKENS = r"token|mask|_ids|length|_len"
