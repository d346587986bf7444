#include "src/inference/speculation.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "src/core/philox.hpp"
#include "src/core/require.hpp"

namespace lockstep {

Distribution distribution_of(std::span<const double> logits, const Sampling& sampling) {
    require(
        !logits.empty() &&
            std::ranges::none_of(logits, [](double logit) { return std::isnan(logit); }),
        "{} logits, or one of them is NaN; at least one is expected, and no NaN",
        logits.size());
    std::vector<Candidate> sorted;
    for (std::size_t token = 0; token < logits.size(); ++token)
        sorted.push_back({static_cast<std::int32_t>(token), logits[token]});
    std::ranges::stable_sort(sorted, std::greater(), &Candidate::logit);
    const std::vector<double> weights = probabilities(sorted, sampling);
    Distribution all(logits.size(), 0.0);
    for (std::size_t i = 0; i < weights.size(); ++i)
        all[static_cast<std::size_t>(sorted[i].token)] = weights[i];
    return all;
}

namespace {

std::int32_t token_of(const Distribution& weights, double uniform) {
    return static_cast<std::int32_t>(place_of(weights, uniform));
}

/// Returns a random number, uniform in [0, 1), for this purpose and place of a sequence.
double uniform(std::uint64_t seed, const char* purpose, std::int64_t position) {
    return RandomStream(seed, purpose).uniform(static_cast<std::uint64_t>(position));
}

}  // namespace

// lesson: speculative-acceptance
std::vector<std::int32_t> accepted(std::span<const std::int32_t> drafts,
                                   std::span<const Distribution> draft_model,
                                   std::span<const Distribution> large_model,
                                   std::uint64_t seed, std::int64_t position) {
    require(
        draft_model.size() == drafts.size() && large_model.size() == drafts.size() + 1,
        "{} drafts with {} distributions of the small model and {} of the large one; one "
        "for each draft is expected, and one more of the large model",
        drafts.size(), draft_model.size(), large_model.size());
    for (const auto& models : {draft_model, large_model})
        for (const Distribution& distribution : models)
            require(distribution.size() == large_model[0].size() && !distribution.empty(),
                    "distributions over {} and {} tokens; the same number is expected",
                    distribution.size(), large_model[0].size());
    std::vector<std::int32_t> tokens;
    for (std::size_t i = 0; i < drafts.size(); ++i, ++position) {
        const Distribution &q = draft_model[i], &p = large_model[i];
        const auto draft = static_cast<std::size_t>(drafts[i]);
        require(draft < q.size(), "draft {} is not one of the {} tokens", drafts[i],
                q.size());
        if (uniform(seed, "acceptance", position) * q[draft] < p[draft]) {
            tokens.push_back(drafts[i]);
            continue;
        }
        Distribution rest(p.size());
        for (std::size_t token = 0; token < p.size(); ++token)
            rest[token] = std::max(p[token] - q[token], 0.0);
        // If the distributions are nearly the same, rounding may leave nothing.
        const bool nothing = std::ranges::all_of(rest, [](double w) { return w == 0; });
        tokens.push_back(
            token_of(nothing ? p : rest, uniform(seed, "correction", position)));
        return tokens;
    }
    tokens.push_back(token_of(large_model.back(), uniform(seed, "correction", position)));
    return tokens;
}
// lesson: end

double acceptance(const Distribution& draft_model, const Distribution& large_model) {
    require(draft_model.size() == large_model.size(),
            "distributions over {} and {} tokens", draft_model.size(),
            large_model.size());
    double sum = 0;
    for (std::size_t token = 0; token < draft_model.size(); ++token)
        sum += std::min(draft_model[token], large_model[token]);
    return sum;
}

double expected_tokens(double alpha, int drafts) {
    require(alpha >= 0 && alpha <= 1 && drafts >= 0,
            "an acceptance probability of {} and {} drafts; 0 to 1, and 0 or more "
            "drafts, are expected",
            alpha, drafts);
    const double most = drafts + 1.0;
    return alpha == 1 ? most : (1 - std::pow(alpha, most)) / (1 - alpha);
}

namespace {

/// One sequence in a model's cache.
class Writer {
  public:
    Writer(Device& device, CachedModel cached, const Sampling& sampling)
        : device_(device), cached_(cached), sampling_(sampling) {}
    ~Writer() { cached_.pool.release(pages_); }
    Writer(const Writer&) = delete;
    Writer& operator=(const Writer&) = delete;

