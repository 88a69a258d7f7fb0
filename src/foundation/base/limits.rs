//! All limits of the program. An error about a limit names it.

/// Largest YAML config read, bytes.
pub const CONFIG_BYTES_MAX: u64 = 1 << 20;
/// Deepest nesting of a YAML config.
pub const CONFIG_DEPTH_MAX: usize = 32;
/// Most values in a YAML config, including those repeated by aliases.
pub const CONFIG_NODES_MAX: usize = 100_000;
/// Most problems of a config that are shown.
pub const PROBLEMS_SHOWN_MAX: usize = 100;
/// Most turns in a rollout (one turn: the persona's message and its answer).
pub const TURNS_MAX: usize = 10_000;
/// Most dimensions of a persona.
pub const DIMENSIONS_MAX: usize = 64;
/// Most phases of a persona.
pub const PHASES_MAX: usize = 256;
/// Most revelations of a persona, in all phases.
pub const REVELATIONS_MAX: usize = 1_024;
/// Largest product of a run's turns and its persona's dimensions, phases and revelations.
pub const PLAN_ITEMS_MAX: usize = 2_000_000;
/// Largest product of a run's turns and the bytes of its persona's prompt.
pub const PLAN_TEXT_BYTES_MAX: usize = 256 << 20;
/// Most redrafts of one message after a monitor fired.
pub const RETRIES_MAX: usize = 10;
/// Most rollouts in a run.
pub const ROLLOUTS_MAX: usize = 100_000;
/// Most tokens in one reply, unless the request asks for fewer.
pub const REPLY_TOKENS_MAX: usize = 4_096;
/// Most tokens of a thought before a reply in a rollout, unless the config says otherwise.
pub const THOUGHT_TOKENS_MAX: usize = 1_024;
/// How often the request for an empty or failed reply is repeated.
pub const REPLY_FAILURES_RETRIED_MAX: usize = 1;
/// A rollout is aborted after this many consecutive messages without a reply.
pub const FAILURES_IN_A_ROW_MAX: usize = 4;
/// How often a judge that wrote no rating is queried again.
pub const JUDGE_REPAIRS_MAX: usize = 2;
/// Most judge calls in flight for one transcript.
pub const JUDGE_QUESTIONS_MAX: usize = 16;
/// Most shadow conversations of one kind in flight for one transcript.
pub const SHADOWS_MAX: usize = 16;
/// Largest script for the `scripted:` model, bytes.
pub const SCRIPT_BYTES_MAX: u64 = 16 << 20;
/// Largest transcript read, bytes.
pub const TRANSCRIPT_BYTES_MAX: u64 = 1 << 30;
/// Compiled size of one user-written regular expression, bytes.
pub const REGEX_BYTES_MAX: usize = 1 << 20;
/// Largest JSON file that comes with a model (config, tokenizer), bytes.
pub const MODEL_JSON_BYTES_MAX: u64 = 256 << 20;
/// How many times longer the normalizer, the splitting and the decoder of a tokenizer may each make a text.
pub const TOKENIZER_GROWTH_MAX: usize = 64;
/// Most steps of a tokenizer's normalizer, splitting or decoder.
pub const TOKENIZER_STEPS_MAX: usize = 64;
/// Most tokens that a tokenizer adds before and after a text.
pub const TOKENIZER_FRAME_TOKENS_MAX: usize = 256;
/// Longest word that a tokenizer's model reads as one, characters.
pub const TOKENIZER_WORD_CHARS_MAX: u64 = 10_000;
/// Longest text that is tokenised, bytes.
pub const TOKENIZED_TEXT_BYTES_MAX: usize = 16 << 20;
/// Bytes of a long text that are tokenised at a time, at least.
pub const TOKENIZED_PIECE_BYTES: usize = 8 << 10;
/// Longest part of a text that is tokenised at a time, bytes: a longer one must have a place where it can be divided.
pub const TOKENIZED_PIECE_BYTES_MAX: usize = 512 << 10;
/// Largest header of a safetensors file, bytes.
pub const SAFETENSORS_HEADER_BYTES_MAX: u64 = 100 << 20;
/// Longest wait for another process to release a workspace's lock.
pub const LOCK_WAIT_MAX: std::time::Duration = std::time::Duration::from_secs(30);
/// Largest file that is read from a store (a log of receipts, a memory, records), bytes.
pub const STORED_BYTES_MAX: u64 = 1 << 32;
/// Largest report, manifest or other JSON file of a results folder that is read as a whole, bytes.
pub const RESULT_BYTES_MAX: u64 = 256 << 20;
/// Largest file of a memory workspace that is read, bytes.
pub const MEMORY_BYTES_MAX: u64 = 1 << 30;
/// Most contradictions that one scan lists.
pub const CONTRADICTIONS_MAX: usize = 100_000;
/// Highest counter of a block id (three digits), which bounds the records of a kind per day.
pub const COUNTER_MAX: usize = 999;
/// Longest excerpt of a captured signal, characters.
pub const EXCERPT_CHARS_MAX: usize = 150;
/// Largest single dim of a model (vocabulary, width, layers).
pub const MODEL_DIM_MAX: usize = 1 << 24;
/// Most shards in one safetensors index.
pub const SAFETENSORS_SHARDS_MAX: usize = 4_096;
/// Most requests that one engine processes at the same time; further requests queue.
pub const ACTIVE_SEQUENCES_MAX: usize = 64;
/// Most requests that one engine processes at the same time on a GPU; fewer if its memory is small.
pub const GPU_SEQUENCES_MAX: usize = 512;
/// Most sequence states, snapshots included, that an engine stores in GPU memory; fewer if that is small.
pub const GPU_STATES_MAX: usize = 4096;
/// Most tokens read in one forward pass on a GPU.
pub const GPU_PASS_TOKENS_MAX: usize = 2_048;
/// Bytes of logits and their scratch in GPU memory at a time: more rows are processed in batches.
pub const GPU_LOGIT_BYTES_MAX: usize = 512 << 20;
/// Default limit on the bytes of states and tokens of all requests in progress in one engine; further requests
/// queue.
pub const STATE_BYTES_MAX: u64 = 2 << 30;
/// Default limit on the bytes of states in an engine's shared-prefix cache.
pub const PREFIX_BYTES_MAX: u64 = 256 << 20;
/// Most prefixes in an engine's shared-prefix cache.
pub const PREFIXES_MAX: usize = 1_024;
/// Shortest prefix that is cached, in tokens: reading a shorter one costs less than storing its state.
pub const PREFIX_TOKENS_MIN: usize = 16;
/// Most tokens read in one forward pass.
pub const PASS_TOKENS_MAX: usize = 256;
/// Most bytes of logits from one forward pass, unless one row per generating sequence needs more.
pub const LOGITS_BYTES_MAX: usize = 64 << 20;
/// Most tokens in one prompt, including a continuation to score.
pub const PROMPT_TOKENS_MAX: usize = 1 << 20;
/// Longest pause while a client sends a request, seconds.
pub const REQUEST_SILENCE_S_MAX: u64 = 30;
/// Largest `max_tokens` of a request; what the gate can permit in one call.
pub const REPLY_ASKED_TOKENS_MAX: usize = 1 << 19;
/// Most compute threads of one model.
pub const THREADS_MAX: usize = 1_024;
/// Longest text that is rendered and tokenised on an async worker thread, bytes; longer ones use a blocking thread.
pub const TEXT_AT_ONCE_BYTES_MAX: usize = 16 << 10;
/// Most template instructions in one rendering of a chat template.
pub const TEMPLATE_FUEL_MAX: u64 = 10_000_000;
/// Deepest recursion inside a chat template.
pub const TEMPLATE_DEPTH_MAX: usize = 64;
/// Largest chat template, bytes.
pub const TEMPLATE_BYTES_MAX: usize = 1 << 20;
/// Most tokens between two braces of a chat template.
pub const TEMPLATE_TAG_TOKENS_MAX: usize = 2_048;
/// Most `elif`s in a chat template.
pub const TEMPLATE_BRANCHES_MAX: usize = 256;
/// Longest text that a chat template may build by repeating a literal, bytes.
pub const TEMPLATE_LITERAL_BYTES_MAX: usize = 1 << 20;
/// Most bytes of intermediate text and lists in one rendering of a chat template, each counted once.
pub const TEMPLATE_MADE_BYTES_MAX: usize = 256 << 20;
/// Largest width or count argument of a chat template's filter.
pub const TEMPLATE_COUNT_MAX: usize = 1_000;
/// Longest output of a chat template, and largest single value in it, bytes.
pub const TEMPLATE_RENDERED_BYTES_MAX: usize = 64 << 20;
/// Most bytes of text that the functions and comparisons of a chat template read in one rendering.
pub const TEMPLATE_READ_BYTES_MAX: usize = 1 << 30;
/// Most new messages of a conversation whose ends are found by rendering the conversation up to each; in longer ones,
/// each message's own text is rendered.
pub const MESSAGES_RENDERED_EACH_MAX: usize = 256;
/// Most new messages with a chat template that writes a message differently depending on those after it.
pub const MESSAGES_DEPENDENT_MAX: usize = 2_048;
/// Most conversations whose token ids an engine caches.
pub const KNOWN_HISTORIES_MAX: usize = 1_024;
/// Most tokens of one reply whose positions the regulator stores; later ones only enter its statistics.
pub const REGULATOR_TOKENS_MAX: usize = 1 << 18;
/// Most text of one reply that the regulator stores, bytes; the rest is counted, not analysed.
pub const REGULATOR_TEXT_BYTES_MAX: usize = 1 << 20;
/// Most words of one text that the regulator compares.
pub const REGULATOR_WORDS_MAX: usize = 1 << 16;
/// Longest task or message that the regulator analyses, bytes; the rest is ignored.
pub const REGULATOR_TASK_BYTES_MAX: usize = 1 << 16;
/// Most states in a statechart: a set of states is one machine word of 128 bits.
pub const CHART_STATES_MAX: usize = 128;
/// Most transitions in a statechart.
pub const CHART_TRANSITIONS_MAX: usize = 1_000;
/// Most microsteps per event; a chart that needs more loops forever.
pub const MICROSTEPS_MAX: usize = 1_000;
/// Largest server-sent event of a hosted model, bytes.
pub const STREAM_EVENT_BYTES_MAX: usize = 8 << 20;
/// Most retries of a request to a hosted model.
pub const REMOTE_RETRIES_MAX: u32 = 5;
/// Longest wait before a retry; a provider that requests a longer one counts as unavailable.
pub const REMOTE_WAIT_MAX: std::time::Duration = std::time::Duration::from_mins(2);
/// Largest response body of a hosted model, bytes.
pub const REMOTE_ANSWER_BYTES_MAX: usize = 64 << 20;
/// How often an interrupted download from the hub is resumed.
pub const FETCH_RESUMES_MAX: usize = 5;
/// Largest list of a repository's files on the hub, bytes.
pub const HUB_LIST_BYTES_MAX: usize = 16 << 20;
/// Most redirects that a request to the hub follows.
pub const HUB_REDIRECTS_MAX: usize = 10;
/// Longest line of events that `loom regulate` reads, bytes.
pub const EVENT_LINE_BYTES_MAX: u64 = 16 << 20;
/// Largest file of the regulator's state or settings, bytes.
pub const REGULATOR_STATE_BYTES_MAX: u64 = 64 << 20;
/// Largest text that `loom generate` and `loom logprobs` read, bytes.
pub const TEXT_BYTES_MAX: u64 = 64 << 20;
/// Default limit on a request body of `loom serve`, bytes.
pub const REQUEST_BYTES_MAX: usize = 16 << 20;
/// Bytes of all request bodies of `loom serve` together while they are received; small ones are not counted.
pub const BODIES_BYTES_MAX: usize = 48 << 20;
/// Bytes of a request body that are not counted.
pub const BODY_FREE_BYTES_MAX: usize = 64 << 10;
/// Longest time in which a client sends a request body, seconds.
pub const REQUEST_BODY_S_MAX: u64 = 120;
/// Memory for parsing, rendering and tokenising all requests of `loom serve` together, bytes; further requests wait.
pub const REQUEST_WORK_BYTES_MAX: usize = 160 << 20;
/// Memory for all requests of `loom serve` of at most [`SMALL_REQUEST_WORK_BYTES_MAX`] each, so that they do not wait for large
/// ones, bytes.
pub const SMALL_REQUESTS_WORK_BYTES_MAX: usize = 32 << 20;
/// Memory for parsing, rendering and tokenising a small request, bytes.
pub const SMALL_REQUEST_WORK_BYTES_MAX: usize = 1 << 20;
/// Memory for the prompts of choices that are generated at the same time, beyond each request's first, bytes.
pub const CHOICES_WORK_BYTES_MAX: usize = 64 << 20;
/// Most values in the JSON of a request.
pub const JSON_VALUES_MAX: usize = 1 << 20;
/// Deepest nesting of the JSON of a request.
pub const JSON_DEPTH_MAX: usize = 32;
/// Most bytes of prompts in one request, repeated for each choice.
pub const CHOICES_TEXT_BYTES_MAX: usize = 64 << 20;
/// Most tokens in one response, of all choices.
pub const RESPONSE_TOKENS_MAX: usize = 1 << 21;
/// Most log-probabilities in one response that reports them: tokens of all choices, times their alternatives and themselves.
pub const RESPONSE_LOGPROBS_MAX: usize = 1 << 19;
/// Memory counted for a reported token, as a token of the reply and as JSON, bytes.
pub const REPORTED_TOKEN_BYTES: usize = 320;
/// Memory counted for each alternative of a reported token, bytes.
pub const REPORTED_ALTERNATIVE_BYTES: usize = 160;
/// Memory for the responses that report log-probabilities and are not streamed, of all requests of `loom serve` together,
/// bytes; further ones wait. The largest response fits.
pub const RESPONSES_BYTES_MAX: usize = RESPONSE_LOGPROBS_MAX * REPORTED_TOKEN_BYTES;
/// Memory for all such responses of at most [`SMALL_RESPONSE_BYTES_MAX`] each, so that they do not wait for large ones, bytes.
pub const SMALL_RESPONSES_BYTES_MAX: usize = 32 << 20;
/// Memory for a small response, bytes.
pub const SMALL_RESPONSE_BYTES_MAX: usize = 2 << 20;
/// Most choices of one request that are generated at the same time, so that other requests get their turn.
pub const CHOICES_AT_ONCE_MAX: usize = 16;
/// Most bytes of a stream that wait for the client to read; the sequence waits then.
pub const STREAM_WAITING_BYTES_MAX: usize = 32 << 10;
/// Bytes that the system keeps for a client of `loom serve` that does not read; its own default would hide megabytes.
pub const SEND_BUFFER_BYTES: usize = 64 << 10;
/// Longest time without reading of a client whose stream waits while other requests need its place, seconds.
pub const STREAM_STALLED_S_MAX: u64 = 3;
/// Most connections of `loom serve`; fewer if the process may open few files.
pub const CONNECTIONS_MAX: usize = 1_024;
/// Largest head of a request, bytes.
pub const REQUEST_HEAD_BYTES_MAX: usize = 32 << 10;
/// Most header fields of a request.
pub const REQUEST_HEADERS_MAX: usize = 64;
/// Longest time from the signal to stop until `loom serve` has ended its connections, seconds.
pub const SERVER_STOP_S_MAX: u64 = 8;
/// Most token ids in the conversations that an engine caches.
pub const KNOWN_HISTORY_TOKENS_MAX: usize = 8 << 20;
/// Default limit on queued requests of `loom serve`.
pub const REQUESTS_WAITING_MAX: usize = 256;
/// Most choices per HTTP request: prompts times `n`.
pub const CHOICES_MAX: usize = 256;
/// Most stop texts in one HTTP request.
pub const STOP_TEXTS_MAX: usize = 16;
/// Longest stop text in an HTTP request, bytes.
pub const STOP_TEXT_BYTES_MAX: usize = 1_024;
/// Largest `top_logprobs` of an HTTP request.
pub const TOP_LOGPROBS_MAX: usize = 100;
/// Longest API key, bytes.
pub const API_KEY_BYTES_MAX: u64 = 4_096;
/// Most characters of a block that are embedded for a search by meaning.
pub const PASSAGE_CHARS_MAX: usize = 2_000;
/// How many results of each ranking are merged in hybrid search.
pub const FUSED_DEPTH: usize = 100;
/// Most leases of one gate.
pub const LEASES_MAX: usize = 100_000;
/// Largest receipt, bytes of its line.
pub const RECEIPT_BYTES_MAX: usize = 1 << 20;
/// Largest log of receipts that is read, bytes.
pub const RECEIPTS_BYTES_MAX: u64 = 1 << 32;
/// A log signs its head automatically after this many receipts.
pub const RECEIPTS_UNSIGNED_MAX: u64 = 1_024;
/// Longest text of an entry in a run's registers, bytes.
pub const MOOD_TEXT_BYTES_MAX: usize = 4_096;
/// Most open questions to the user at a time.
pub const QUESTIONS_MAX: usize = 3;
/// Longest need or answer of a session, bytes.
pub const SESSION_TEXT_BYTES_MAX: usize = 1 << 16;
/// Longest time between two heartbeats of a session, seconds, rollouts excluded; after that it counts as crashed.
pub const SESSION_HEARTBEAT_SECONDS_MAX: i64 = 3_600;
/// Longest message of one advising expert, tokens.
pub const ADVICE_TOKENS_MAX: usize = 96;
/// Longest header of a GGUF file, its vocabulary included, bytes.
pub const GGUF_HEADER_BYTES_MAX: u64 = 256 << 20;
/// Most keys in a GGUF header.
pub const GGUF_KEYS_MAX: usize = 1 << 12;
/// Most tensors in a GGUF file.
pub const GGUF_TENSORS_MAX: usize = 1 << 16;
/// Most values in a GGUF header, list items counted individually.
pub const GGUF_VALUES_MAX: u64 = 1 << 22;
/// Longest token of a GGUF vocabulary, bytes.
pub const GGUF_TOKEN_BYTES_MAX: usize = 1_024;
/// Most correct answers that a calibration stores as reference; more are subsampled evenly.
pub const CES_REFERENCE_MAX: usize = 1_000;
/// Largest file of a task for `loom confidence`, bytes.
pub const TASK_BYTES_MAX: u64 = 256 << 20;
/// Most runs in a sweep.
pub const SWEEP_CELLS_MAX: usize = 10_000;
