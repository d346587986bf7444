#include "tests/pipeline/naive_check.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <tuple>

namespace lockstep::test {

namespace {

using Kind = InstructionKind;

class NaiveCheck {
  public:
    explicit NaiveCheck(const Schedule& schedule) : schedule_(schedule) {}

    bool passes() const {
        return in_range() && together_fit() && complete() && messages_fit() &&
               versions_fit() && steps_fit() && comes_to_end();
    }

  private:
    /// Returns all places with this work.
    std::vector<Place> all(Kind kind, int part, int micro_batch) const {
        std::vector<Place> found;
        for (const Place place : places())
            if (schedule_.at(place).kind == kind && schedule_.part(place) == part &&
                schedule_.at(place).micro_batch == micro_batch)
                found.push_back(place);
        return found;
    }

    int count(int stage) const {
        return static_cast<int>(schedule_.of_stage(stage).size());
    }

    std::vector<Place> places() const {
        std::vector<Place> all;
        for (int stage = 0; stage < schedule_.stages; ++stage)
            for (int i = 0; i < count(stage); ++i)
                all.push_back({stage, i});
        return all;
    }

    bool in_range() const {
        for (const Place place : places()) {
            const Instruction& instruction = schedule_.at(place);
            if (instruction.chunk < 0 || instruction.chunk >= schedule_.chunks)
                return false;
            if (!is_computation(instruction.kind) &&
                (instruction.mixes_weights || instruction.estimated))
                return false;
            if (has_micro_batch(instruction.kind) &&
                (instruction.micro_batch < 0 ||
                 instruction.micro_batch >= schedule_.micro_batches))
                return false;
        }
        return true;
    }

    /// Only messages in one queue, or a forward and a backward, may begin together.
    bool together_fit() const {
        for (const auto& list : schedule_.work) {
            if (!list.empty() && list.front().together) return false;
            for (std::size_t i = 1; i < list.size(); ++i)
                if (list[i].together && !fits_with_last(list, i)) return false;
        }
        return true;
    }

    /// Returns whether instruction i of the list may begin together with instruction i -
    /// 1.
    bool fits_with_last(const std::vector<Instruction>& list, std::size_t i) const {
        if (is_message(list[i].kind) && is_message(list[i - 1].kind))
            return schedule_.queues == MessageQueues::one;
        const bool third =
            list[i - 1].together || (i + 1 < list.size() && list[i + 1].together);
        return !third && (overlap(list[i - 1].kind, list[i].kind) ||
                          overlap(list[i].kind, list[i - 1].kind));
    }
    static bool overlap(Kind forward, Kind backward) {
        return forward == Kind::forward && makes_gradient(backward);
    }
    static bool makes_gradient(Kind kind) {
        return kind == Kind::backward || kind == Kind::backward_input;
    }

    bool complete() const {
        for (int part = 0; part < schedule_.part_count(); ++part)
            for (int micro_batch = 0; micro_batch < schedule_.micro_batches;
                 ++micro_batch)
                if (!complete(part, micro_batch)) return false;
        return true;
    }

    /// Returns whether there is one forward and later, on the same stage, one backward or
    /// its two halves in order.
    bool complete(int part, int micro_batch) const {
        std::vector<Place> order = all(Kind::forward, part, micro_batch);
        const auto whole = all(Kind::backward, part, micro_batch);
        const auto first = all(Kind::backward_input, part, micro_batch);
        const auto second = all(Kind::backward_weight, part, micro_batch);
        if (order.size() != 1) return false;
        if (whole.size() + first.size() != 1 || first.size() != second.size())
            return false;
        for (const auto& more : {whole, first, second})
            order.insert(order.end(), more.begin(), more.end());
        for (std::size_t i = 1; i < order.size(); ++i)
            if (order[i].stage != order[0].stage ||
                order[i].position < order[i - 1].position)
                return false;
        return true;
    }

    Place only(Kind kind, int part, int micro_batch) const {
        const auto found = all(kind, part, micro_batch);
        return found.empty() ? Place{} : found.front();
    }

    /// Returns the backward that makes the gradient.
    Place backward(int part, int micro_batch) const {
        const Place whole = only(Kind::backward, part, micro_batch);
        return whole ? whole : only(Kind::backward_input, part, micro_batch);
    }