    /// Computes the tokens that are not in the cache yet. For each of the last `wanted`
    /// of these tokens, returns the distribution of the token that follows it.
    std::vector<Distribution> follow(const std::vector<std::int32_t>& ids,
                                     std::int64_t wanted, SourceLine at) {
        const std::int64_t first = pages_.tokens;
        const auto end = static_cast<std::int64_t>(ids.size());
        require(
            cached_.pool.grow(pages_, end), at,
            "a sequence of {} tokens does not fit into the cache: {} pages of {} rows, "
            "{} of them free",
            end, cached_.pool.pages(), cached_.pool.page_rows(), cached_.pool.free());
        Pass pass{{{{first, end - first, pages_.pages}}},
                  {ids.begin() + first, ids.end()},
                  {},
                  cached_.pool.page_rows()};
        for (std::int64_t row = end - first - wanted; row < end - first; ++row)
            pass.wanted.push_back(static_cast<std::int32_t>(row));
        const Tensor logits = cached_.model.infer(cached_.cache.begin(pass, at), at);
        const HostTensor known = device_.download(logits, at);
        std::vector<Distribution> found;
        const std::int64_t columns = known.shape().columns();
        for (std::int64_t row = 0; device_.has_numbers() && row < wanted; ++row) {
            std::vector<double> of_row;
            for (std::int64_t j = 0; j < columns; ++j)
                of_row.push_back(known.at(row * columns + j));
            found.push_back(distribution_of(of_row, sampling_));
        }
        return found;
    }
    /// Drops all tokens except the first `tokens`.
    void go_back(std::int64_t tokens) {
        if (tokens < pages_.tokens) cached_.pool.shrink(pages_, tokens);
    }

  private:
    Device& device_;
    CachedModel cached_;
    Sampling sampling_;
    SequencePages pages_;
};

/// Returns how many drafts are accepted in a run without numbers: each with the stated
/// probability.
std::size_t stated(const Speculation& speculation, std::int64_t drafts,
                   std::uint64_t seed, std::int64_t position) {
    std::size_t stay = 0;
    while (stay < static_cast<std::size_t>(drafts) &&
           uniform(seed, "acceptance", position + static_cast<std::int64_t>(stay)) <
               speculation.stated_acceptance)
        ++stay;
    return stay;
}

}  // namespace

SpeculationReport speculate(Device& device, CachedModel large, CachedModel small,
                            const Request& request, const Speculation& speculation,
                            SourceLine at) {
    require(speculation.drafts > 0 && !request.prompt.empty() && request.output > 0, at,
            "{} drafts, a prompt of {} tokens and an output of {}; all must be positive",
            speculation.drafts, request.prompt.size(), request.output);
    require(speculation.stated_acceptance >= 0 && speculation.stated_acceptance <= 1, at,
            "an acceptance probability of {}; 0 to 1 is expected",
            speculation.stated_acceptance);
    request.sampling.require_sound();
    const std::uint64_t seed = request.sampling.seed;
    const auto end = request.prompt.size() + static_cast<std::size_t>(request.output);
    Writer writer(device, large, request.sampling);
    Writer drafter(device, small, request.sampling);
    SpeculationReport report;
    std::vector<std::int32_t> ids = request.prompt;
    while (ids.size() < end) {
        // The small model drafts token by token. The last token of all is left to the
        // large model.
        const auto most = static_cast<std::int64_t>(end - ids.size()) - 1;
        const std::int64_t count = std::min<std::int64_t>(speculation.drafts, most);
        std::vector<std::int32_t> ahead = ids, drafts;
        std::vector<Distribution> drafted_from;
        for (std::int64_t i = 0; i < count; ++i) {
            const auto next = drafter.follow(ahead, 1, at);
            const auto position = static_cast<std::int64_t>(ahead.size());
            drafts.push_back(
                next.empty() ? 0 : token_of(next[0], uniform(seed, "draft", position)));
            ahead.push_back(drafts.back());
            drafted_from.insert(drafted_from.end(), next.begin(), next.end());
        }
        // The large model computes the last known token and all drafts in one pass.
        const auto place = static_cast<std::int64_t>(ids.size());
        const auto chosen_from = writer.follow(ahead, count + 1, at);
        std::vector<std::int32_t> tokens =
            device.has_numbers()
                ? accepted(drafts, drafted_from, chosen_from, seed, place)
                : std::vector<std::int32_t>(1 + stated(speculation, count, seed, place));
        ++report.passes;
        report.drafted += count;
        report.stayed += static_cast<std::int64_t>(tokens.size()) - 1;
        ids.insert(ids.end(), tokens.begin(), tokens.end());
        // Both caches may contain rejected drafts; neither contains the last token yet.
        for (Writer* each : {&writer, &drafter})
            each->go_back(static_cast<std::int64_t>(ids.size()) - 1);
    }
    report.tokens.assign(ids.begin() + static_cast<std::ptrdiff_t>(request.prompt.size()),
                         ids.end());
    return report;
}

}  // namespace lockstep
