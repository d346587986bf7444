#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "src/core/source_line.hpp"
#include "src/core/tensor.hpp"
#include "src/device/device.hpp"

namespace lockstep {

enum class Verb : std::uint8_t {
    all_reduce,
    all_gather,
    reduce_scatter,
    broadcast,
    reduce,
    gather,
    scatter,
    all_to_all,
    barrier,
    split,
    send,
    recv,
    copy,  ///< between a device and its host, which are one member of the communicator
};
inline constexpr std::size_t kVerbs = 13;

/// Whose inputs a verb reads, whose outputs it writes, and what these buffers contain.
struct VerbFacts {
    /// Members of the communicator.
    enum class Who : std::uint8_t { none, root, others, all };
    /// The contents of a buffer: `whole` is one block of CommOperation::count elements;
    /// `blocks` is one such block for each member, in the members' order.
    enum class Holds : std::uint8_t { whole, blocks };

    const char* name = nullptr;
    Who from;      ///< members whose inputs are read; in a send, only the sender
    Who to;        ///< members whose outputs are written; `others` are all but the root
    Holds input;   ///< if blocks, block i is for member i
    Holds output;  ///< if blocks, block i came from member i
    bool reduces;  ///< true if the inputs are combined, false if they are only moved
    bool is_message = false;  ///< true between two members, false for a collective

    /// These two return whether the verb reads a member's input or writes its output.
    constexpr bool reads(bool is_root) const {
        return from == Who::all || (from == Who::root && is_root);
    }
    constexpr bool writes(bool is_root) const {
        return to == Who::all || (to == Who::root && is_root) ||
               (to == Who::others && !is_root);
    }
    constexpr bool moves() const { return from != Who::none || to != Who::none; }
    constexpr bool has_root() const {
        return !is_message && (from == Who::root || to == Who::root);
    }
    /// Returns whether a member passes one buffer to this collective, as input, output or
    /// both, instead of two buffers.
    constexpr bool has_one_buffer() const { return has_root() && input == output; }
    /// Returns whether the output has the members' inputs side by side.
    constexpr bool gathers() const {
        return input == Holds::whole && output == Holds::blocks;
    }
    /// Returns whether the verb gives each member its own block of the result.
    constexpr bool scatters() const {
        return input == Holds::blocks && output == Holds::whole;
    }
    /// Returns whether all members end with the same values.
    constexpr bool is_alike() const {
        return !is_message && to != Who::none && to != Who::root && input == Holds::whole;
    }
};

/// If a verb is not listed here, the program does not compile.
constexpr VerbFacts listed_facts(Verb verb) {
    using Who = VerbFacts::Who;
    constexpr auto kWhole = VerbFacts::Holds::whole;
    constexpr auto kBlocks = VerbFacts::Holds::blocks;
    switch (verb) {
        //             name          from       to        input   output   reduces
        case Verb::all_reduce:
            return {"all_reduce", Who::all, Who::all, kWhole, kWhole, true};
        case Verb::all_gather:
            return {"all_gather", Who::all, Who::all, kWhole, kBlocks, false};
        case Verb::reduce_scatter:
            return {"reduce_scatter", Who::all, Who::all, kBlocks, kWhole, true};
        case Verb::broadcast:
            return {"broadcast", Who::root, Who::others, kWhole, kWhole, false};
        case Verb::reduce:
            return {"reduce", Who::all, Who::root, kWhole, kWhole, true};
        case Verb::gather:
            return {"gather", Who::all, Who::root, kWhole, kBlocks, false};
        case Verb::scatter:
            return {"scatter", Who::root, Who::all, kBlocks, kWhole, false};
        case Verb::all_to_all:
            return {"all_to_all", Who::all, Who::all, kBlocks, kBlocks, false};
        case Verb::barrier:
            return {"barrier", Who::none, Who::none, kWhole, kWhole, false};
        case Verb::split:
            return {"split", Who::none, Who::none, kWhole, kWhole, false};
        case Verb::send:
            return {"send", Who::all, Who::none, kWhole, kWhole, false, true};
        case Verb::recv:
            return {"recv", Who::none, Who::all, kWhole, kWhole, false, true};
        case Verb::copy:
            return {"copy", Who::all, Who::all, kWhole, kWhole, false};
    }
    return {};
}

inline constexpr auto kVerbFacts = [] {
    std::array<VerbFacts, kVerbs> facts{};
    for (std::size_t verb = 0; verb < kVerbs; ++verb)
        facts[verb] = listed_facts(static_cast<Verb>(verb));
    return facts;
}();
static_assert(kVerbFacts.back().name != nullptr &&
                  listed_facts(Verb{kVerbs}).name == nullptr,
              "kVerbs is the number of verbs");

constexpr const VerbFacts& facts_of(Verb verb) {
    return kVerbFacts[static_cast<std::size_t>(verb)];
}

constexpr const char* name_of(Verb verb) {
    return facts_of(verb).name;
}
constexpr bool is_point_to_point(Verb verb) {
    return facts_of(verb).is_message;
}
constexpr bool has_reduction(Verb verb) {
    return facts_of(verb).reduces;
}

/// A rank's request to a communicator. It contains no buffers, so it can be kept after
/// the buffers are destroyed.
struct CommRequest {
    Verb verb = Verb::barrier;
    Reduction reduction = Reduction::sum;
    DType dtype = DType::f32;
    /// True for a send or recv that belongs to an all_to_all_v.
    bool all_to_all_v = false;
    /// The root of a rooted collective, the other rank of a send or recv; else -1.
    int peer = -1;
    /// NCCL's count: elements of the smaller buffer for gather-like and scatter-like
    /// verbs, of the whole buffer otherwise. Equal on all ranks.
    std::int64_t count = 0;
    SourceLine at{};

