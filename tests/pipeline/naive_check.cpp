#include "tests/pipeline/naive_check.hpp"

#include <deque>
#include <set>
#include <tuple>

namespace lockstep::test {

namespace {

using Kind = InstructionKind;

class NaiveCheck {
  public:
    explicit NaiveCheck(const Schedule& schedule) : schedule_(schedule) {}

    bool passes() const {
        return in_range() && complete() && messages_fit() && versions_fit() &&
               comes_to_end();
    }

  private:
    /// All places with this work.
    std::vector<Place> all(Kind kind, int part, int micro_batch) const {
        std::vector<Place> found;
        for (const Place place : places())
            if (schedule_.at(place).kind == kind && schedule_.part(place) == part &&
                schedule_.at(place).micro_batch == micro_batch)
                found.push_back(place);
        return found;
    }

    std::vector<Place> places() const {
        std::vector<Place> all;
        for (int stage = 0; stage < schedule_.stages; ++stage)
            for (int i = 0; i < static_cast<int>(schedule_.of(stage).size()); ++i)
                all.push_back({stage, i});
        return all;
    }

    bool in_range() const {
        for (const Place place : places()) {
            const Instruction& it = schedule_.at(place);
            if (it.chunk < 0 || it.chunk >= schedule_.chunks) return false;
            if (has_micro_batch(it.kind) &&
                (it.micro_batch < 0 || it.micro_batch >= schedule_.micro_batches))
                return false;
        }
        return true;
    }

    bool complete() const {
        for (int part = 0; part < schedule_.part_count(); ++part)
            for (int it = 0; it < schedule_.micro_batches; ++it) {
                std::vector<Place> order = all(Kind::forward, part, it);
                const auto whole = all(Kind::backward, part, it);
                const auto first = all(Kind::backward_input, part, it);
                const auto second = all(Kind::backward_weight, part, it);
                if (order.size() != 1) return false;
                if (whole.size() + first.size() != 1 || first.size() != second.size())
                    return false;
                for (const auto& more : {whole, first, second})
                    order.insert(order.end(), more.begin(), more.end());
                for (std::size_t i = 1; i < order.size(); ++i)
                    if (order[i].stage != order[0].stage ||
                        order[i].position < order[i - 1].position)
                        return false;
            }
        return true;
    }

    Place only(Kind kind, int part, int micro_batch) const {
        const auto found = all(kind, part, micro_batch);
        return found.empty() ? Place{} : found.front();
    }

    /// What makes the gradient.
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
            for (int it = 0; it < schedule_.micro_batches; ++it) {
                const Place here = only(Kind::forward, part, it);
                const Place next = only(Kind::forward, part + 1, it);
                if (here.stage == next.stage) continue;
                expected += 4;
                if (!fits(here, all(Kind::send_activation, part, it),
                          all(Kind::recv_activation, part + 1, it), next) ||
                    !fits(backward(part + 1, it), all(Kind::send_gradient, part + 1, it),
                          all(Kind::recv_gradient, part, it), backward(part, it)))
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
            const Instruction& it = schedule_.at({place.stage, i});
            steps +=
                it.kind == Kind::optimizer_step && it.chunk == schedule_.at(place).chunk;
        }
        return steps;
    }

    bool versions_fit() const {
        const auto read = [&](Place place) {
            const int said = schedule_.at(place).weight_version;
            return said >= 0 ? said : newest(place);
        };
        for (const Place place : places()) {
            const Instruction& it = schedule_.at(place);
            if (it.kind > Kind::backward_weight) continue;
            if (read(place) > newest(place)) return false;
            if (read(place) !=
                read(only(Kind::forward, schedule_.part(place), it.micro_batch)))
                return false;
        }
        return true;
    }

    /// Gradient or not, the part that needs the data, the micro-batch.
    using Data = std::tuple<bool, int, int>;

    struct State {
        std::vector<int> next;
        std::vector<std::deque<Data>> sends_and_recvs;
        std::vector<std::deque<bool>> sends;
        std::set<std::pair<int, Data>> there;  ///< data, by the stage that has it
    };

    bool comes_to_end() const {
        State state;
        const auto stages = static_cast<std::size_t>(schedule_.stages);
        state.next.resize(stages);
        state.sends_and_recvs.resize(stages);
        state.sends.resize(stages);
        bool moved = true;
        while (moved) {
            moved = false;
            for (int stage = 0; stage < schedule_.stages; ++stage)
                while (step(state, stage))
                    moved = true;
            for (int a = 0; a < schedule_.stages; ++a)
                for (int b = 0; b < schedule_.stages; ++b)
                    if (a != b && meet(state, a, b)) moved = true;
        }
        for (std::size_t stage = 0; stage < stages; ++stage)
            if (state.next[stage] < static_cast<int>(schedule_.work[stage].size()))
                return false;
        for (const auto& queue : state.sends_and_recvs)
            if (!queue.empty()) return false;
        return true;
    }

    bool step(State& state, int stage) const {
        const auto s = static_cast<std::size_t>(stage);
        if (state.next[s] == static_cast<int>(schedule_.work[s].size())) return false;
        const Place place{stage, state.next[s]};
        const Instruction& it = schedule_.at(place);
        const int part = schedule_.part(place);
        const bool forward = it.kind == Kind::forward;
        if (is_message(it.kind)) {
            const bool gradient =
                it.kind == Kind::send_gradient || it.kind == Kind::recv_gradient;
            const int towards =
                is_send(it.kind) ? (gradient ? part - 1 : part + 1) : part;
            state.sends_and_recvs[s].push_back({gradient, towards, it.micro_batch});
            state.sends[s].push_back(is_send(it.kind));
        } else if (forward || it.kind == Kind::backward ||
                   it.kind == Kind::backward_input) {
            const bool needs = forward ? part > 0 : part < schedule_.last_part();
            if (needs &&
                state.there.count({stage, {!forward, part, it.micro_batch}}) == 0)
                return false;
            made(state, stage, {!forward, forward ? part + 1 : part - 1, it.micro_batch});
        }
        ++state.next[s];
        return true;
    }

    /// Without messages, data is at once wherever it is needed.
    void made(State& state, int stage, const Data& data) const {
        for (int to = 0; to < schedule_.stages; ++to)
            if (to == stage || !schedule_.has_messages()) state.there.insert({to, data});
    }

    static bool meet(State& state, int from, int to) {
        const auto a = static_cast<std::size_t>(from);
        const auto b = static_cast<std::size_t>(to);
        if (state.sends[a].empty() || state.sends[b].empty()) return false;
        if (!state.sends[a].front() || state.sends[b].front()) return false;
        if (state.sends_and_recvs[a].front() != state.sends_and_recvs[b].front())
            return false;
        state.there.insert({to, state.sends_and_recvs[b].front()});
        for (const std::size_t end : {a, b}) {
            state.sends[end].pop_front();
            state.sends_and_recvs[end].pop_front();
        }
        return true;
    }

    const Schedule& schedule_;
};

}  // namespace

bool can_run(const Schedule& schedule) {
    return NaiveCheck(schedule).passes();
}

}  // namespace lockstep::test
