#include "src/inference/decoding_ring.hpp"

#include <algorithm>

#include "src/core/require.hpp"

namespace lockstep {

namespace {

// Ranks of a pair.
constexpr int kFrom = 0, kTo = 1;

}  // namespace

DecodingRing::DecodingRing(Communicator& line, Stage stage, SourceLine at)
    : stage_(std::move(stage)),
      device_(stage_.cache.device()),
      rank_(line.rank()),
      stages_(line.size()) {
    require(stage_.hidden > 0 && (!is_last() || stage_.choose), at,
            "a decoding ring with {} columns between stages; a positive number is "
            "expected, and on the last stage a function that chooses tokens",
            stage_.hidden);
    for (int from = 0; from + 1 < stages_; ++from) {
        auto pair = line.subgroup({from, from + 1}, "stages", at);
        if (from == rank_) after_ = std::move(pair);
        if (from + 1 == rank_) before_ = std::move(pair);
    }
    if (stages_ > 1) back_ = line.subgroup({stages_ - 1, 0}, "tokens", at);
}

// lesson: decoding-ring
void DecodingRing::run(std::span<Batcher* const> groups, SourceLine at) {
    std::vector<Turn> turns(groups.size());
    const auto goes_on = [&](std::size_t group) {
        return turns[group].under_way || !groups[group]->idle();
    };
    for (bool more = true; std::exchange(more, false);) {
        bool any = false;
        for (std::size_t i = 0; i < groups.size(); ++i) {
            if (!goes_on(i)) continue;
            Turn& turn = turns[i];
            more = true;
            if (std::exchange(turn.under_way, false)) {
                groups[i]->take(tokens_of(turn, at));
                any = true;
            }
            if (!groups[i]->idle()) any |= compute(*groups[i], turn, at);
        }
        require(any || !more, at,
                "no group can continue: other sequences have the pool's pages");
    }
    wait_for_sent(at);
}
// lesson: end

/// Receives the tokens of the group's last pass, and sends them on to the next stage,
/// unless that is the last stage, which chose the tokens.
std::vector<std::int32_t> DecodingRing::tokens_of(Turn& turn, SourceLine at) {
    if (is_last()) return std::exchange(turn.chosen, {});
    if (turn.wanted.empty()) return {};
    if (is_first())
        turn.arrival->wait(at);
    else
        before_->recv(turn.tokens, kFrom, at).wait(at);
    if (rank_ + 2 < stages_) send_on(turn.tokens, at);
    const HostTensor known = device_.download(turn.tokens, at);
    std::vector<std::int32_t> tokens(turn.wanted.size());
    if (device_.has_numbers())
        std::ranges::copy(known.values<std::int32_t>(), tokens.begin());
    return tokens;
}

/// Computes a pass of the group on this stage. Returns false if other groups have all
/// pages.
bool DecodingRing::compute(Batcher& group, Turn& turn, SourceLine at) {
    const Pass pass = group.next();
    if (pass.ids.empty()) {
        group.take({});
        return false;
    }
    turn = {group.wanted(), {}, {}, {}, true};
    Tensor x;
    if (is_first()) {
        x = stage_.cache.begin(pass, at);
    } else {
        stage_.cache.enter(pass, at);
        x = device_.empty({pass.tokens.rows(), 1, stage_.hidden}, stage_.dtype, at);
        before_->recv(x, kFrom, at).wait(at);
    }
    const Tensor y = stage_.layers.infer(x, at);

    const auto wanted = static_cast<std::int64_t>(turn.wanted.size());
    if (!is_last()) {
        wait_for_sent(at);
        send_on(y, at);
        turn.tokens = device_.empty({wanted}, DType::i32, at);
        if (is_first() && wanted > 0) turn.arrival = back_->recv(turn.tokens, kFrom, at);
        return true;
    }
    turn.chosen = stage_.choose(y, turn.wanted);
    if (is_first() || wanted == 0) return true;
    const Tensor tokens =
        device_.upload(HostTensor::of<std::int32_t>({wanted}, turn.chosen), at);
    wait_for_sent(at);
    sent_.emplace_back(tokens, back_->send(tokens, kTo, at));
    return true;
}

/// Starts to send the tensor, and does not wait.
void DecodingRing::send_on(const Tensor& tensor, SourceLine at) {
    sent_.emplace_back(tensor, after_->send(tensor, kTo, at));
}

void DecodingRing::wait_for_sent(SourceLine at) {
    for (auto& [tensor, work] : sent_)
        work.wait(at);
    sent_.clear();
}

}  // namespace lockstep
