#include "lessons/assignments/ring_attention/grading/causes.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lessons/grader/judge.hpp"

namespace lockstep::lessons::ring_attention {

namespace {

constexpr const char* kNothing = "it is 0 everywhere: nothing was added to it";

/// A query and a key, and the ranks whose tokens they are.
struct Pair {
    std::int64_t query, key;
    int of_query, of_key;
};

/// Says how often a pair counts.
using Times = std::function<int(const Pair& pair)>;

/// A mistake that can be made, and how attention is with it.
struct Mistake {
    std::string said;
    View view;
};

/// Makes mistakes about one sequence.
class Mistakes {
  public:
    Mistakes(const SharedSequence& of, const WholeAttention& whole)
        : of_(of), whole_(whole) {
        for (std::int64_t token = 0; token < of.tokens; ++token)
            owners_.push_back(of.owner(token));
    }

    /// Those of the mask and of the factor, on all ranks.
    std::vector<Mistake> of_scores() const {
        std::vector<Mistake> all = of_causal() ? of_mask() : std::vector<Mistake>{};
        if (!of_causal())
            all.push_back({"that is with the causal mask; here none is asked",
                           view([](const Pair& p) { return p.key <= p.query; })});
        const auto multiplied_by = [&](double factor, const std::string& said) {
            View view = right_view(whole_);
            view.factor = factor;
            all.push_back({said, std::move(view)});
        };
        const auto width = static_cast<double>(of_.width);
        multiplied_by(1, "scores are not multiplied by 1/sqrt(width)");
        multiplied_by(1 / width,
                      "scores are multiplied by 1/width, not by 1/sqrt(width)");
        multiplied_by(
            1 / std::sqrt(width * static_cast<double>(of_.heads)),
            "scores are multiplied by 1/sqrt(heads width): width is that of one head");
        return all;
    }

    /// Those of the blocks that ranks attend to, alike on all.
    std::vector<Mistake> of_hops() const {
        const int n = of_.ranks;
        if (n == 1) return {};
        const auto by_hops = [this](std::function<int(int)> times) {
            return view([this, times = std::move(times)](const Pair& p) {
                return sees(p) * times(of_.hops(p.of_query, p.of_key));
            });
        };
        std::vector<Mistake> all{
            {"that is attention to the rank's own block alone",
             by_hops([](int hops) { return hops == 0; })},
            {"its own block is in it twice, and the one that comes last never: it "
             "attends to a block before the next one is there",
             by_hops([n](int hops) { return hops == 0 ? 2 : hops + 1 < n; })},
            {"that is attention to the block that comes last alone: is the state begun "
             "anew for each block?",
             by_hops([n](int hops) { return hops + 1 == n; })}};
        for (int count = 2; count < n; ++count)
            all.push_back({fmt::format("that is attention to the first {} blocks that "
                                       "come, of {}: is a hop missing?",
                                       count, n),
                           by_hops([count](int hops) { return hops < count; })});
        return all;
    }

    /// Those of one block, on any rank.
    std::vector<Mistake> of_block() const {
        return of_one_rank(&Pair::of_key, [](int rank) {
            return fmt::format("the block of rank {}", rank);
        });
    }

    /// Those of the contributions to keys' and values' gradients, alike on all ranks.
    std::vector<Mistake> of_own_contributions() const {
        if (of_.ranks == 1) return {};
        const auto is_own = [](const Pair& p) { return p.of_query == p.of_key; };
        return {
            {"that is what the rank's own queries contribute, alone: what the other "
             "ranks added up has not come home",
             view([=, this](const Pair& p) { return sees(p) && is_own(p); })},
            {"what the rank's own queries contribute is missing in it",
             view([=, this](const Pair& p) { return sees(p) && !is_own(p); })},
            {"what the rank's own queries contribute is in it twice",
             view([=, this](const Pair& p) { return sees(p) * (is_own(p) ? 2 : 1); })}};
    }

    /// Those of one rank's contributions, on any rank.
    std::vector<Mistake> of_contributions() const {
        return of_one_rank(&Pair::of_query, [](int rank) {
            return fmt::format("what rank {} contributes", rank);
        });
    }

