#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/inference/batcher.hpp"
#include "src/nn/module.hpp"

namespace lockstep {

// Speculative decoding: a small model drafts tokens one by one, and a large one computes
// all of them in one pass, which takes it hardly longer than a single one, since either
// way it reads its weights once. So many drafts stay that what comes out is distributed
// as if the large model had chosen alone (Leviathan, Kalman and Matias 2023, 2211.17192,
// section 2; Chen et al. 2023, 2302.01318, is the same, found at the same time).

/// Probabilities of all tokens, by their numbers; those that cannot be chosen have 0.
using Distribution = std::vector<double>;

/// The distribution that `sample` chooses from, given the logits of a row.
Distribution distribution_of(std::span<const double> logits, const Sampling& sampling);

/// Of drafts x_1 … x_γ, chosen from q_1 … q_γ where the large model has p_1 … p_γ: x_i
/// stays with probability p_i(x_i) / q_i(x_i), at most 1, if those before it did. The
/// first that does not is chosen again from max(0, p_i - q_i), made to add up to 1; if
/// all stay, one more is chosen from p_γ+1. Gives these tokens: 1 to γ + 1.
///
/// Token i is decided by numbers `position` + i of streams of the seed. Throws UsageError
/// unless there are γ + 1 distributions of the large model, over as many tokens.
std::vector<std::int32_t> accepted(std::span<const std::int32_t> drafts,
                                   std::span<const Distribution> draft_model,
                                   std::span<const Distribution> large_model,
                                   std::uint64_t seed, std::int64_t position);

/// The part of drafts that stay, on average, where the models have these distributions:
/// the sum of min(p, q), the paper's β.
double acceptance(const Distribution& draft_model, const Distribution& large_model);
/// Tokens a pass of the large model gives on average if each draft stays with probability
/// alpha, whatever the others do: (1 - alpha^(γ + 1)) / (1 - alpha), equation 1.
double expected_tokens(double alpha, int drafts);

/// A model with its cache.
struct CachedModel {
    Module& model;  ///< made of a kit with_cache
    KeyValueCache& cache;
    PagePool& pool;
};

struct Speculation {
    int drafts = 4;  ///< γ, of each pass of the large model
    /// Without numbers nothing can be compared: drafts then stay with this probability.
    double stated_acceptance = 0.8;
};

struct SpeculationReport {
    std::vector<std::int32_t> tokens;
    std::int64_t passes = 0;  ///< of the large model; the first has the prompt, too
    std::int64_t drafted = 0;
    std::int64_t stayed = 0;
};

/// Answers one request so, on one device. Both models have the same vocabulary. What they
/// have in their caches of drafts that did not stay is written over.
SpeculationReport speculate(Device& device, CachedModel large, CachedModel small,
                            const Request& request, const Speculation& speculation = {},
                            SourceLine at = SourceLine::here());

}  // namespace lockstep
