#include "sim/check/weights.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "sim/check/contents.hpp"
#include "sim/check/parameters.hpp"
#include "sim/engine.hpp"

namespace lockstep::sim {

namespace {

using Ranges = Shadow<Weights>::Ranges;

/// A loss's gradient stands for all of its rows only where all of it is read.
bool is_cut(const Shadow<Weights>::Range& range) {
    return range.fact->is_loss_gradient &&
           (range.shift() != 0 ||
            range.end - range.begin != range.fact->losses.front()->bytes);
}

/// The part of ranges that lies in [from, to), counted from there.
Ranges clipped(const Ranges& ranges, std::int64_t from, std::int64_t to) {
    Ranges part;
    for (const auto& range : ranges)
        if (range.end > from && range.begin < to)
            part.push_back({std::max(range.begin, from) - from,
                            std::min(range.end, to) - from, range.start - from,
                            range.fact});
    return part;
}

void append(Ranges& all, const Ranges& more, std::int64_t at) {
    for (const auto& range : more)
        all.push_back({range.begin + at, range.end + at, range.start + at, range.fact});
}

}  // namespace

WeightWatcher::WeightWatcher(const Engine& engine)
    : Tracker(engine.ranks().size()),
      engine_(engine),
      of_step_(engine.ranks().size()),
      groups_(engine.ranks().size()) {}

Weights WeightWatcher::of(int rank, const Tensor& tensor) const {
    const Ranges ranges = known(rank).read(tensor);
    if (!cover(ranges, tensor.bytes())) return nullptr;
    Weights sum = zero_;
    for (const auto& range : ranges) {
        if (is_cut(range)) return nullptr;
        sum = sum_of(sum, range.fact);
    }
    // A loss's gradient of which a part was overwritten.
    if (sum && sum->is_loss_gradient && ranges.size() > 1) return nullptr;
    return sum;
}

void WeightWatcher::executing(int rank, const DeviceOperation& operation) {
    Known& memory = known(rank);
    switch (operation.derivation.kind) {
        case Derivation::Kind::fill:
            if (operation.derivation.factor != 0) break;
            return memory.set(*operation.writes[0], zero_);
        case Derivation::Kind::copy:
            return copy_facts(rank, *operation.writes[0], rank, *operation.reads[0]);
        case Derivation::Kind::loss_gradient:
            return begin_gradient(rank, operation);
        case Derivation::Kind::scale:
            return scale(rank, operation);
        case Derivation::Kind::update:
            check_update(rank, operation);
            break;
        case Derivation::Kind::random:
            break;
        case Derivation::Kind::part:
        case Derivation::Kind::function:
            if (const Weights made = made_by(rank, operation)) {
                for (const Tensor* written : operation.writes)
                    memory.set(*written, made);
                return;
            }
            break;
    }
    forget_results(rank, operation);
}

/// Null where nothing is known: of anything that is not linear in the one operand that
/// comes from a loss.
Weights WeightWatcher::made_by(int rank, const DeviceOperation& operation) const {
    const Derivation& derivation = operation.derivation;
    const bool part = derivation.kind == Derivation::Kind::part;
    if (derivation.factor != 1) return nullptr;
    Weights made;
    for (std::size_t i = 0; i < operation.reads.size(); ++i) {
        const Tensor& read = *operation.reads[i];
        const bool added_to =
            derivation.adds && std::find(operation.writes.begin(), operation.writes.end(),
                                         &read) != operation.writes.end();
        if (added_to || known(rank).knows_nothing_of(read)) continue;
        const Weights weights = of(rank, read);
        if (weights && weights->zero() && !derivation.adds && !part) continue;
        // Of a scaled value only sums are told: backward scales, too, where forward does.
        const bool sums = derivation.adds && operation.reads.size() == 2 &&
                          read.elements() == operation.writes[0]->elements();
        const bool follows = weights && (derivation.is_linear_in(i) || part) && !made &&
                             (weights->steps.empty() || part || sums);
        if (!follows) return nullptr;
        made = weights;
    }
    if (!made) return nullptr;
    if (part && made->is_loss_gradient) return nullptr;
    if (made->is_loss_gradient) {
        RowWeights further = *made;
        further.is_loss_gradient = false;
        made = std::make_shared<const RowWeights>(std::move(further));
    }
    if (!derivation.adds && !part) return made;
    for (const Tensor* target : operation.writes) {
        const Weights before = of(rank, *target);
        if (!before || before->is_loss_gradient) return nullptr;
        made = sum_of(before, made);
        if (!made) return nullptr;
    }
    return made;
}

void WeightWatcher::begin_gradient(int rank, const DeviceOperation& operation) {
    const Tensor& prediction = *operation.reads[0];
    const Tensor& gradient = *operation.writes[0];
    const VirtualDevice& clock = engine_.ranks()[rank]->clock;
    // Of a loss whose columns are shared out: what is the same on all of these ranks.
    const bool is_shard = operation.reads.size() > 2;
    std::uint64_t content = 0;
    for (std::size_t i = is_shard ? 1 : 0; i < operation.reads.size(); ++i)
        content = mixed(content, hash_of(*operation.reads[i]));
    RowWeights weights;
    weights.losses.push_back(std::make_shared<const LossRows>(
        LossRows{rank, clock.micro_batch(), operation.name, operation.at,
                 operation.derivation.factor, prediction.shape(),
                 operation.name == std::string_view("squared_error_backward"),
                 gradient.bytes(), content}));
    weights.is_loss_gradient = true;
    RankLosses& mine = of_step_[rank];
    if (std::exchange(mine.stepped, false)) mine.losses.clear();
    constexpr std::size_t kNoted = 4096;  // of a run that never updates
    if (mine.losses.size() < kNoted) mine.losses.push_back(weights.losses.front());
    known(rank).set(gradient, std::make_shared<const RowWeights>(std::move(weights)));
}

void WeightWatcher::scale(int rank, const DeviceOperation& operation) {
    const Tensor& tensor = *operation.writes[0];
    const double factor = operation.derivation.factor;
    if (factor == 1 || known(rank).knows_nothing_of(tensor)) return;
    Ranges ranges = known(rank).read(tensor);
    std::erase_if(ranges, [](const auto& range) { return range.fact->is_loss_gradient; });
    for (auto& range : ranges) {
        if (range.fact->zero()) continue;
        RowWeights scaled = *range.fact;
        scaled.steps.push_back({nullptr, factor, operation.at});
        range.fact = std::make_shared<const RowWeights>(std::move(scaled));
    }
    known(rank).put(tensor, std::move(ranges));
}

/// Whether all of the rank's losses of this step are in the gradient. One of several,
/// of two heads that take turns, say, has a weight that is no mean's.
bool WeightWatcher::has_all_losses(int rank, const RowWeights& gradient) const {
    const auto& all = gradient.losses;
    if (std::none_of(all.begin(), all.end(),
                     [&](const auto& loss) { return loss->rank == rank; }))
        return true;
    const auto& mine = of_step_[rank].losses;
    return std::all_of(mine.begin(), mine.end(), [&](const auto& loss) {
        return std::find(all.begin(), all.end(), loss) != all.end();
    });
}

/// Of the communicators that the rank is in, each once.
const std::vector<int>& WeightWatcher::group_sizes(int rank) {
    GroupSizes& groups = groups_[rank];
    for (; groups.seen < engine_.teams().size(); ++groups.seen) {
        const Team& team = *engine_.teams()[groups.seen];
        const auto& ranks = team.ranks;
        if (std::find(ranks.begin(), ranks.end(), rank) != ranks.end() &&
            std::find(groups.sizes.begin(), groups.sizes.end(), team.size()) ==
                groups.sizes.end())
            groups.sizes.push_back(team.size());
    }
    return groups.sizes;
}

void WeightWatcher::check_update(int rank, const DeviceOperation& operation) {
    of_step_[rank].stepped = true;
    const Weights weights = of(rank, gradient_of(operation));
    if (!weights || weights->zero() || weights->is_loss_gradient ||
        !has_all_losses(rank, *weights))
        return;
    // All ranks of a reduction have the same.
    const std::vector<int>& sizes = group_sizes(rank);
    const auto judged = right_.find(weights);
    if (judged != right_.end() && judged->second == sizes) return;
    if (auto diagnosis = explain_weights(*weights, operation, sizes))
        throw FaultError(std::move(*diagnosis));
    constexpr std::size_t kJudged = 256;
    if (right_.size() >= kJudged) right_.clear();
    right_[weights] = sizes;
}

// Between ranks.

Ranges WeightWatcher::reduced(const Meeting& meeting, const Origin& origin) const {
    std::vector<Ranges> inputs;
    for (const Posted* side : meeting.arrived)
        inputs.push_back(known(side->batch->rank).read(side->operation.input));
    Ranges result;
    const Ranges& first = inputs.front();
    for (std::size_t i = 0; i < first.size(); ++i) {
        std::vector<Weights> members;
        for (const Ranges& input : inputs) {
            if (input.size() != first.size() || input[i].begin != first[i].begin ||
                input[i].end != first[i].end)
                return {};
            members.push_back(input[i].fact);
        }
        if (Weights sum = reduction_of(members, origin))
            result.push_back(
                {first[i].begin, first[i].end, first[i].begin, std::move(sum)});
    }
    return result;
}

void WeightWatcher::collective_begins(const Team& team, const Meeting& meeting) {
    const CommOperation& first = meeting.first->operation;
    const VerbFacts verb = facts_of(first.verb);
    if (!verb.moves() || team.size() == 1) return;
    Ranges whole;  // of what all together make
    if (verb.reduces) {
        if (first.reduction == Reduction::sum || first.reduction == Reduction::mean)
            whole = reduced(meeting, origin_of(team, meeting));
    } else if (verb.is_alike()) {
        const std::int64_t bytes = first.count * bytes_of(first.dtype);
        for (const Posted* side : meeting.arrived) {
            const int member = side->batch->member;
            if (verb.reads(member == first.peer))
                append(whole, known(side->batch->rank).read(side->operation.input),
                       verb.gathers() ? member * bytes : 0);
        }
    }
    for (const Posted* side : meeting.arrived) {
        const Tensor& output = side->operation.output;
        if (!output || !first.leaves_result(side->batch->member)) continue;
        const std::int64_t from =
            verb.scatters() ? side->batch->member * output.bytes() : 0;
        known(side->batch->rank).put(output, clipped(whole, from, from + output.bytes()));
    }
}

void WeightWatcher::message_begins(Posted& send, Posted& recv) {
    copy_facts(recv.batch->rank, recv.operation.output, send.batch->rank,
               send.operation.input);
}

}  // namespace lockstep::sim
