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
