#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lessons/grader/judge.hpp"

// A layer of experts on one device, in plain loops over all tokens, without any order of
// copies; and what typical mistakes make of it.

namespace lockstep::lessons::experts {

/// Counts tokens or copies of each rank, or lists experts.
using Counts = std::vector<std::int64_t>;

/// The k experts of a token, and their weights.
struct Choice {
    std::vector<std::int64_t> ids;
    std::vector<double> weights;
};

/// Says over which logits the softmax goes that gives the weights.
enum class Weights : std::uint8_t { of_chosen, of_all };
/// Returns a token's choice; weights of all are a mistake.
Choice choice_of(const std::vector<double>& logits, std::int64_t chosen,
                 Weights weights = Weights::of_chosen);
std::vector<double> row_of(const HostTensor& matrix, std::int64_t row);

/// The sizes of a layer, and the tokens of each rank.
struct Sizes {
    Counts tokens;                 ///< of each rank
    std::int64_t own_experts = 1;  ///< of each rank
    std::int64_t chosen = 1;
    std::int64_t hidden = 3;
    std::int64_t inner = 4;
    std::int64_t capacity = 0;
    bool crowded = false;  ///< all tokens' first choice is expert 0

    int ranks() const { return static_cast<int>(tokens.size()); }
    std::int64_t experts() const { return ranks() * own_experts; }
    std::int64_t all_tokens() const;
    std::string name() const;
};

/// A layer's weights, what goes in, and the gradient of what comes out.
struct Values {
    HostTensor gate;                       ///< (E, h)
    std::vector<HostTensor> wide, narrow;  ///< of each expert (c, h) and (h, c)
    std::vector<HostTensor> x, dy;         ///< of each rank (N, h)
};
Values draw_values(const Judge& judge, const Sizes& of);

/// Says how a layer is computed: as it should be, or with a mistake.
struct Way {
    Weights weights = Weights::of_chosen;
    bool weighs_forward = true;
    int weighs_backward = 1;      ///< times that weights are in the gradient of a copy
    bool only_own = false;        ///< copies for other ranks' experts are lost
    bool only_first = false;      ///< the other choices of a token are lost
    bool as_they_came = false;    ///< rows are not sorted by expert
    bool through_gate = true;     ///< gradients go back through the gate
    bool through_experts = true;  ///< and through experts, to x
    bool through_softmax = true;  ///< of the weights
    bool weights_add_up = false;  ///< those of the copies that are kept, to 1
    enum class Room : std::uint8_t {
        shared,  ///< as it should be
        each_rank,
        from_behind,
        one_more,
        unlimited,
        last_copies
    } room = Room::shared;
};

/// Holds what comes of a layer.
struct Layer {
    std::vector<HostTensor> y, dx;       ///< of each rank
    std::vector<HostTensor> gate_terms;  ///< of each rank: its tokens' (E, h)
    std::vector<HostTensor> d_wide, d_narrow;
    std::vector<Counts> sent;  ///< [r][s]: copies that rank r sends to rank s

    HostTensor d_gate() const;  ///< the sum
};
Layer layer_by(const Way& way, const Sizes& of, const Values& values);

void add_to(HostTensor& sum, const HostTensor& values, double factor = 1);

}  // namespace lockstep::lessons::experts
