#include "lessons/assignments/decode/grading/host_gpt.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <optional>

#include "sim/cluster.hpp"

namespace lockstep::lessons::decode {

namespace {

Matrix matrix_of(Device& device, const Tensor& tensor) {
    const HostTensor values = device.peek(tensor);
    const std::int64_t columns = values.shape().columns();
    Matrix rows;
    for (std::int64_t i = 0; i < values.elements(); ++i) {
        if (i % columns == 0) rows.emplace_back();
        rows.back().push_back(values.at(i));
    }
    return rows;
}

/// Rows [first, first + count) of the transpose's product: one number for each of them.
Row times(const Matrix& matrix, std::size_t first, std::size_t count, const Row& x) {
    Row y;
    for (std::size_t i = first; i < first + count; ++i) {
        double sum = 0;
        for (std::size_t j = 0; j < x.size(); ++j)
            sum += matrix[i][j] * x[j];
        y.push_back(sum);
    }
    return y;
}

/// y += x times the rows from `first` on.
void add_times(Row& y, const Matrix& matrix, std::size_t first, const Row& x) {
    for (std::size_t i = 0; i < x.size(); ++i)
        for (std::size_t j = 0; j < y.size(); ++j)
            y[j] += x[i] * matrix[first + i][j];
}

Row normed(const Row& x) {
    double squares = 0;
    for (const double value : x)
        squares += value * value;
    const double factor = 1 / std::sqrt(squares / static_cast<double>(x.size()) + 1e-5);
    Row y = x;
    for (double& value : y)
        value *= factor;
    return y;
}

/// As top_k has it: of NaN and numbers, the first NaN.
std::int32_t largest(const Row& logits) {
    std::size_t best = 0;
    for (std::size_t i = 0; i < logits.size() && !std::isnan(logits[best]); ++i)
        if (std::isnan(logits[i]) || logits[i] > logits[best]) best = i;
    return static_cast<std::int32_t>(best);
}

struct Sequence {
    Tokens ids;
    std::size_t prompt = 0;
    std::size_t end = 0;
    std::size_t computed = 0;

    bool lacks_tokens() const { return ids.size() < end; }
};

/// A row of a pass.
struct Placed {
    std::int32_t id = 0;
    std::size_t place = 0;   ///< for the embedding
    std::size_t slot = 0;    ///< whose pages it reads
    std::size_t stored = 0;  ///< the place there
};

/// One place of the cache holds these.
struct KeysAndValues {
    Row keys, values;
};

/// Generates as one rank of several does; others' terms are added between its steps.
class HostRank {
  public:
    HostRank(const HostGpt& gpt, const GenerationCase& of, int rank, Mistake mistake,
             double unstored)
        : gpt_(gpt),
          mistake_(mistake),
          unstored_(unstored),
          rank_(static_cast<std::size_t>(rank)),
          ranks_(static_cast<std::size_t>(of.ranks)) {
        std::size_t all = 0;
        for (const Prompt& prompt : of.drawn_prompts()) {
            const std::size_t length = prompt.ids.size();
            const std::size_t end = length + static_cast<std::size_t>(prompt.output);
            sequences_.push_back({prompt.ids, length, end});
            longest_ = std::max(longest_, length);
            all += end;
        }
        cache_.resize(gpt.blocks.size());
        for (auto& layer : cache_)
            layer.resize(sequences_.size(),
                         std::vector<std::optional<KeysAndValues>>(all));
    }

    bool lacks_tokens() const {
        return std::ranges::any_of(sequences_, &Sequence::lacks_tokens);
    }

    void begin_pass() {
        rows_.clear();
        wanted_.clear();
        x_.clear();
        std::size_t in_pass = 0;
        for (std::size_t i = 0; i < sequences_.size(); ++i) {
            Sequence& it = sequences_[i];
            if (!it.lacks_tokens()) continue;
            const std::size_t slot = mistake_ == Mistake::one_cache      ? 0
                                     : mistake_ == Mistake::rows_move_up ? in_pass
                                                                         : i;
            const std::size_t first = rows_.size();
            for (; it.computed < it.ids.size(); ++it.computed)
                rows_.push_back(placed(it, slot, it.computed - (rows_.size() - first)));
            wanted_.push_back(mistake_ == Mistake::first_rows ? first : rows_.size() - 1);
            ++in_pass;
        }
        if (mistake_ == Mistake::last_row) std::ranges::fill(wanted_, rows_.size() - 1);
        for (const Placed& row : rows_) {
            const std::size_t most = gpt_.places.size() - 1;
            Row x = gpt_.tokens[static_cast<std::size_t>(row.id)];
            const Row& place = gpt_.places[std::min(row.place, most)];
            for (std::size_t j = 0; j < x.size(); ++j)
                x[j] += place[j];
            x_.push_back(x);
        }
    }