    /// Attention to one block, as if there were no others.
    View to_block(int hops) const {
        return view([this, hops](const Pair& p) {
            return sees(p) && of_.hops(p.of_query, p.of_key) == hops;
        });
    }

  private:
    /// Those of one rank's pairs, on any rank, which are `subject(rank)`.
    std::vector<Mistake> of_one_rank(
        int Pair::*owner, const std::function<std::string(int)>& subject) const {
        std::vector<Mistake> all;
        for (int rank = 0; of_.ranks > 1 && rank < of_.ranks; ++rank) {
            all.push_back(
                {subject(rank) + " is missing in it",
                 view([=, this](const Pair& p) { return sees(p) && p.*owner != rank; })});
            all.push_back(
                {subject(rank) + " is in it twice", view([=, this](const Pair& p) {
                     return sees(p) * (p.*owner == rank ? 2 : 1);
                 })});
        }
        return all;
    }

    bool of_causal() const { return of_.causal; }

    std::vector<Mistake> of_mask() const {
        const auto begin = [this](int rank) { return of_.own(rank).begin; };
        // The numbers of a pair's tokens on their own ranks.
        const auto query = [=](const Pair& p) { return p.query - begin(p.of_query); };
        const auto key = [=](const Pair& p) { return p.key - begin(p.of_key); };
        const auto other_way = [this](const Pair& p) {
            return (p.of_query + of_.hops(p.of_query, p.of_key)) % of_.ranks;
        };
        return {
            {"that is attention without the mask", view([](const Pair&) { return 1; })},
            {"the mask compares the numbers that tokens have on their ranks: "
             "AttentionOptions::queries.first and keys.first say which token is the "
             "first",
             view([=](const Pair& p) { return key(p) <= query(p); })},
            {"the mask takes the queries for the sequence's first ones: "
             "AttentionOptions::queries.first is missing",
             view([=](const Pair& p) { return p.key <= query(p); })},
            {"the mask takes each block for the sequence's first one: "
             "AttentionOptions::keys.first is missing",
             view([=](const Pair& p) { return key(p) <= p.query; })},
            {"the mask takes the block that comes after h hops for that of rank r + h: "
             "it is that of rank r - h",
             view(
                 [=](const Pair& p) { return key(p) + begin(other_way(p)) <= p.query; })},
            {"a query does not see its own token's key; it should",
             view([](const Pair& p) { return p.key < p.query; })},
            {"the mask hides the keys before a query; it should hide those behind it",
             view([](const Pair& p) { return p.key >= p.query; })}};
    }

    bool sees(const Pair& pair) const { return !of_.causal || pair.key <= pair.query; }

    View view(Times times) const {
        return {[this, times = std::move(times)](std::int64_t query) {
                    std::vector<std::int64_t> keys;
                    const int own = owners_[static_cast<std::size_t>(query)];
                    for (std::int64_t key = 0; key < of_.tokens; ++key) {
                        const Pair pair{query, key, own,
                                        owners_[static_cast<std::size_t>(key)]};
                        keys.insert(keys.end(), static_cast<std::size_t>(times(pair)),
                                    key);
                    }
                    return keys;
                },
                whole_.factor()};
    }

