#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/inference/batcher.hpp"
#include "src/nn/module.hpp"

namespace lockstep {

// Speculative decoding: a small model drafts tokens one by one, and a large model
// computes all drafts in one pass. This pass takes hardly longer than a pass for one
// token, because the large model reads its weights once in both cases. Drafts are
// accepted and rejected such that the result is distributed as if the large model had
// chosen all tokens (Leviathan, Kalman and Matias 2023, 2211.17192, section 2; Chen et
// al. 2023, 2302.01318, found the same at the same time).

/// The probability of each token, by the token's id; 0 if it cannot be chosen.
using Distribution = std::vector<double>;

/// The distribution that `sample` chooses from, given the logits of a row.
Distribution distribution_of(std::span<const double> logits, const Sampling& sampling);

/// Drafts x_1 … x_γ were chosen from distributions q_1 … q_γ of the small model; the
/// large model's distributions are p_1 … p_γ+1. Draft x_i is accepted with probability
/// p_i(x_i) / q_i(x_i), at most 1, if all earlier drafts were accepted. The first
/// rejected draft is chosen again from max(0, p_i - q_i), normalized. If all are
/// accepted, one more token is chosen from p_γ+1. Returns the accepted drafts and the
/// chosen token: 1 to γ + 1 tokens.
///
/// Returned token i, from 0, is decided by numbers `position` + i of the seed's random
/// streams. Throws UsageError unless there are γ distributions of the small model and
/// γ + 1 of the large one, all over the same number of tokens.
std::vector<std::int32_t> accepted(std::span<const std::int32_t> drafts,
                                   std::span<const Distribution> draft_model,
                                   std::span<const Distribution> large_model,
                                   std::uint64_t seed, std::int64_t position);

/// Returns the fraction of drafts that are accepted on average if the models have these
/// distributions: the sum of min(p, q), the paper's β.
double acceptance(const Distribution& draft_model, const Distribution& large_model);
/// Returns how many tokens a pass of the large model yields on average if each draft is
/// accepted with probability alpha, independently of the others: (1 - alpha^(γ + 1)) / (1
/// - alpha), equation 1.
double expected_tokens(double alpha, int drafts);

/// A model with its cache.
struct CachedModel {
    Module& model;  ///< made with a kit of with_cache()
    KeyValueCache& cache;
    PagePool& pool;
};

struct Speculation {
    int drafts = 4;  ///< γ, for each pass of the large model
    /// In a run without numbers, distributions cannot be compared. Each draft is then
    /// accepted with this probability.
    double stated_acceptance = 0.8;
};

struct SpeculationReport {
    std::vector<std::int32_t> tokens;
    std::int64_t passes = 0;  ///< of the large model; the first computes the prompt, too
    std::int64_t drafted = 0;
    std::int64_t stayed = 0;
};

/// Answers one request by speculative decoding, on one device. Both models have the same
/// vocabulary. Rejected drafts in the caches are overwritten.
SpeculationReport speculate(Device& device, CachedModel large, CachedModel small,
                            const Request& request, const Speculation& speculation = {},
                            SourceLine at = SourceLine::here());

}  // namespace lockstep
