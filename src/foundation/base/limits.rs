//! Every limit by name, in one place. A limit that is met gives an error that names it.

/// Largest YAML config read, bytes.
pub const CONFIG_BYTES_MAX: u64 = 1 << 20;
/// Deepest nesting of a YAML config.
pub const CONFIG_DEPTH_MAX: usize = 32;
/// Most values in a YAML config, those that aliases repeat included.
pub const CONFIG_NODES_MAX: usize = 100_000;
/// Most turns in a rollout (one turn: the persona's message and its answer).
pub const TURNS_MAX: usize = 10_000;
/// Most redrafts of one message after a monitor fired.
pub const RETRIES_MAX: usize = 10;
/// Most rollouts in a run.
pub const ROLLOUTS_MAX: usize = 100_000;
/// Most tokens in one reply, unless the request asks for fewer.
pub const REPLY_TOKENS_MAX: usize = 4_096;
/// How often an empty or failed reply is asked for again.
pub const REPLY_FAILURES_RETRIED_MAX: usize = 1;
/// A rollout is given up after this many messages in a row without a reply.
pub const FAILURES_IN_A_ROW_MAX: usize = 4;
/// How often a judge that wrote no rating is asked again.
pub const JUDGE_REPAIRS_MAX: usize = 2;
/// Most questions that one transcript has before judges at the same time.
pub const JUDGE_QUESTIONS_MAX: usize = 16;
/// Most shadow conversations of one kind that one transcript has before its model at the same time.
pub const SHADOWS_MAX: usize = 16;
/// Largest script for the `scripted:` model, bytes.
pub const SCRIPT_BYTES_MAX: u64 = 16 << 20;
/// Largest transcript read, bytes.
pub const TRANSCRIPT_BYTES_MAX: u64 = 1 << 30;
/// Compiled size of one user-written regular expression, bytes.
pub const REGEX_BYTES_MAX: usize = 1 << 20;
/// Largest JSON file that comes with a model (config, tokenizer), bytes.
pub const MODEL_JSON_BYTES_MAX: u64 = 256 << 20;
/// Largest header of a safetensors file, bytes.
pub const SAFETENSORS_HEADER_BYTES_MAX: u64 = 100 << 20;
/// Longest wait for another process to let go of a workspace's lock.
pub const LOCK_WAIT_MAX: std::time::Duration = std::time::Duration::from_secs(30);
/// Largest file of a memory workspace that is read, bytes.
pub const MEMORY_BYTES_MAX: u64 = 1 << 30;
/// Most contradictions that one scan lists.
pub const CONTRADICTIONS_MAX: usize = 100_000;
/// Highest counter of a block id (three digits): so many records of a kind fit into one day.
pub const COUNTER_MAX: usize = 999;
/// Longest excerpt of a captured signal, characters.
pub const EXCERPT_CHARS_MAX: usize = 150;
/// Largest single dim of a model (vocabulary, width, layers).
pub const MODEL_DIM_MAX: usize = 1 << 24;
/// Most shards in one safetensors index.
pub const SAFETENSORS_SHARDS_MAX: usize = 4_096;
/// Most requests that one engine works on at the same time; further callers wait in order.
pub const ACTIVE_SEQUENCES_MAX: usize = 64;
/// Most requests that one engine works on at the same time on a GPU; fewer where its memory is small.
pub const GPU_SEQUENCES_MAX: usize = 512;
/// States of sequences that an engine keeps in a GPU's memory, snapshots among them; fewer where it is small.
pub const GPU_STATES_MAX: usize = 4096;
/// Most tokens read in one forward pass on a GPU.
pub const GPU_PASS_TOKENS_MAX: usize = 2_048;
/// Bytes of logits that a GPU holds at a time, their scratch included: more rows are read in turns.
pub const GPU_LOGIT_BYTES_MAX: usize = 512 << 20;
/// Most bytes that the states and tokens of all requests at work in one engine may come to, unless it is told
/// otherwise; further callers wait in order.
pub const STATE_BYTES_MAX: u64 = 2 << 30;
/// Most bytes of states that one engine keeps of openings that other prompts may share, unless it is told otherwise.
pub const PREFIX_BYTES_MAX: u64 = 256 << 20;
/// Most openings that one engine keeps.
pub const PREFIXES_MAX: usize = 1_024;
/// Shortest opening that is worth sharing, in tokens: below it, reading costs less than keeping a state.
pub const PREFIX_TOKENS_MIN: usize = 16;
/// Most tokens read in one forward pass.
pub const PASS_TOKENS_MAX: usize = 256;
/// Most bytes of logits that one forward pass gives, unless one row for each that writes comes to more.
pub const LOGITS_BYTES_MAX: usize = 64 << 20;
/// Most tokens in one prompt, the continuation to be scored included.
pub const PROMPT_TOKENS_MAX: usize = 1 << 20;
/// Longest silence within a request that a client is still sending, seconds.
pub const REQUEST_SILENCE_S_MAX: u64 = 30;
/// Most tokens that one reply may be asked for; what a gate can let pass in one call.
pub const REPLY_ASKED_TOKENS_MAX: usize = 1 << 19;
/// Most threads of one model's arithmetic.
pub const THREADS_MAX: usize = 1_024;
/// Longest text that is rendered and tokenised on a thread that serves others as well, bytes.
pub const TEXT_AT_ONCE_BYTES_MAX: usize = 16 << 10;
/// Instructions that one rendering of a chat template may take.
pub const TEMPLATE_FUEL_MAX: u64 = 10_000_000;
/// Deepest recursion inside a chat template.
pub const TEMPLATE_DEPTH_MAX: usize = 64;
/// Largest chat template, bytes.
pub const TEMPLATE_BYTES_MAX: usize = 1 << 20;
/// Most tokens between two braces of a chat template.
pub const TEMPLATE_TAG_TOKENS_MAX: usize = 2_048;
/// Most `elif`s in a chat template.
pub const TEMPLATE_BRANCHES_MAX: usize = 256;
/// Longest text that literals of a chat template may be multiplied to, bytes.
pub const TEMPLATE_LITERAL_BYTES_MAX: usize = 1 << 20;
/// Most bytes of text and lists that one rendering of a chat template may make on its way, each counted once.
pub const TEMPLATE_MADE_BYTES_MAX: usize = 256 << 20;
/// Greatest width or count that a filter of a chat template takes.
pub const TEMPLATE_COUNT_MAX: usize = 1_000;
/// Longest text that a chat template may render, bytes; and largest value that it may handle.
pub const TEMPLATE_RENDERED_BYTES_MAX: usize = 64 << 20;
/// Most conversations whose token ids an engine remembers.
pub const KNOWN_HISTORIES_MAX: usize = 1_024;
/// Most tokens of one reply whose places the regulator keeps; later ones count in its statistics alone.
pub const REGULATOR_TOKENS_MAX: usize = 1 << 18;
/// Most text of one reply that the regulator keeps, bytes; what follows is counted, not read.
pub const REGULATOR_TEXT_BYTES_MAX: usize = 1 << 20;
/// Most words of one text that the regulator compares.
pub const REGULATOR_WORDS_MAX: usize = 1 << 16;
/// Longest task or message that the regulator reads, bytes; what follows is left out.
pub const REGULATOR_TASK_BYTES_MAX: usize = 1 << 16;
/// Most states in a statechart: a set of states is one machine word of 128 bits.
pub const CHART_STATES_MAX: usize = 128;
/// Most transitions in a statechart.
pub const CHART_TRANSITIONS_MAX: usize = 1_000;
/// Most microsteps in answer to one event; a chart that needs more goes round without end.
pub const MICROSTEPS_MAX: usize = 1_000;
/// Largest event of a hosted model's stream, bytes.
pub const STREAM_EVENT_BYTES_MAX: usize = 8 << 20;
/// How often a request to a hosted model is sent again at most.
pub const REMOTE_RETRIES_MAX: u32 = 5;
/// Longest wait before a request is sent again; a provider that asks for more is taken for unavailable.
pub const REMOTE_WAIT_MAX: std::time::Duration = std::time::Duration::from_mins(2);
/// Largest answer of a hosted model, as it travels, bytes.
pub const REMOTE_ANSWER_BYTES_MAX: usize = 64 << 20;
/// How often a cut download from the hub is taken up again.
pub const FETCH_RESUMES_MAX: usize = 5;
/// Longest line of events that `loom regulate` reads, bytes.
pub const EVENT_LINE_BYTES_MAX: u64 = 16 << 20;
/// Largest file of the regulator's state or settings, bytes.
pub const REGULATOR_STATE_BYTES_MAX: u64 = 64 << 20;
/// Largest text that `loom generate` and `loom logprobs` read, bytes.
pub const TEXT_BYTES_MAX: u64 = 64 << 20;
/// Largest request that `loom serve` takes, bytes, unless it is told otherwise.
pub const REQUEST_BYTES_MAX: usize = 16 << 20;
/// Most requests that wait for `loom serve`, unless it is told otherwise.
pub const REQUESTS_WAITING_MAX: usize = 256;
/// Most answers to one HTTP request: prompts times answers to each.
pub const CHOICES_MAX: usize = 256;
/// Most stop texts in one HTTP request.
pub const STOP_TEXTS_MAX: usize = 16;
/// Longest stop text in an HTTP request, bytes.
pub const STOP_TEXT_BYTES_MAX: usize = 1_024;
/// Most alternatives to each token that an HTTP request may ask for.
pub const TOP_LOGPROBS_MAX: usize = 100;
/// Longest API key, bytes.
pub const API_KEY_BYTES_MAX: u64 = 4_096;
/// Most characters of a block that are embedded for a search by meaning.
pub const PASSAGE_CHARS_MAX: usize = 2_000;
/// How deep each of two rankings is read before they are joined.
pub const FUSED_DEPTH: usize = 100;
/// Most leases that one gate gives.
pub const LEASES_MAX: usize = 100_000;
/// Largest receipt, bytes of its line.
pub const RECEIPT_BYTES_MAX: usize = 1 << 20;
/// Largest log of receipts that is read, bytes.
pub const RECEIPTS_BYTES_MAX: u64 = 1 << 32;
/// Receipts after which a log signs its head of itself.
pub const RECEIPTS_UNSIGNED_MAX: u64 = 1_024;
/// Longest text of an entry in a run's registers, bytes.
pub const MOOD_TEXT_BYTES_MAX: usize = 4_096;
/// Most questions that a run asks at a time.
pub const QUESTIONS_MAX: usize = 3;
/// Largest file that a session's tool reads, bytes.
pub const TOOL_FILE_BYTES_MAX: u64 = 16 << 20;
/// Longest need or answer of a session, bytes.
pub const SESSION_TEXT_BYTES_MAX: usize = 1 << 16;
/// Longest time between two signs of life of a session, rollouts apart, seconds; a later one counts as a crash.
pub const SESSION_HEARTBEAT_SECONDS_MAX: i64 = 3_600;
/// Longest advice of one expert, tokens.
pub const ADVICE_TOKENS_MAX: usize = 96;
/// Longest header of a GGUF file, its vocabulary included, bytes.
pub const GGUF_HEADER_BYTES_MAX: u64 = 256 << 20;
/// Most keys in a GGUF header.
pub const GGUF_KEYS_MAX: usize = 1 << 12;
/// Most tensors in a GGUF file.
pub const GGUF_TENSORS_MAX: usize = 1 << 16;
/// Most values in a GGUF header, those in lists counted one by one.
pub const GGUF_VALUES_MAX: u64 = 1 << 22;
/// Longest token of a GGUF vocabulary, bytes.
pub const GGUF_TOKEN_BYTES_MAX: usize = 1_024;
/// Most answers known to be right that a calibration keeps for comparison; more are thinned out evenly.
pub const CES_REFERENCE_MAX: usize = 1_000;
/// Largest file of a task for `loom confidence`, bytes.
pub const TASK_BYTES_MAX: u64 = 256 << 20;
/// Most runs in a sweep.
pub const SWEEP_CELLS_MAX: usize = 10_000;
/// Most of what a session's command prints that is kept, bytes of each stream.
pub const TOOL_OUTPUT_BYTES_MAX: usize = 1 << 20;