    bool messages_fit() const {
        int expected = 0;
        int found = 0;
        for (const Place place : places())
            found += is_message(schedule_.at(place).kind);
        if (found == 0) return true;
        for (int part = 0; part + 1 < schedule_.part_count(); ++part)
            for (int micro_batch = 0; micro_batch < schedule_.micro_batches;
                 ++micro_batch) {
                const Place here = only(Kind::forward, part, micro_batch);
                const Place next = only(Kind::forward, part + 1, micro_batch);
                if (here.stage == next.stage) continue;
                expected += 4;
                if (!fits(here, all(Kind::send_activation, part, micro_batch),
                          all(Kind::recv_activation, part + 1, micro_batch), next) ||
                    !fits(backward(part + 1, micro_batch),
                          all(Kind::send_gradient, part + 1, micro_batch),
                          all(Kind::recv_gradient, part, micro_batch),
                          backward(part, micro_batch)))
                    return false;
            }
        return found == expected;
    }

    static bool fits(Place maker, const std::vector<Place>& sends,
                     const std::vector<Place>& recvs, Place user) {
        return sends.size() == 1 && recvs.size() == 1 && sends[0].stage == maker.stage &&
               sends[0].position > maker.position && recvs[0].stage == user.stage &&
               recvs[0].position < user.position;
    }

    int newest(Place place) const {
        int steps = 0;
        for (int i = 0; i < place.position; ++i) {
            const Instruction& instruction = schedule_.at({place.stage, i});
            steps += instruction.kind == Kind::optimizer_step &&
                     instruction.chunk == schedule_.at(place).chunk;
        }
        return steps;
    }

    bool versions_fit() const {
        const auto read = [&](Place place) {
            const int said = schedule_.at(place).weight_version;
            return said >= 0 ? said : newest(place);
        };
        for (const Place place : places()) {
            const Instruction& instruction = schedule_.at(place);
            if (instruction.kind > Kind::backward_weight) continue;
            if (instruction.mixes_weights && instruction.kind == Kind::forward)
                return false;
            if (instruction.estimated && instruction.weight_version < 0) return false;
            if (read(place) > newest(place) && !instruction.estimated) return false;
            if (!instruction.mixes_weights &&
                read(place) != read(only(Kind::forward, schedule_.part(place),
                                         instruction.micro_batch)))
                return false;
        }
        return true;
    }

    /// Returns the number of reductions before `until`, on its stage and of its chunk.
    int reductions(Place until) const {
        int count = 0;
        for (int i = 0; i < until.position; ++i)
            count += schedule_.at({until.stage, i}).kind == Kind::reduce_gradients &&
                     schedule_.at({until.stage, i}).chunk == schedule_.at(until).chunk;
        return count;
    }
    /// Returns whether the chunk has gradients at `place`: a backward is before it, with
    /// no update (and, if `place` is a reduction, no other reduction) between them.
    bool has_gradients(Place place) const {
        const Instruction& step = schedule_.at(place);
        for (int i = place.position - 1; i >= 0; --i) {
            const Instruction& instruction = schedule_.at({place.stage, i});
            if (instruction.chunk != step.chunk) continue;
            if (instruction.kind == Kind::backward ||
                instruction.kind == Kind::backward_weight)
                return true;
            if (instruction.kind == Kind::optimizer_step) return false;
            if (instruction.kind == Kind::reduce_gradients)
                return step.kind == Kind::optimizer_step;
        }
        return false;
    }
    /// Returns the reductions on all stages that belong to the same collective as this
    /// one. A stage that holds the part but does not reduce has none among them.
    std::vector<Place> meeting(Place place) const {
        std::vector<Place> ends;
        for (const Place other : places())
            if (schedule_.at(other).kind == Kind::reduce_gradients &&
                schedule_.part(other) == schedule_.part(place) &&
                reductions(other) == reductions(place))
                ends.push_back(other);
        return ends;
    }
    /// Returns whether an update changes all copies of a part in the same way: all copies
    /// are reduced after their last backward, and all copies are updated.
    bool fits_copies(Place update) const {
        const int part = schedule_.part(update);
        if (schedule_.holders(part) == 1) return true;
        int back = update.position - 1;
        while (schedule_.at({update.stage, back}).chunk != schedule_.at(update).chunk ||
               is_message_or_forward({update.stage, back}))
            --back;
        if (schedule_.at({update.stage, back}).kind != Kind::reduce_gradients)
            return false;
        int updates = 0;
        for (const Place other : places())
            updates += schedule_.at(other).kind == Kind::optimizer_step &&
                       schedule_.part(other) == part &&
                       reductions(other) == reductions(update);
        return updates == schedule_.holders(part);
    }
    bool is_message_or_forward(Place place) const {
        const Kind kind = schedule_.at(place).kind;
        return is_message(kind) || kind == Kind::forward || kind == Kind::backward_input;
    }

