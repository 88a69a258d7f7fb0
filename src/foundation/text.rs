//! Texts: n-grams, TF-IDF, sentence and word bounds, typographic folding.
