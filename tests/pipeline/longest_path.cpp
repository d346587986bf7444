#include "tests/pipeline/longest_path.hpp"

#include <algorithm>
#include <utility>

namespace lockstep::test {

namespace {

using Kind = InstructionKind;

bool makes_gradient(Kind kind) {
    return kind == Kind::backward || kind == Kind::backward_input;
}

}  // namespace

LongestPath::LongestPath(const Schedule& schedule, std::vector<StageDurations> durations,
                         Queues queues)
    : schedule_(schedule), durations_(std::move(durations)) {
    add_nodes();
    for (int stage = 0; stage < schedule.stages; ++stage)
        join_program(stage, queues);
    follow();
}

Picoseconds LongestPath::time_of(Place place) const {
    const StageDurations& own =
        durations_[durations_.size() == 1 ? 0 : static_cast<std::size_t>(place.stage)];
    switch (schedule_.at(place).kind) {
        case Kind::forward:
            return own.forward;
        case Kind::backward:
            return own.backward_input + own.backward_weight;
        case Kind::backward_input:
            return own.backward_input;
        case Kind::backward_weight:
            return own.backward_weight;
        case Kind::send_activation:
        case Kind::send_gradient:
            return own.message;
        default:
            return 0;
    }
}

/// The part after needs a forward's activation, the part before a backward's gradient.
std::optional<LongestPath::Data> LongestPath::made_by(Place place) const {
    const Instruction& it = schedule_.at(place);
    const int part = schedule_.part(place);
    if (it.kind == Kind::forward) return Data{false, part + 1, it.micro_batch};
    if (makes_gradient(it.kind)) return Data{true, part - 1, it.micro_batch};
    return std::nullopt;
}

LongestPath::Data LongestPath::carried_by(Place place) const {
    const Instruction& it = schedule_.at(place);
    const int part = schedule_.part(place);
    switch (it.kind) {
        case Kind::send_activation:
            return {false, part + 1, it.micro_batch};
        case Kind::send_gradient:
            return {true, part - 1, it.micro_batch};
        default:
            return {it.kind == Kind::recv_gradient, part, it.micro_batch};
    }
}

/// A node a computation, and one a message, for both its ends.
void LongestPath::add_nodes() {
    for (int stage = 0; stage < schedule_.stages; ++stage) {
        auto& row = nodes_of_.emplace_back();
        for (int i = 0; i < static_cast<int>(schedule_.of(stage).size()); ++i) {
            const Place place{stage, i};
            const Kind kind = schedule_.at(place).kind;
            if (const auto data = made_by(place)) makers_[*data] = place;
            if (!is_message(kind)) {
                row.push_back(static_cast<int>(nodes_.size()));
                nodes_.push_back({time_of(place), {}, 0});
                continue;
            }
            const auto [entry, added] =
                messages_.try_emplace(carried_by(place), static_cast<int>(nodes_.size()));
            if (added) nodes_.push_back({});
            if (is_send(kind))
                nodes_[static_cast<std::size_t>(entry->second)].duration = time_of(place);
            row.push_back(entry->second);
        }
    }
}

void LongestPath::join_program(int stage, Queues queues) {
    int work = -1;
    int message = -1;
    for (int i = 0; i < static_cast<int>(schedule_.of(stage).size()); ++i) {
        const Place place{stage, i};
        const int here = node(place);
        auto& after = nodes_[static_cast<std::size_t>(here)].after;
        const bool talks = is_message(schedule_.at(place).kind);
        if (work >= 0) after.push_back({work, 0});
        if (talks && message >= 0) after.push_back({message, 0});
        if (!talks) join_need(place);
        if (!talks || queues == Queues::one_for_all) work = here;
        if (talks) message = here;
    }
}

void LongestPath::join_need(Place place) {
    const Instruction& it = schedule_.at(place);
    if (it.kind != Kind::forward && !makes_gradient(it.kind)) return;
    const Data data{it.kind != Kind::forward, schedule_.part(place), it.micro_batch};
    const auto maker = makers_.find(data);
    if (maker == makers_.end()) return;  // the model's ends need nothing
    auto& after = nodes_[static_cast<std::size_t>(node(place))].after;
    const int from = maker->second.stage;
    if (from == place.stage) {
        after.push_back({node(maker->second), 0});
    } else if (schedule_.has_messages()) {
        after.push_back({messages_.at(data), 0});
    } else {
        const std::size_t sender =
            durations_.size() == 1 ? 0 : static_cast<std::size_t>(from);
        after.push_back({node(maker->second), durations_[sender].message});
    }
}

/// Visits nodes once all that they wait for are visited; what is never visited is in a
/// cycle, or behind one.
void LongestPath::follow() {
    std::vector<std::vector<Edge>> before(nodes_.size());
    std::vector<std::size_t> missing(nodes_.size());
    std::vector<std::size_t> ready;
    for (std::size_t to = 0; to < nodes_.size(); ++to) {
        missing[to] = nodes_[to].after.size();
        if (missing[to] == 0) ready.push_back(to);
        for (const Edge& edge : nodes_[to].after)
            before[static_cast<std::size_t>(edge.from)].push_back(
                {static_cast<int>(to), edge.gap});
    }
    for (std::size_t i = 0; i < ready.size(); ++i) {
        const Picoseconds end = nodes_[ready[i]].start + nodes_[ready[i]].duration;
        for (const Edge& edge : before[ready[i]]) {
            const auto to = static_cast<std::size_t>(edge.from);
            nodes_[to].start = std::max(nodes_[to].start, end + edge.gap);
            if (--missing[to] == 0) ready.push_back(to);
        }
    }
    deadlock_ = ready.size() < nodes_.size();
    for (const auto& row : nodes_of_) {
        auto& spans = spans_.emplace_back();
        for (const int index : row) {
            const Node& it = nodes_[static_cast<std::size_t>(index)];
            spans.push_back({it.start, it.start + it.duration});
        }
    }
}

Picoseconds LongestPath::makespan() const {
    Picoseconds end = 0;
    for (const auto& row : spans_)
        for (const TimeSpan& span : row)
            end = std::max(end, span.end);
    return end;
}

bool LongestPath::waits_for(Place later, Place earlier) const {
    std::vector<char> seen(nodes_.size(), 0);
    std::vector<int> open{node(later)};
    while (!open.empty()) {
        const auto it = static_cast<std::size_t>(open.back());
        open.pop_back();
        for (const Edge& edge : nodes_[it].after) {
            if (edge.from == node(earlier)) return true;
            if (seen[static_cast<std::size_t>(edge.from)]++ == 0)
                open.push_back(edge.from);
        }
    }
    return false;
}

/// What a node began right after, or a gap after.
void LongestPath::add_causes(const Node& of, std::vector<int>& open) const {
    for (const Edge& edge : of.after)
        if (nodes_[static_cast<std::size_t>(edge.from)].end() + edge.gap == of.start)
            open.push_back(edge.from);
}

bool LongestPath::lets_begin(std::optional<Place> earlier,
                             std::optional<Place> later) const {
    std::vector<int> open;
    if (later) {
        const Node& last = nodes_[static_cast<std::size_t>(node(*later))];
        if (!earlier && last.start == 0) return true;
        add_causes(last, open);
    } else {
        for (std::size_t i = 0; i < nodes_.size(); ++i)
            if (nodes_[i].end() == makespan()) open.push_back(static_cast<int>(i));
    }
    std::vector<char> seen(nodes_.size(), 0);
    while (!open.empty()) {
        const int index = open.back();
        const Node& it = nodes_[static_cast<std::size_t>(index)];
        open.pop_back();
        if (seen[static_cast<std::size_t>(index)]++ != 0) continue;
        if (earlier && index == node(*earlier)) return true;
        if (it.duration > 0) continue;
        if (!earlier && it.start == 0) return true;
        add_causes(it, open);
    }
    return false;
}

bool cycle_is_real(const Schedule& schedule, const std::vector<Place>& cycle) {
    const LongestPath graph(schedule, {{}});
    for (std::size_t i = 0; i < cycle.size(); ++i)
        if (!graph.waits_for(cycle[i], cycle[(i + 1) % cycle.size()])) return false;
    return !cycle.empty();
}

}  // namespace lockstep::test
