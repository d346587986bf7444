#include "sim/team.hpp"
#include "src/comm/chunks.hpp"
#include "src/device/device.hpp"

namespace lockstep::sim {

namespace {

using Members = std::vector<Posted*>;

int size_of(const Members& members) {
    return static_cast<int>(members.size());
}
const CommOperation& at(const Members& members, int member) {
    return members[member]->operation;
}

/// Copies with the device of `to`; does nothing if both are the same memory.
void copy(const Tensor& to, const Tensor& from, const CommOperation& operation) {
    if (to.elements() > 0 && to.bytes_begin() != from.bytes_begin())
        to.device()->transfer(to, from, operation.at);
}

Tensor block(const Tensor& tensor, std::int64_t begin, std::int64_t count) {
    return tensor.slice(begin, count);
}

/// Returns the reduction of input(member) of all members, in ring order: from member
/// first + 1 to `first`.
template <typename Input>
Tensor reduce_round(const Members& members, int first, Input input) {
    const int n = size_of(members);
    Tensor start = input((first + 1) % n);
    if (start.elements() == 0) return start;
    const CommOperation& operation = at(members, first);
    const Reduction reduction =
        operation.reduction == Reduction::mean ? Reduction::sum : operation.reduction;
    Device& device = *start.device();
    Tensor total = device.scratch(start.shape(), start.dtype(), operation.at);
    device.transfer(total, start, operation.at);
    for (int step = 2; step <= n; ++step)
        device.transfer_combine(total, input((first + step) % n), reduction,
                                operation.at);
    if (operation.reduction == Reduction::mean)
        device.transfer_scale(total, 1.0 / n, operation.at);
    return total;
}

void all_reduce(const Members& members) {
    const int n = size_of(members);
    for (int c = 0; c < n; ++c) {
        const Chunk part = chunk(at(members, 0).count, n, c);
        if (part.count == 0) continue;
        const Tensor total = reduce_round(members, c, [&](int member) {
            return block(at(members, member).input, part.begin, part.count);
        });
        for (int member = 0; member < n; ++member)
            copy(block(at(members, member).output, part.begin, part.count), total,
                 at(members, member));
    }
}

void reduce_scatter(const Members& members) {
    const int n = size_of(members);
    const std::int64_t count = at(members, 0).count;
    // Computes all totals first: an output may be part of an input that is still needed.
    std::vector<Tensor> totals;
    totals.reserve(n);
    for (int c = 0; c < n; ++c)
        totals.push_back(reduce_round(members, c, [&](int member) {
            return block(at(members, member).input, c * count, count);
        }));
    for (int c = 0; c < n; ++c)
        copy(at(members, c).output.flat(), totals[c], at(members, c));
}

void reduce(const Members& members) {
    const int root = at(members, 0).peer;
    const Tensor total = reduce_round(
        members, root, [&](int member) { return at(members, member).input.flat(); });
    copy(at(members, root).output.flat(), total, at(members, root));
}

/// Returns the block that two members exchange; a buffer of one block is returned whole.
Tensor block_of(const Tensor& buffer, VerbFacts::Holds holds, int other,
                std::int64_t count) {
    return holds == VerbFacts::Holds::blocks ? block(buffer, other * count, count)
                                             : buffer.flat();
}

/// Copies inputs that overlap their own rank's output, as in an all_to_all in place.
void set_aside(const Members& members) {
    for (Posted* member : members) {
        const Tensor& input = member->operation.input;
        if (input.elements() == 0 || !input.overlaps(member->operation.output)) continue;
        const SourceLine line = member->operation.at;
        const Tensor aside = input.device()->scratch(input.shape(), input.dtype(), line);
        input.device()->transfer(aside, input, line);
        member->operation.input = aside;
    }
}

/// Copies each input, or the receiver's block of the input, to each receiving member.
void move(const Members& members, const VerbFacts& verb) {
    const std::int64_t count = at(members, 0).count;
    const int root = at(members, 0).peer;
    if (!verb.gathers() && verb.output == VerbFacts::Holds::blocks) set_aside(members);
    for (int to = 0; to < size_of(members); ++to) {
        if (!verb.writes(to == root)) continue;
        for (int from = 0; from < size_of(members); ++from)
            if (verb.reads(from == root))
                copy(block_of(at(members, to).output, verb.output, from, count),
                     block_of(at(members, from).input, verb.input, to, count),
                     at(members, to));
    }
}

}  // namespace

void compute(const std::vector<Posted*>& members) {
    const VerbFacts verb = facts_of(at(members, 0).verb);
    if (!verb.reduces) return move(members, verb);
    if (verb.scatters()) return reduce_scatter(members);
    if (verb.has_root()) return reduce(members);
    all_reduce(members);
}

}  // namespace lockstep::sim
