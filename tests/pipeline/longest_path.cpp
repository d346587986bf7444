#include "tests/pipeline/longest_path.hpp"

#include <algorithm>
#include <utility>

namespace lockstep::test {

namespace {

using Kind = InstructionKind;

bool makes_gradient(Kind kind) {
    return kind == Kind::backward || kind == Kind::backward_input;
}

bool stands_before(Place a, Place b) {
    return a.stage < b.stage || (a.stage == b.stage && a.position < b.position);
}

}  // namespace

LongestPath::LongestPath(const Schedule& schedule, ScheduleTimes times, Queues queues)
    : schedule_(schedule), times_(std::move(times)), group_ends_(stands_before) {
    find_data();
    for (int stage = 0; stage < schedule.stages; ++stage)
        add_nodes(stage);
    for (int stage = 0; stage < schedule.stages; ++stage)
        join_program(stage, queues);
    for (int stage = 0; stage < schedule.stages; ++stage)
        for (int i = 0; i < static_cast<int>(schedule.of_stage(stage).size()); ++i)
            join_need({stage, i});
    follow();
}

const Durations& LongestPath::durations(Place place) const {
    std::size_t entry = 0;
    if (times_.each.size() > 1)
        entry = static_cast<std::size_t>(times_.by_part ? schedule_.part(place)
                                                        : place.stage);
    return times_.each[entry];
}

Picoseconds LongestPath::time_alone(Place place) const {
    const Durations& own = durations(place);
    switch (schedule_.at(place).kind) {
        case Kind::forward:
            return own.forward;
        case Kind::backward:
            return own.recompute + own.backward_input + own.backward_weight;
        case Kind::backward_input:
            return own.recompute + own.backward_input;
        case Kind::backward_weight:
            return own.backward_weight;
        case Kind::optimizer_step:
            return own.update;
        default:
            return 0;
    }
}

/// Returns a message's time. A link, a boundary of parts or the sender determines it.
Picoseconds LongestPath::time_between(Place from, Place to) const {
    for (const auto& [stages, time] : times_.links)
        if (stages == std::pair(from.stage, to.stage) ||
            stages == std::pair(to.stage, from.stage))
            return time;
    const bool down = schedule_.part(from) < schedule_.part(to);
    return durations(times_.by_part && !down ? to : from).message;
}

/// A forward makes the activation that the next part needs. A backward makes the gradient
/// that the previous part needs.
std::optional<LongestPath::Data> LongestPath::made_by(Place place) const {
    const Instruction& instruction = schedule_.at(place);
    const int part = schedule_.part(place);
    if (instruction.kind == Kind::forward)
        return Data{false, part + 1, instruction.micro_batch};
    if (makes_gradient(instruction.kind))
        return Data{true, part - 1, instruction.micro_batch};
    return std::nullopt;
}

LongestPath::Data LongestPath::carried_by(Place place) const {
    const Instruction& instruction = schedule_.at(place);
    const int part = schedule_.part(place);
    switch (instruction.kind) {
        case Kind::send_activation:
            return {false, part + 1, instruction.micro_batch};
        case Kind::send_gradient:
            return {true, part - 1, instruction.micro_batch};
        default:
            return {instruction.kind == Kind::recv_gradient, part,
                    instruction.micro_batch};
    }
}

int LongestPath::add_node(Picoseconds duration) {
    nodes_.push_back({duration, {}, 0});
    return static_cast<int>(nodes_.size()) - 1;
}

/// Finds the instruction that makes each datum, and both ends of each message.
void LongestPath::find_data() {
    for (int stage = 0; stage < schedule_.stages; ++stage)
        for (int i = 0; i < static_cast<int>(schedule_.of_stage(stage).size()); ++i) {
            const Place place{stage, i};
            if (const auto data = made_by(place)) makers_[*data] = place;
            if (!is_message(schedule_.at(place).kind)) continue;
            Message& message = messages_[carried_by(place)];
            (is_send(schedule_.at(place).kind) ? message.send : message.recv) = place;
        }
    for (auto& [data, message] : messages_) {
        const bool whole = message.send.stage >= 0 && message.recv.stage >= 0;
        message.node = add_node(whole ? time_between(message.send, message.recv) : 0);
    }
}

/// Gives a stage's instructions their nodes. A pair shares one node, as do both ends of a
/// message, and the reductions of a part on all stages that hold the part.
void LongestPath::add_nodes(int stage) {
    auto& row = nodes_of_.emplace_back();
    std::map<int, int> reductions;
    for (int i = 0; i < static_cast<int>(schedule_.of_stage(stage).size()); ++i) {
        const Place place{stage, i};
        const Instruction& instruction = schedule_.at(place);
        if (is_message(instruction.kind)) {
            row.push_back(messages_.at(carried_by(place)).node);
        } else if (instruction.kind == Kind::reduce_gradients) {
            const int part = schedule_.part(place);
            const auto [entry, added] =
                meetings_.try_emplace({part, reductions[part]++}, 0);
            if (added) entry->second = add_node(0);
            Node& meeting = nodes_[static_cast<std::size_t>(entry->second)];
            meeting.duration = std::max(meeting.duration, durations(place).reduce);
            row.push_back(entry->second);
        } else if (instruction.together) {
            row.push_back(row.back());
            add_pair({stage, i - 1}, place);
        } else {
            row.push_back(add_node(time_alone(place)));
        }
    }
}

void LongestPath::add_pair(Place first, Place second) {
    const Picoseconds own =
        std::max(durations(first).overlapped, durations(second).overlapped);
    nodes_[static_cast<std::size_t>(node(first))].duration =
        own < 0 ? time_alone(first) + time_alone(second) : own;
}

/// Returns the queue of a message: the other stage, and whether this stage sends.
std::pair<int, bool> LongestPath::queue_of(Place message) const {
    if (schedule_.queues == MessageQueues::one) return {-1, false};
    const bool sends = is_send(schedule_.at(message).kind);
    const Message& both = messages_.at(carried_by(message));
    return {(sends ? both.recv : both.send).stage, sends};
}

void LongestPath::join_program(int stage, Queues queues) {
    int work = -1;
    std::map<std::pair<int, bool>, int> messages;
    const int count = static_cast<int>(schedule_.of_stage(stage).size());
    for (int i = 0; i < count;) {
        std::vector<Place> group{{stage, i}};
        while (++i < count && schedule_.at({stage, i}).together)
            group.push_back({stage, i});
        if (is_message(schedule_.at(group.front()).kind)) {
            const auto [last, first] = messages.try_emplace(queue_of(group.front()), -1);
            last->second = join_group(group, work, last->second);
            if (queues == Queues::one_for_all) work = last->second;
        } else {
            if (work >= 0) after(node(group.front())).push_back({work, 0});
            work = node(group.front());
        }
    }
}

/// Lets the group's messages begin after `work` and `before`, and end together. Returns
/// the node of this end.
int LongestPath::join_group(const std::vector<Place>& group, int work, int before) {
    const int end = add_node(0);
    for (const Place place : group) {
        for (const int first : {work, before})
            if (first >= 0) after(node(place)).push_back({first, 0});
        after(end).push_back({node(place), 0});
        group_ends_[place] = end;
    }
    return end;
}

void LongestPath::join_need(Place place) {
    const Instruction& instruction = schedule_.at(place);
    if (instruction.kind != Kind::forward && !makes_gradient(instruction.kind)) return;
    const Data data{instruction.kind != Kind::forward, schedule_.part(place),
                    instruction.micro_batch};
    auto& edges = after(node(place));
    if (makes_gradient(instruction.kind)) {
        const auto own =
            makers_.find({false, schedule_.part(place) + 1, instruction.micro_batch});
        if (own != makers_.end()) edges.push_back({node(own->second), 0});
    }
    const auto maker = makers_.find(data);
    if (maker == makers_.end()) return;  // the model's input or the loss's gradient
    if (maker->second.stage == place.stage)
        edges.push_back({node(maker->second), 0});
    else if (schedule_.has_messages())
        edges.push_back({group_ends_.at(messages_.at(data).recv), 0});
    else
        edges.push_back({node(maker->second), time_between(maker->second, place)});
}

/// Visits a node when all nodes that it waits for are visited. A node that is never
/// visited is in a cycle, or waits for a cycle.
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
            const Node& current = nodes_[static_cast<std::size_t>(index)];
            spans.push_back({current.start, current.start + current.duration});
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
        const auto index = static_cast<std::size_t>(open.back());
        open.pop_back();
        for (const Edge& edge : nodes_[index].after) {
            if (edge.from == node(earlier)) return true;
            if (seen[static_cast<std::size_t>(edge.from)]++ == 0)
                open.push_back(edge.from);
        }
    }
    return false;
}

