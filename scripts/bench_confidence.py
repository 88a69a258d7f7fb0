#!/usr/bin/env python3
"""The estimators of lm-polygraph and uqlm on what `loom confidence bench --items-json` exported: see bench-confidence.sh."""

import json
import re
import sys
import warnings

AGREE = 1e-4


def column(rows, values):
    print("| " + " | ".join(rows) + " |")
    print("|" + "---|" * len(rows))
    for row in values:
        print("| " + " | ".join(row) + " |")


def auroc(certainty, right):
    pairs = [(a > b) + 0.5 * (a == b) for a, x in zip(certainty, right) if x for b, y in zip(certainty, right) if not y]
    return sum(pairs) / len(pairs) if pairs else None


def main(items_path, study_path):
    warnings.simplefilter("ignore")
    from importlib.metadata import version

    import numpy as np
    from lm_polygraph.estimators import (
        CocoaMSP, CocoaMTE, CocoaPPL, FisherRao, LexicalSimilarity, MaximumSequenceProbability, MeanTokenEntropy,
        MonteCarloNormalizedSequenceEntropy, MonteCarloSequenceEntropy, Perplexity, PTrue, RenyiNeg, SelfCertainty,
        SemanticEntropy,
    )
    from lm_polygraph.ue_metrics.pred_rej_area import PredictionRejectionArea
    from uqlm.black_box.match import MatchScorer
    from uqlm.nli.entropy_utils import (
        compute_cluster_probabilities, compute_response_probabilities, compute_semantic_entropy,
    )
    from uqlm.white_box.sampled_logprobs import SampledLogprobsScorer
    from uqlm.white_box.single_logprobs import SingleLogprobsScorer
    from uqlm.white_box.top_logprobs import TopLogprobsScorer

    items = [json.loads(line) for line in open(items_path)]
    # The peers have no values for an answer without a token.
    items = [item for item in items if item["tokens"] and all(sample["tokens"] for sample in item["samples"])]
    study = json.load(open(study_path))
    sampled = all(item["samples"] for item in items)
    ours = lambda name: [item["estimates"].get(name) for item in items]

    # What lm-polygraph's calculators would have computed from the model.
    sizes = {len(token["top"]) for item in items for token in item["tokens"]}
    whole = len(sizes) == 1 and min(sizes) > 100
    stats = {
        "greedy_log_likelihoods": [[t["logprob"] for t in item["tokens"]] for item in items],
        "entropy": [[t["entropy"] for t in item["tokens"]] for item in items],
        "greedy_log_probs": [[np.array(t["top"], dtype=np.float64) for t in item["tokens"]] for item in items],
        "greedy_texts": [item["answer"] for item in items],
        "p_true": ours("p_true"),
    }
    if sampled:
        stats["sample_texts"] = [[s["text"] for s in item["samples"]] for item in items]
        stats["sample_tokens"] = [[[t["token"] for t in s["tokens"]] for s in item["samples"]] for item in items]
        stats["sample_log_probs"] = [[sum(t["logprob"] for t in s["tokens"]) for s in item["samples"]] for item in items]
        stats["greedy_sentence_similarity"] = [np.array([s["similarity"] for s in item["samples"]]) for item in items]
        classes, places = {}, {}
        for at, item in enumerate(items):
            meanings = [s["meaning"] for s in item["samples"]]
            order = list(dict.fromkeys(meanings))
            places[at] = {k: order.index(m) for k, m in enumerate(meanings)}
            classes[at] = [[k for k, m in enumerate(meanings) if m == one] for one in order]
        stats["semantic_classes_entail"] = {"class_to_sample": classes, "sample_to_class": places}

    # uqlm reads OpenAI's form of log-probabilities.
    def openai(tokens):
        return [
            {"token": t["token"], "logprob": t["logprob"], "top_logprobs": [{"logprob": p} for p in t["top"]]} for t in tokens
        ]

    single = [openai(item["tokens"]) for item in items]
    uq = SingleLogprobsScorer().evaluate(single)
    long = SingleLogprobsScorer(length_normalize=False).evaluate(single)
    tops = TopLogprobsScorer(top_k_logprobs=max(sizes)).evaluate(single)
    log = lambda values: [-float(np.log(v)) for v in values]
    plus = lambda values: [1 - float(v) for v in values]
    minus = lambda values: [-float(v) for v in values]
    rows = [
        ("ln_nll", "lm-polygraph Perplexity", Perplexity()(stats)),
        ("ln_nll", "uqlm sequence_probability, −ln", log(uq["sequence_probability"])),
        ("msp", "lm-polygraph MaximumSequenceProbability", MaximumSequenceProbability()(stats)),
        ("min_probability", "uqlm min_probability, 1 −", plus(uq["min_probability"])),
        ("entropy_mean", "lm-polygraph MeanTokenEntropy", MeanTokenEntropy()(stats)),
        ("margin", "uqlm probability_margin, 1 −", plus(tops["probability_margin"])),
    ]
    tiny = [p for p in long["sequence_probability"] if p < 1e-300]
    if not tiny:
        rows.append(("msp", "uqlm sequence_probability without length, −ln", log(long["sequence_probability"])))
    if whole:
        rows.append(("self_certainty", "lm-polygraph SelfCertainty, −", minus(SelfCertainty()(stats))))
        negentropy = [(1 - value) * float(np.log(max(sizes))) for value in tops["mean_token_negentropy"]]
        rows.append(("entropy_mean", "uqlm mean_token_negentropy, (1 −)·ln V", negentropy))
    if sampled:
        frequency = SemanticEntropy(class_probability_estimation="frequency")
        clusters = stats["semantic_classes_entail"]["class_to_sample"]
        entropies = []
        for at, item in enumerate(items):
            _, uniform = compute_response_probabilities(None, len(item["samples"]))
            entropies.append(compute_semantic_entropy(compute_cluster_probabilities(uniform, clusters[at])))
        fold = lambda text: " ".join(re.findall(r"[\w'’]+", text.lower()))
        matches = MatchScorer().evaluate(
            [fold(item["answer"]) for item in items], [[fold(s["text"]) for s in item["samples"]] for item in items]
        )
        rows += [
            ("cocoa_msp", "lm-polygraph CocoaMSP", CocoaMSP()(stats)),
            ("cocoa_ppl", "lm-polygraph CocoaPPL", CocoaPPL()(stats)),
            ("cocoa_mte", "lm-polygraph CocoaMTE", CocoaMTE()(stats)),
            ("semantic_entropy", "lm-polygraph SemanticEntropyEmpirical", frequency(stats)),
            ("semantic_entropy", "uqlm discrete semantic entropy", entropies),
            ("answer_frequency", "uqlm exact_match, of folded texts", matches),
            ("p_true", "lm-polygraph PTrue, −", minus(PTrue()(stats))),
        ]
    print(f"lm-polygraph {version('lm-polygraph')}, uqlm {version('uqlm')}; {len(items)} items, identical generations and "
          f"log-probabilities\n")
    table, apart = [], []
    for name, peer, values in rows:
        difference = max(abs(a - float(b)) / max(1.0, abs(a)) for a, b in zip(ours(name), values))
        table.append([name, peer, f"{np.mean(ours(name)):.6f}", f"{np.mean([float(v) for v in values]):.6f}", f"{difference:.1e}"])
        if not difference <= AGREE:
            apart.append(f"{name} and {peer} differ by {difference:.2e}")
    column(["Loom", "peer", "Loom, mean", "peer, mean", "largest difference"], table)

    # The measures: lm-polygraph's rejection area, normalised by a random and an ideal order, and scikit-learn's AUROC.
    from sklearn.metrics import roc_auc_score

    right = [float(item["right"]) for item in items]
    if 0 < sum(right) < len(right):
        area = PredictionRejectionArea()

        def prr(uncertainty):
            ideal, chance = area([-r for r in right], right), np.mean(right)
            # Equal estimates count as if in random order: the mean over orders.
            rng, reached = np.random.default_rng(0), []
            for _ in range(200):
                order = rng.permutation(len(right))
                reached.append(area(np.array(uncertainty)[order], np.array(right)[order]))
            return (np.mean(reached) - chance) / (ideal - chance)

        peers = {"lm-polygraph Perplexity": Perplexity()(stats), "lm-polygraph MaximumSequenceProbability": MaximumSequenceProbability()(stats)}
        if whole:
            peers["lm-polygraph RenyiNeg"] = RenyiNeg()(stats)
            peers["lm-polygraph FisherRao"] = FisherRao()(stats)
            peers["uqlm min_token_negentropy"] = minus(tops["min_token_negentropy"])
        if sampled:
            peers["lm-polygraph MonteCarloSequenceEntropy"] = MonteCarloSequenceEntropy()(stats)
            peers["lm-polygraph MonteCarloNormalizedSequenceEntropy"] = MonteCarloNormalizedSequenceEntropy()(stats)
            peers["lm-polygraph LexicalSimilarity"] = LexicalSimilarity("rougeL")(stats)
            peers["lm-polygraph SemanticEntropy"] = SemanticEntropy()(stats)
            uq_sampled = SampledLogprobsScorer(scorers=["monte_carlo_probability"])
            monte = uq_sampled.monte_carlo_probability(
                stats["greedy_texts"], single, [[openai(s["tokens"]) for s in item["samples"]] for item in items]
            )
            peers["uqlm monte_carlo_probability"] = minus(monte)
        lower = {"group_confidence_min", "group_confidence_bottom", "group_confidence_tail", "self_certainty", "wepr",
                 "choice_margin", "answer_frequency", "self_consistency", "p_true", "deepconf_vote"}
        for name in ("ln_nll", "msp", "min_probability", "entropy_mean", "entropy_max", "margin", "self_certainty",
                     "group_confidence_min", "semantic_entropy", "answer_frequency", "self_consistency", "p_true",
                     "cocoa_msp", "cocoa_ppl", "cocoa_mte", "deepconf_vote"):
            values = ours(name)
            if all(value is not None for value in values):
                peers[f"Loom {name}"] = [-v if name in lower else v for v in values]
        print(f"\nOn all {len(items)} items ({np.mean(right):.1%} right), by lm-polygraph's rejection area and scikit-learn:\n")
        measured = [(prr(values), roc_auc_score(right, [-float(v) for v in values]), name) for name, values in peers.items()]
        column(["Estimator", "PRR", "AUROC"], [[name, f"{p:.3f}", f"{a:.3f}"] for p, a, name in sorted(measured, reverse=True)])
    if apart:
        sys.exit("\n" + "\n".join(apart))
    print(f"\nall {len(rows)} comparisons agree within {AGREE:.0e}; study: {study['task']}, {study['model']}")


if __name__ == "__main__":
    main(*sys.argv[1:3])