    bool steps_fit() const {
        for (const Place place : places()) {
            const Instruction& instruction = schedule_.at(place);
            if (instruction.kind == Kind::optimizer_step &&
                (!has_gradients(place) || !fits_copies(place)))
                return false;
            if (instruction.kind != Kind::reduce_gradients) continue;
            bool any = false;
            const std::vector<Place> ends = meeting(place);
            for (const Place end : ends)
                any = any || has_gradients(end);
            if (!any ||
                static_cast<int>(ends.size()) != schedule_.holders(schedule_.part(place)))
                return false;
        }
        return true;
    }

    /// A datum: whether it is a gradient, which part needs it, and its micro-batch.
    using Data = std::tuple<bool, int, int>;

    /// Messages that are posted together. `waiting` has those not yet sent or received.
    struct Post {
        std::vector<Data> waiting;
        std::vector<Data> arrived;  ///< received; usable when the whole post has ended
        bool sends(const Data& data) const { return sent.count(data) > 0; }
        std::set<Data> sent;
    };
    /// The direction: the other stage, and whether this stage sends.
    using Queue = std::pair<int, bool>;
    struct State {
        std::vector<int> next;
        std::vector<std::map<Queue, std::deque<Post>>> queues;
        std::set<std::pair<int, Data>> there;  ///< a stage, and a datum that it has
    };

    bool comes_to_end() const {
        State state;
        const auto stages = static_cast<std::size_t>(schedule_.stages);
        state.next.resize(stages);
        state.queues.resize(stages);
        while (move_all(state)) {
        }
        return is_at_end(state);
    }

    /// Moves every stage, and the messages between every two stages, as far as possible.
    /// Returns whether anything moved.
    bool move_all(State& state) const {
        bool moved = false;
        for (int stage = 0; stage < schedule_.stages; ++stage)
            while (step(state, stage))
                moved = true;
        const std::size_t stages = state.next.size();
        for (std::size_t a = 0; a < stages; ++a)
            for (std::size_t b = 0; b < stages; ++b)
                while (a != b && meet(state, a, b))
                    moved = true;
        return moved;
    }

    /// Returns whether all instructions have run, and no message waits for its other end.
    bool is_at_end(const State& state) const {
        for (std::size_t stage = 0; stage < state.next.size(); ++stage) {
            if (state.next[stage] < count(static_cast<int>(stage))) return false;
            for (const auto& [key, queue] : state.queues[stage])
                if (!queue.empty()) return false;
        }
        return true;
    }

    /// Runs the next instruction, and the instructions that begin together with it.
    bool step(State& state, int stage) const {
        int& next = state.next[static_cast<std::size_t>(stage)];
        if (next == count(stage)) return false;
        const Place first{stage, next};
        const Kind kind = schedule_.at(first).kind;
        if (kind == Kind::reduce_gradients) return reduce(state, first);
        const std::vector<Place> all = beginning_with(first);
        if (is_message(kind)) {
            post(state, all);
        } else {
            for (const Place place : all)
                if (!may_compute(state, place)) return false;
            for (const Place place : all)
                compute(state, place);
        }
        next += static_cast<int>(all.size());
        return true;
    }

    /// Returns the instruction, and the later ones that begin together with it.
    std::vector<Place> beginning_with(Place first) const {
        std::vector<Place> all{first};
        for (int i = first.position + 1; i < count(first.stage); ++i) {
            if (!schedule_.at({first.stage, i}).together) break;
            all.push_back({first.stage, i});
        }
        return all;
    }