    /// Returns whether a member has the operation's result afterwards: the result is
    /// written there, or was there before, as at the root of a broadcast.
    bool leaves_result(int member) const {
        const VerbFacts::Who to = facts_of(verb).to;
        return to != VerbFacts::Who::none &&
               (to != VerbFacts::Who::root || member == peer);
    }
    /// Returns whether the operation is a sum or a mean of several members' values.
    bool is_sum() const {
        return facts_of(verb).reduces &&
               (reduction == Reduction::sum || reduction == Reduction::mean);
    }
    /// Returns whether the request belongs to an all_to_all_v but is no message: rank
    /// `rank`'s block for itself, or an empty block. This takes no time and is not
    /// counted.
    bool is_no_message(int rank) const {
        return all_to_all_v && (count == 0 || peer == rank);
    }
};

/// A request with its buffers: an operation of a communicator.
struct CommOperation : CommRequest {
    Tensor output{};
    Tensor input{};

    /// Returns the bytes of the larger buffer.
    std::int64_t bytes() const;
};

/// A rank's request for a split.
struct SplitRequest {
    int color = 0;
    int key = 0;
    std::string name;
    /// The expected members of the new communicator, in order, as ranks of the
    /// communicator that is split; empty if nothing is expected.
    std::vector<int> members;
    /// True if all ranks pass the list of members, false if only the members do.
    bool same_on_all = false;
    /// If the split makes lines or planes of a mesh: the mesh's axes, slowest first, in
    /// the form "dp 2"; otherwise empty. All ranks that name a mesh must name the same
    /// mesh.
    std::vector<std::string> mesh{};
};

/// "subgroup(tp, of ranks 0–3)", "split(tp, colour 1)".
std::string text_of(const SplitRequest& request);

/// "ranks 0–3", or "ranks 3, 1" if they are not in the order of their numbers.
std::string member_text(const std::vector<int>& members);

/// Returns whether two ranks' requests can be the same collective: they have the same
/// verb, count, dtype, reduction and root.
bool same_signature(const CommRequest& a, const CommRequest& b);

/// "all_reduce(sum, 1000 x f32)", "send(250 x f64, to rank 3)".
std::string text_of(const CommRequest& request);
/// Returns the same with these words for the other rank of a message.
std::string text_of(const CommRequest& request, const std::string& peer);

/// Adds the operation's verb to the name of operations that were launched together, such
/// as "send + recv", unless the name has it already.
void add_verb(std::string& name, const CommRequest& request);

}  // namespace lockstep