    const SharedSequence& of_;
    const WholeAttention& whole_;
    std::vector<int> owners_;  ///< the rank of each token
};

std::vector<Mistake> both(std::vector<Mistake> some, const std::vector<Mistake>& more) {
    some.insert(some.end(), more.begin(), more.end());
    return some;
}

HostTensor rows_of(const SharedSequence& of, const HostTensor& whole, int rank) {
    const Chunk own = of.own(rank);
    return whole.rows(own.begin, own.count);
}

/// Which ranks have to have made a mistake.
enum class Ranks : std::uint8_t { all, this_one };

/// Did the ranks leave these rows of a whole?
bool is(const SharedSequence& of, const Left& left, const HostTensor& whole, int rank,
        Ranks ranks) {
    const auto same = [&](int r) {
        return Judge::are_close(left[static_cast<std::size_t>(r)], rows_of(of, whole, r));
    };
    if (ranks == Ranks::this_one) return same(rank);
    int r = 0;
    while (r < of.ranks && same(r))
        ++r;
    return r == of.ranks;
}

bool is_nothing(const SharedSequence& of, const Left& left, int rank) {
    return is(of, left, HostTensor(of.shape(), DType::f64), rank, Ranks::this_one);
}

/// Returns what is said of the first mistake that was made, or nothing.
std::string said_of(const std::vector<Mistake>& all,
                    const std::function<bool(const Mistake&)>& was_made) {
    const auto made = std::ranges::find_if(all, was_made);
    return made == all.end() ? "" : made->said;
}

/// The sum over the blocks of a softmax each, times a factor.
HostTensor sum_of_softmaxes(const SharedSequence& of, const WholeAttention& whole,
                            const Mistakes& mistakes, double factor) {
    HostTensor sum(of.shape(), DType::f64);
    for (int hops = 0; hops < of.ranks; ++hops) {
        const HostTensor y = attention_of(whole, mistakes.to_block(hops)).y;
        for (std::int64_t i = 0; i < sum.elements(); ++i)
            sum.set(i, sum.at(i) + factor * y.at(i));
    }
    return sum;
}

}  // namespace

std::string cause_of_y(const SharedSequence& of, const WholeAttention& whole, int rank,
                       const Left& y) {
    if (is_nothing(of, y, rank)) return kNothing;
    const Mistakes mistakes(of, whole);
    const auto find = [&](const std::vector<Mistake>& all, Ranks ranks) {
        return said_of(all, [&](const Mistake& made) {
            return is(of, y, attention_of(whole, made.view).y, rank, ranks);
        });
    };
    std::string said = find(both(mistakes.of_scores(), mistakes.of_hops()), Ranks::all);
    if (said.empty())
        said = find(both(mistakes.of_block(), mistakes.of_hops()), Ranks::this_one);
    if (!said.empty()) return said;
    View unfinished = right_view(whole);
    unfinished.finished = false;
    if (is(of, y, attention_of(whole, unfinished).y, rank, Ranks::all))
        return "the weights are not divided by their sum: finish_attention is missing";
    const double share = 1.0 / of.ranks;
    for (const auto& [what, factor] : {std::pair{"sum", 1.0}, {"mean", share}})
        if (is(of, y, sum_of_softmaxes(of, whole, mistakes, factor), rank, Ranks::all))
            return fmt::format(
                "that is the {} of {} softmaxes, one a block: all blocks are of one",
                what, of.ranks);
    return "";
}

std::string cause_of_gradient(const SharedSequence& of, const WholeAttention& whole,
                              int rank, const std::string& name, const Left& gradient) {
    if (is_nothing(of, gradient, rank)) return kNothing;
    const bool of_queries = name == "dq";
    const auto of_name = [&](const WholeGradients& all) -> const HostTensor& {
        return of_queries ? all.dq : name == "dk" ? all.dk : all.dv;
    };
    const WholeResult right = attention_of(whole, right_view(whole));
    const Mistakes mistakes(of, whole);
    const auto find = [&](const std::vector<Mistake>& all, Ranks ranks) {
        return said_of(all, [&](const Mistake& made) {
            const WholeGradients gradients = gradients_of(whole, right, made.view);
            return is(of, gradient, of_name(gradients), rank, ranks);
        });
    };
    const std::vector<Mistake> alike =
        of_queries ? mistakes.of_hops() : mistakes.of_own_contributions();
    std::string said = find(both(mistakes.of_scores(), alike), Ranks::all);
    if (!said.empty()) return said;
    const WholeGradients expected = gradients_of(whole, right, right_view(whole));
    for (int other = 0; other < of.ranks; ++other)
        if (Judge::are_close(gradient[static_cast<std::size_t>(rank)],
                             rows_of(of, of_name(expected), other))) {
            const int hops = of.hops(other, rank);
            return fmt::format(
                "that is the gradient of rank {}'s block, {} hop{} short "
                "of home",
                other, hops, hops == 1 ? "" : "s");
        }
    return find(
        both(of_queries ? mistakes.of_block() : mistakes.of_contributions(), alike),
        Ranks::this_one);
}

}  // namespace lockstep::lessons::ring_attention