    /// When all stages have reached the reduction, all stages continue.
    bool reduce(State& state, Place place) const {
        const std::vector<Place> ends = meeting(place);
        for (const Place end : ends)
            if (state.next[static_cast<std::size_t>(end.stage)] != end.position)
                return false;
        for (const Place end : ends)
            ++state.next[static_cast<std::size_t>(end.stage)];
        return true;
    }

    bool may_compute(const State& state, Place place) const {
        const Instruction& instruction = schedule_.at(place);
        const int part = schedule_.part(place);
        const bool forward = instruction.kind == Kind::forward;
        if (!forward && !makes_gradient(instruction.kind)) return true;
        const bool needs = forward ? part > 0 : part < schedule_.last_part();
        // The last part computes its gradient from its own result.
        const Data own{false, part + 1, instruction.micro_batch};
        if (!needs) return forward || state.there.count({place.stage, own}) > 0;
        return state.there.count(
                   {place.stage, {!forward, part, instruction.micro_batch}}) > 0;
    }
    void compute(State& state, Place place) const {
        const Instruction& instruction = schedule_.at(place);
        const int part = schedule_.part(place);
        const bool forward = instruction.kind == Kind::forward;
        if (forward || makes_gradient(instruction.kind))
            made(state, place.stage,
                 {!forward, forward ? part + 1 : part - 1, instruction.micro_batch});
    }

    /// Without messages, every stage has the data at once.
    void made(State& state, int stage, const Data& data) const {
        for (int to = 0; to < schedule_.stages; ++to)
            if (to == stage || !schedule_.has_messages()) state.there.insert({to, data});
    }

    Data carried_by(Place place) const {
        const Instruction& instruction = schedule_.at(place);
        const int part = schedule_.part(place);
        const bool gradient = instruction.kind == Kind::send_gradient ||
                              instruction.kind == Kind::recv_gradient;
        const int towards =
            is_send(instruction.kind) ? (gradient ? part - 1 : part + 1) : part;
        return {gradient, towards, instruction.micro_batch};
    }
    /// Returns the stage at a message's other end.
    int peer(Place place) const {
        for (const Place other : places())
            if (is_message(schedule_.at(other).kind) && !(other == place) &&
                carried_by(other) == carried_by(place))
                return other.stage;
        return -1;
    }
    void post(State& state, const std::vector<Place>& all) const {
        Post post;
        for (const Place place : all) {
            post.waiting.push_back(carried_by(place));
            if (is_send(schedule_.at(place).kind)) post.sent.insert(carried_by(place));
        }
        Queue queue{-1, false};
        if (schedule_.queues == MessageQueues::by_direction)
            queue = {peer(all.front()), is_send(schedule_.at(all.front()).kind)};
        state.queues[static_cast<std::size_t>(all.front().stage)][queue].push_back(post);
    }

    /// Moves one message from stage a to stage b, if both stages' first posts have it.
    static bool meet(State& state, std::size_t a, std::size_t b) {
        for (auto& [from_key, from] : state.queues[a])
            for (auto& [to_key, to] : state.queues[b]) {
                if (from.empty() || to.empty()) continue;
                Post& sender = from.front();
                Post& receiver = to.front();
                for (std::size_t i = 0; i < sender.waiting.size(); ++i) {
                    const Data data = sender.waiting[i];
                    if (!sender.sends(data) || receiver.sends(data)) continue;
                    const auto found =
                        std::find(receiver.waiting.begin(), receiver.waiting.end(), data);
                    if (found == receiver.waiting.end()) continue;
                    receiver.waiting.erase(found);
                    receiver.arrived.push_back(data);
                    sender.waiting.erase(
                        std::find(sender.waiting.begin(), sender.waiting.end(), data));
                    finish(state, a, from);
                    finish(state, b, to);
                    return true;
                }
            }
        return false;
    }
    static void finish(State& state, std::size_t stage, std::deque<Post>& queue) {
        if (!queue.front().waiting.empty()) return;
        for (const Data& data : queue.front().arrived)
            state.there.insert({static_cast<int>(stage), data});
        queue.pop_front();
    }

    const Schedule& schedule_;
};

}  // namespace

bool can_run(const Schedule& schedule) {
    return NaiveCheck(schedule).passes();
}

}  // namespace lockstep::test