/// Adds the nodes that decide when `later` begins: it starts at their end plus a gap.
void LongestPath::add_causes(const Node& later, std::vector<int>& open) const {
    for (const Edge& edge : later.after)
        if (nodes_[static_cast<std::size_t>(edge.from)].end() + edge.gap == later.start)
            open.push_back(edge.from);
}

/// Returns the nodes that end at the makespan.
std::vector<int> LongestPath::last_to_end() const {
    const Picoseconds end = makespan();
    std::vector<int> last;
    for (std::size_t i = 0; i < nodes_.size(); ++i)
        if (nodes_[i].end() == end) last.push_back(static_cast<int>(i));
    return last;
}

bool LongestPath::lets_begin(std::optional<Place> earlier,
                             std::optional<Place> later) const {
    std::vector<int> open;
    if (later) {
        const Node& last = nodes_[static_cast<std::size_t>(node(*later))];
        if (!earlier && last.start == 0) return true;
        add_causes(last, open);
    } else {
        open = last_to_end();
    }
    std::vector<char> seen(nodes_.size(), 0);
    while (!open.empty()) {
        const int index = open.back();
        const Node& current = nodes_[static_cast<std::size_t>(index)];
        open.pop_back();
        if (seen[static_cast<std::size_t>(index)]++ != 0) continue;
        if (earlier && index == node(*earlier)) return true;
        if (current.duration > 0) continue;
        if (!earlier && current.start == 0) return true;
        add_causes(current, open);
    }
    return false;
}

bool cycle_is_real(const Schedule& schedule, const std::vector<Place>& cycle) {
    const LongestPath graph(schedule, {});
    for (std::size_t i = 0; i < cycle.size(); ++i)
        if (!graph.waits_for(cycle[i], cycle[(i + 1) % cycle.size()])) return false;
    return !cycle.empty();
}

}  // namespace lockstep::test
