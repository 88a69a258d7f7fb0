//! The handle of a sentence embedder that runs in this process: tokenises and truncates texts, and computes batches on
//! its own threads.

use std::path::Path;
use std::sync::Arc;

use rayon::{ThreadPool, ThreadPoolBuilder};
use serde::Deserialize;
use tokio::sync::oneshot;

use super::error::LoadError;
use super::models::{Bert, BertConfig, standard_json};
use super::options::EngineOptions;
use super::tokenizer::Tokenizer;
use super::weights::{Weights, read_text};
use crate::foundation::base::limits::PASS_TOKENS_MAX;
use crate::foundation::chat::{BoxFuture, Embedder, ModelError, TokenId};

/// A BERT-like sentence embedder in this process (all-MiniLM-L6-v2 and similar): the mean over a text's tokens, scaled
/// to unit length, so that a dot product is a cosine. Clones share it.
///
/// A text is truncated to the model's number of positions, or to `max_seq_length` of its `sentence_bert_config.json` if
/// that is less (256 for all-MiniLM-L6-v2). A vector depends, bit for bit, only on its own text: not on other texts of
/// the call, nor on the number of threads.
#[derive(Clone)]
pub struct LocalEmbedder(Arc<Inner>);

struct Inner {
    name: String,
    bert: Bert,
    tokenizer: Tokenizer,
    pool: ThreadPool,
}

/// `sentence_bert_config.json`.
#[derive(Deserialize)]
struct SentenceConfig {
    max_seq_length: Option<usize>,
}

/// `1_Pooling/config.json`.
#[derive(Deserialize)]
struct Pooling {
    #[serde(default)]
    pooling_mode_mean_tokens: bool,
}

impl LocalEmbedder {
    /// Opens a folder with Hugging Face's files: `config.json`, `tokenizer.json`, `model.safetensors` or its sharded
    /// form, and optionally `sentence_bert_config.json` and `1_Pooling/config.json`.
    ///
    /// # Errors
    /// [`ModelError::Unavailable`], which names the file or tensor that is wrong.
    pub fn from_dir(path: &Path, options: &EngineOptions) -> Result<Self, ModelError> {
        let name = format!("local:{}", path.display());
        load(path, name.clone(), options).map(|inner| Self(Arc::new(inner))).map_err(|error| error.of(&name))
    }
}

fn load(path: &Path, name: String, options: &EngineOptions) -> Result<Inner, LoadError> {
    let config = BertConfig::parse(&standard_json(&read_text(&path.join("config.json"))?))?;
    let pooling: Option<Pooling> = read_optional(path, "1_Pooling/config.json")?;
    if pooling.is_some_and(|pooling| !pooling.pooling_mode_mean_tokens) {
        let why = "its pooling mode is not supported; supported: `pooling_mode_mean_tokens`";
        return Err(LoadError::malformed("1_Pooling/config.json", why));
    }
    let sentences: Option<SentenceConfig> = read_optional(path, "sentence_bert_config.json")?;
    let requested_dtype = sentences.and_then(|sentences| sentences.max_seq_length).unwrap_or(config.window);
    let tokenizer =
        Tokenizer::parse_cutting(&read_text(&path.join("tokenizer.json"))?, requested_dtype.min(config.window))?;
    let bert = Bert::load(config, &mut Weights::from_dir(path)?)?;
    let pool =
        ThreadPoolBuilder::new().num_threads(options.threads()?).thread_name(|index| format!("loom-embed-{index}"));
    let pool = pool.build().map_err(|error| LoadError::Start(error.to_string()))?;
    Ok(Inner { name, bert, tokenizer, pool })
}

/// An optional JSON file of the model.
fn read_optional<T: for<'a> Deserialize<'a>>(path: &Path, file: &str) -> Result<Option<T>, LoadError> {
    let path = path.join(file);
    if !path.is_file() {
        return Ok(None);
    }
    serde_json::from_str(&read_text(&path)?).map(Some).map_err(|error| LoadError::malformed(file, error))
}

impl Inner {
    fn ids(&self, text: &str) -> Result<Vec<TokenId>, ModelError> {
        let failed = |why: String| ModelError::Failed { model: self.name.clone(), why };
        let ids = self.tokenizer.encode_framed(text).map_err(failed)?;
        let vocabulary = self.bert.vocabulary();
        if let Some(id) = ids.iter().find(|&&id| id as usize >= vocabulary) {
            let why = format!(
                "its tokenizer gives token {id}, its vocabulary has {vocabulary}: the files belong to different models"
            );
            return Err(failed(why));
        }
        if ids.is_empty() || ids.len() > self.bert.window() {
            return Err(failed(format!(
                "its tokenizer produced {} tokens for a text; the model takes 1 to {}",
                ids.len(),
                self.bert.window()
            )));
        }
        Ok(ids)
    }

    /// One vector per text. Stops early when `wanted` returns false.
    fn embed(&self, texts: &[String], wanted: impl Fn() -> bool) -> Result<Vec<Vec<f32>>, ModelError> {
        let mut vectors = Vec::with_capacity(texts.len());
        let mut batch: Vec<Vec<TokenId>> = Vec::new();
        for text in texts {
            if !wanted() {
                let why = "the caller no longer waits for the vectors".to_owned();
                return Err(ModelError::Failed { model: self.name.clone(), why });
            }
            let ids = self.ids(text)?;
            if !batch.is_empty() && batch.iter().map(Vec::len).sum::<usize>() + ids.len() > PASS_TOKENS_MAX {
                vectors.extend(self.bert.embed(&std::mem::take(&mut batch)));
            }
            batch.push(ids);
        }
        vectors.extend(self.bert.embed(&batch));
        if vectors.iter().flatten().all(|x| x.is_finite()) {
            return Ok(vectors);
        }
        let why = "its output is not finite: its weights are damaged".to_owned();
        Err(ModelError::Failed { model: self.name.clone(), why })
    }
}

impl Embedder for LocalEmbedder {
    fn embed<'a>(&'a self, texts: &'a [&'a str]) -> BoxFuture<'a, Result<Vec<Vec<f32>>, ModelError>> {
        let texts: Vec<String> = texts.iter().map(|&text| text.to_owned()).collect();
        let inner = Arc::clone(&self.0);
        let (sender, answer) = oneshot::channel();
        self.0.pool.spawn(move || {
            // The receiver may be gone; then the result is dropped.
            let vectors = inner.embed(&texts, || !sender.is_closed());
            let _ = sender.send(vectors);
        });
        Box::pin(async move {
            let gone = || "its threads have ended; this is a bug, please report it".to_owned();
            answer.await.map_err(|_| ModelError::Failed { model: self.0.name.clone(), why: gone() })?
        })
    }
}