    /// This rank's terms of what attention adds to each row.
    Matrix attention(std::size_t layer) {
        const HostBlock& block = gpt_.blocks[layer];
        const std::size_t key_rank = mistake_ == Mistake::keys_of_first_rank ? 0 : rank_;
        const std::size_t count = key_heads() * width();
        auto& slots = cache_[layer];
        Matrix keys, values;
        for (const Row& x : x_) {
            keys.push_back(times(block.keys, key_rank * count, count, normed(x)));
            values.push_back(times(block.values, key_rank * count, count, normed(x)));
        }
        const auto store = [&] {
            for (std::size_t i = 0; i < rows_.size(); ++i)
                slots[rows_[i].slot][rows_[i].stored] = {keys[i], values[i]};
        };
        const bool late = mistake_ == Mistake::own_keys_late;
        if (!late) store();
        Matrix terms;
        for (std::size_t i = 0; i < rows_.size(); ++i) {
            const Row found =
                attended(block, normed(x_[i]), slots[rows_[i].slot], rows_[i].stored + 1);
            Row& term = terms.emplace_back(x_[i].size());
            add_times(term, block.out, rank_ * heads() * width(), found);
        }
        if (late) store();
        return terms;
    }

    /// Those of what the MLP adds.
    Matrix mlp(std::size_t layer) const {
        const HostBlock& block = gpt_.blocks[layer];
        const std::size_t count = block.up.size() / ranks_;
        Matrix terms;
        for (const Row& x : x_) {
            Row within = times(block.up, rank_ * count, count, normed(x));
            for (double& value : within)
                value *= std::erfc(-value / std::numbers::sqrt2) / 2;
            Row& term = terms.emplace_back(x.size());
            add_times(term, block.down, rank_ * count, within);
        }
        return terms;
    }

    Matrix& x() { return x_; }

    void end_pass() {
        std::size_t next = 0;
        for (Sequence& it : sequences_)
            if (it.lacks_tokens())
                it.ids.push_back(largest(
                    times(gpt_.head, 0, gpt_.head.size(), normed(x_[wanted_[next++]]))));
    }

    std::vector<Tokens> outputs() const {
        std::vector<Tokens> all;
        for (const Sequence& it : sequences_)
            all.emplace_back(it.ids.begin() + static_cast<std::ptrdiff_t>(it.prompt),
                             it.ids.end());
        return all;
    }

  private:
    std::size_t heads() const {
        return static_cast<std::size_t>(gpt_.sizes.heads) / ranks_;
    }
    std::size_t key_heads() const {
        return static_cast<std::size_t>(gpt_.sizes.key_heads) / ranks_;
    }
    std::size_t width() const { return static_cast<std::size_t>(gpt_.sizes.width); }

    /// The next row of a sequence, of which `before` tokens have gone through the GPT
    /// before this pass.
    Placed placed(const Sequence& it, std::size_t slot, std::size_t before) {
        const std::size_t token = it.computed;
        const bool generated = token >= it.prompt;
        Placed row{it.ids[token], token, slot, token};
        if (mistake_ == Mistake::one_cache) row.stored = stored_++;
        if (mistake_ == Mistake::places_again) row.place = token - before;
        if (mistake_ == Mistake::places_go_on && !generated) row.place = rows_.size();
        if (!generated) return row;
        if (mistake_ == Mistake::places_of_output) row.place = token - it.prompt;
        if (mistake_ == Mistake::places_late) row.place = token + 1;
        if (mistake_ == Mistake::places_of_longest)
            row.place = longest_ + token - it.prompt;
        if (mistake_ == Mistake::prompt_again) row.id = it.ids[it.prompt - 1];
        return row;
    }

    /// Returns what the heads of one row find among the first `seen` places of its pages.
    Row attended(const HostBlock& block, const Row& x,
                 const std::vector<std::optional<KeysAndValues>>& pages,
                 std::size_t seen) const {
        const std::size_t columns = heads() * width();
        const Row queries = times(block.queries, rank_ * columns, columns, x);
        const std::size_t group = heads() / key_heads();
        Row found(columns);
        for (std::size_t head = 0; head < heads(); ++head) {
            const std::size_t key_head =
                mistake_ == Mistake::other_keys ? head % key_heads() : head / group;
            attend(queries, head * width(), pages, seen, key_head * width(), found);
        }
        return found;
    }

