#include "sim/collective.hpp"

#include <span>

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

void copy(const Tensor& to, const Tensor& from) {
    if (to.elements() > 0 && to.bytes_begin() != from.bytes_begin())
        to.device()->transfer(to, from);
}

Tensor block(const Tensor& tensor, std::int64_t begin, std::int64_t count) {
    return tensor.slice(begin, count);
}

/// What `input(member)` gives, reduced from member first + 1 on round the ring to
/// `first`.
template <typename Input>
Tensor reduce_round(const Members& members, int first, Input input) {
    const int n = size_of(members);
    const Tensor start = input((first + 1) % n);
    if (start.elements() == 0) return start;
    const CommOperation& operation = at(members, first);
    const Reduction reduction =
        operation.reduction == Reduction::mean ? Reduction::sum : operation.reduction;
    Device& device = *start.device();
    const Tensor total = device.scratch(start.shape(), start.dtype());
    device.transfer(total, start);
    for (int step = 2; step <= n; ++step)
        device.transfer_combine(total, input((first + step) % n), reduction);
    if (operation.reduction == Reduction::mean) device.transfer_scale(total, 1.0 / n);
    return total;
}

void all_reduce(const Members& members) {
    const int n = size_of(members);
    for (int c = 0; c < n; ++c) {
        const Chunk part = chunk(at(members, 0).count, n, c);
        const Tensor total = reduce_round(members, c, [&](int member) {
            return block(at(members, member).input, part.begin, part.count);
        });
        for (int member = 0; member < n; ++member)
            copy(block(at(members, member).output, part.begin, part.count), total);
    }
}

void reduce_scatter(const Members& members) {
    const int n = size_of(members);
    const std::int64_t count = at(members, 0).count;
    // All totals first: an output may be a block of an input that others still need.
    std::vector<Tensor> totals;
    for (int c = 0; c < n; ++c)
        totals.push_back(reduce_round(members, c, [&](int member) {
            return block(at(members, member).input, c * count, count);
        }));
    for (int c = 0; c < n; ++c)
        copy(at(members, c).output.flat(), totals[c]);
}

void all_gather(const Members& members) {
    const std::int64_t count = at(members, 0).count;
    for (int to = 0; to < size_of(members); ++to)
        for (int from = 0; from < size_of(members); ++from)
            copy(block(at(members, to).output, from * count, count),
                 at(members, from).input.flat());
}

void broadcast(const Members& members) {
    const CommOperation& root = at(members, at(members, 0).peer);
    for (int member = 0; member < size_of(members); ++member)
        copy(at(members, member).output.flat(), root.input.flat());
}

void reduce(const Members& members) {
    const int root = at(members, 0).peer;
    const Tensor total = reduce_round(
        members, root, [&](int member) { return at(members, member).input.flat(); });
    copy(at(members, root).output.flat(), total);
}

void gather(const Members& members) {
    const CommOperation& root = at(members, at(members, 0).peer);
    for (int from = 0; from < size_of(members); ++from)
        copy(block(root.output, from * root.count, root.count),
             at(members, from).input.flat());
}

void scatter(const Members& members) {
    const CommOperation& root = at(members, at(members, 0).peer);
    for (int to = 0; to < size_of(members); ++to)
        copy(at(members, to).output.flat(),
             block(root.input, to * root.count, root.count));
}

void all_to_all(const Members& members) {
    const int n = size_of(members);
    const std::int64_t count = at(members, 0).count;
    // Through copies of the inputs: an output may be its own rank's input.
    for (int from = 0; from < n; ++from) {
        const Tensor& input = at(members, from).input;
        if (input.elements() == 0 || !input.overlaps(at(members, from).output)) continue;
        const Tensor aside = input.device()->scratch(input.shape(), input.dtype());
        input.device()->transfer(aside, input);
        members[from]->operation.input = aside;
    }
    for (int to = 0; to < n; ++to)
        for (int from = 0; from < n; ++from)
            copy(block(at(members, to).output, from * count, count),
                 block(at(members, from).input, to * count, count));
}

}  // namespace

void compute(const std::vector<Posted*>& members) {
    switch (at(members, 0).verb) {
        case Verb::all_reduce:
            return all_reduce(members);
        case Verb::all_gather:
            return all_gather(members);
        case Verb::reduce_scatter:
            return reduce_scatter(members);
        case Verb::broadcast:
            return broadcast(members);
        case Verb::reduce:
            return reduce(members);
        case Verb::gather:
            return gather(members);
        case Verb::scatter:
            return scatter(members);
        case Verb::all_to_all:
            return all_to_all(members);
        case Verb::barrier:
        case Verb::split:
        case Verb::send:
        case Verb::recv:
            return;
    }
}

}  // namespace lockstep::sim
