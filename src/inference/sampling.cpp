#include "src/inference/sampling.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "src/core/philox.hpp"
#include "src/core/require.hpp"

namespace lockstep {

std::int64_t Sampling::candidates(std::int64_t vocabulary) const {
    if (temperature == 0) return 1;
    return top_k > 0 ? std::min(top_k, vocabulary) : vocabulary;
}

void Sampling::require_sound() const {
    require(temperature >= 0 && std::isfinite(temperature),
            "a temperature of {}; 0 or a positive number is expected", temperature);
    require(top_k >= 0, "top_k is {}; 0 (all tokens) or more is expected", top_k);
    require(top_p > 0 && top_p <= 1, "top_p is {}; more than 0 and at most 1 is expected",
            top_p);
}

std::vector<double> probabilities(std::span<const Candidate> sorted,
                                  const Sampling& sampling) {
    sampling.require_sound();
    const auto most = static_cast<std::size_t>(
        sampling.candidates(static_cast<std::int64_t>(sorted.size())));
    if (sampling.temperature == 0) return {1.0};
    std::vector<double> weights;
    double sum = 0;
    for (const Candidate& candidate : sorted.first(most))
        sum += weights.emplace_back(
            std::exp((candidate.logit - sorted[0].logit) / sampling.temperature));
    // Keeps the fewest candidates whose probabilities add up to at least top_p.
    double kept = 0;
    std::size_t count = 0;
    while (count < weights.size() && (count == 0 || kept < sampling.top_p * sum))
        kept += weights[count++];
    weights.resize(count);
    for (double& weight : weights)
        weight /= kept;
    return weights;
}

std::size_t place_of(std::span<const double> weights, double uniform) {
    double left = uniform * std::accumulate(weights.begin(), weights.end(), 0.0);
    std::size_t last = 0;
    for (std::size_t i = 0; i < weights.size(); ++i) {
        if (weights[i] <= 0) continue;
        last = i;
        left -= weights[i];
        if (left < 0) break;
    }
    return last;  // after rounding, `left` may still be >= 0
}

std::int32_t sample(std::span<const Candidate> sorted, const Sampling& sampling,
                    std::int64_t position) {
    require(!sorted.empty(), "there are no candidates to choose a token from");
    const RandomStream stream(sampling.seed, "sampling");
    const double uniform = stream.uniform(static_cast<std::uint64_t>(position));
    return sorted[place_of(probabilities(sorted, sampling), uniform)].token;
}

namespace {

/// The largest logits of rows, and their tokens, from `ranks` ranks: (ranks rows,
/// of_rank) each. A rank has at most `columns` columns.
struct Gathered {
    HostTensor logits, tokens;
    int ranks;
    std::int64_t rows, of_rank, columns, vocabulary;