    /// One head, whose columns begin at `own`, and those of its keys at `of_keys`.
    void attend(const Row& queries, std::size_t own,
                const std::vector<std::optional<KeysAndValues>>& pages, std::size_t seen,
                std::size_t of_keys, Row& found) const {
        const auto number = [&](std::size_t place, Row KeysAndValues::*of,
                                std::size_t j) {
            return pages[place] ? (*pages[place].*of)[of_keys + j] : unstored_;
        };
        const double factor = mistake_ == Mistake::no_factor
                                  ? 1
                                  : 1 / std::sqrt(static_cast<double>(width()));
        Row weights;
        double largest_score = -std::numeric_limits<double>::infinity(), sum = 0;
        for (std::size_t place = 0; place < seen; ++place) {
            double score = 0;
            for (std::size_t j = 0; j < width(); ++j)
                score += queries[own + j] * number(place, &KeysAndValues::keys, j);
            weights.push_back(score * factor);
            largest_score = std::max(largest_score, weights.back());
        }
        for (double& weight : weights)
            sum += weight = std::exp(weight - largest_score);
        for (std::size_t place = 0; place < seen; ++place)
            for (std::size_t j = 0; j < width(); ++j)
                found[own + j] +=
                    weights[place] / sum * number(place, &KeysAndValues::values, j);
    }

    const HostGpt& gpt_;
    Mistake mistake_;
    double unstored_;
    std::size_t rank_;
    std::size_t ranks_;
    std::vector<Sequence> sequences_;
    std::size_t longest_ = 0;
    std::size_t stored_ = 0;
    /// Keys and values of each layer and sequence, by place.
    std::vector<std::vector<std::vector<std::optional<KeysAndValues>>>> cache_;
    std::vector<Placed> rows_;
    std::vector<std::size_t> wanted_;
    Matrix x_;
};

void add(Matrix& to, const Matrix& from) {
    for (std::size_t i = 0; i < to.size(); ++i)
        for (std::size_t j = 0; j < to[i].size(); ++j)
            to[i][j] += from[i][j];
}

/// Each rank adds the sum of all ranks' terms to its x, or its own terms alone.
void add_terms(std::vector<HostRank>& ranks, const std::vector<Matrix>& terms,
               bool summed, bool x_too) {
    Matrix sum = terms.front();
    for (std::size_t rank = 1; rank < terms.size(); ++rank)
        add(sum, terms[rank]);
    if (x_too)
        for (std::size_t rank = 1; rank < ranks.size(); ++rank)
            add(sum, ranks[rank].x());
    for (std::size_t rank = 0; rank < ranks.size(); ++rank)
        add(ranks[rank].x(), summed ? sum : terms[rank]);
}

}  // namespace

HostGpt host_gpt(const GenerationCase& of) {
    HostGpt host{of.sizes, {}, {}, {}, {}};
    sim::make_cluster(1)->run([&](Rank& rank) {
        Device& device = rank.device();
        const Gpt gpt =
            given::random_gpt(device, of.sizes, static_cast<std::uint64_t>(of.seed));
        host.tokens = matrix_of(device, gpt.tokens);
        host.places = matrix_of(device, gpt.places);
        host.head = matrix_of(device, gpt.head);
        for (const Block& block : gpt.blocks)
            host.blocks.push_back(
                {matrix_of(device, block.queries), matrix_of(device, block.keys),
                 matrix_of(device, block.values), matrix_of(device, block.out),
                 matrix_of(device, block.up), matrix_of(device, block.down)});
    });
    return host;
}

TokensOfRanks generated(const HostGpt& gpt, const GenerationCase& of, Mistake mistake,
                        double unstored) {
    std::vector<HostRank> ranks;
    ranks.reserve(static_cast<std::size_t>(of.ranks));
    for (int rank = 0; rank < of.ranks; ++rank)
        ranks.emplace_back(gpt, of, rank, mistake, unstored);
    const bool none = mistake == Mistake::nothing_summed;
    const bool heads = !none && mistake != Mistake::heads_not_summed;
    const bool columns = !none && mistake != Mistake::columns_not_summed;
    const bool x_too = mistake == Mistake::x_summed;
    while (ranks.front().lacks_tokens()) {
        for (HostRank& rank : ranks)
            rank.begin_pass();
        std::vector<Matrix> terms(ranks.size());
        for (std::size_t layer = 0; layer < gpt.blocks.size(); ++layer) {
            std::ranges::transform(ranks, terms.begin(), [layer](HostRank& rank) {
                return rank.attention(layer);
            });
            add_terms(ranks, terms, heads, x_too);
            std::ranges::transform(ranks, terms.begin(),
                                   [layer](HostRank& rank) { return rank.mlp(layer); });
            add_terms(ranks, terms, columns, x_too);
        }
        for (HostRank& rank : ranks)
            rank.end_pass();
    }
    TokensOfRanks all;
    for (const HostRank& rank : ranks)
        all.push_back(rank.outputs());
    return all;
}

}  // namespace lockstep::lessons::decode
