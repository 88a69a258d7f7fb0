//! From a model spec string to a model that answers.