    /// Returns how many columns of a rank are tokens; the last columns are padding.
    std::int64_t own(int rank) const {
        return std::clamp<std::int64_t>(vocabulary - rank * columns, 0, columns);
    }
    /// Returns a row's candidates, the largest first; if equal, the lower token first.
    std::vector<Candidate> sorted(std::int64_t row, SourceLine at) const {
        std::vector<Candidate> found;
        for (int rank = 0; rank < ranks; ++rank)
            for (std::int64_t i = 0; i < std::min(of_rank, own(rank)); ++i) {
                const std::int64_t place = (rank * rows + row) * of_rank + i;
                const auto token =
                    rank * columns + static_cast<std::int64_t>(tokens.at(place));
                found.push_back({static_cast<std::int32_t>(token), logits.at(place)});
                require(!std::isnan(found.back().logit), at,
                        "the logit of token {} in row {} is NaN", token, row);
            }
        std::ranges::stable_sort(found, std::greater(), &Candidate::logit);
        return found;
    }
};

/// Copies the largest logits of each row to the host: `of_rank` logits of this rank's
/// columns or, if columns are sharded, of each rank's columns.
Gathered largest_of_rows(Device& device, Communicator* shards, const Tensor& logits,
                         std::int64_t vocabulary, std::int64_t k, SourceLine at) {
    const std::int64_t rows = logits.shape().matrix_rows(),
                       columns = logits.shape().columns();
    const int ranks = shards ? shards->size() : 1;
    Gathered all{{}, {}, ranks, rows, std::min(k, columns), columns, vocabulary};
    const std::int64_t own = all.own(shards ? shards->rank() : 0);
    const std::int64_t sent = std::min(all.of_rank, own);

    const MemoryScope scope(device, MemoryCategory::workspace);
    Tensor values = device.zeros({rows, all.of_rank}, logits.dtype(), at);
    Tensor tokens = device.zeros({rows, all.of_rank}, DType::i32, at);
    if (sent == all.of_rank && own == columns) {
        device.top_k(values, tokens, logits, sent, {}, at);
    } else if (sent > 0) {
        const Tensor real = device.empty({rows, own}, logits.dtype(), at);
        device.copy_columns(real, 0, logits, 0, own, at);
        const Tensor largest = device.empty({rows, sent}, logits.dtype(), at);
        const Tensor largest_ids = device.empty({rows, sent}, DType::i32, at);
        device.top_k(largest, largest_ids, real, sent, {}, at);
        device.copy_columns(values, 0, largest, 0, sent, at);
        device.copy_columns(tokens, 0, largest_ids, 0, sent, at);
    }
    if (ranks > 1) {
        const Shape of_all{ranks * rows, all.of_rank};
        const Tensor all_values = device.empty(of_all, logits.dtype(), at);
        const Tensor all_tokens = device.empty(of_all, DType::i32, at);
        shards->group(at)
            .all_gather(all_values, values, at)
            .all_gather(all_tokens, tokens, at)
            .start(at)
            .wait(at);
        values = all_values;
        tokens = all_tokens;
    }
    all.logits = device.download(values, at);
    all.tokens = device.download(tokens, at);
    return all;
}

std::vector<std::int32_t> sample_of(Device& device, Communicator* shards,
                                    const Tensor& logits, std::int64_t vocabulary,
                                    std::span<const Wanted> wanted, SourceLine at) {
    const Shape& shape = logits.shape();
    const std::int64_t ranks = shards ? shards->size() : 1;
    require(shape.matrix_rows() == static_cast<std::int64_t>(wanted.size()) &&
                shape.columns() * ranks >= vocabulary,
            at,
            "logits have shape {} on each of {} ranks, for {} tokens and a vocabulary of "
            "{}; one row for each token is expected, and on all ranks together at least "
            "one column for each token of the vocabulary",
            shape, ranks, wanted.size(), vocabulary);
    std::int64_t most = 1;
    for (const Wanted& row : wanted) {
        row.sampling.require_sound();
        most = std::max(most, row.sampling.candidates(vocabulary));
    }
    const Gathered all = largest_of_rows(device, shards, logits, vocabulary, most, at);
    std::vector<std::int32_t> chosen(wanted.size());
    if (!device.has_numbers()) return chosen;
    for (std::size_t row = 0; row < wanted.size(); ++row)
        chosen[row] = sample(all.sorted(static_cast<std::int64_t>(row), at),
                             wanted[row].sampling, wanted[row].position);
    return chosen;
}

}  // namespace

std::vector<std::int32_t> sample_rows(Device& device, const Tensor& logits,
                                      std::span<const Wanted> wanted, SourceLine at) {
    return sample_of(device, nullptr, logits, logits.shape().columns(), wanted, at);
}

std::vector<std::int32_t> sample_rows(Device& device, Communicator& shards,
                                      const Tensor& logits, std::int64_t vocabulary,
                                      std::span<const Wanted> wanted, SourceLine at) {
    return sample_of(device, &shards, logits, vocabulary, wanted, at);
}

}  // namespace lockstep
