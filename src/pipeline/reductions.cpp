#include "src/pipeline/reductions.hpp"

#include <fmt/format.h>

#include "src/core/require.hpp"

namespace lockstep {

namespace {

/// A stage's instructions in which gradients that other devices share are
/// neither reduced too early, nor twice, nor not at all.
class ReductionCheck {
  public:
    ReductionCheck(const Schedule& schedule, int stage)
        : schedule_(schedule),
          stage_(stage),
          states_(static_cast<std::size_t>(schedule.chunks)) {}

    /// `updates`: optimizer steps use gradients up.
    void run(bool updates) {
        const int count = static_cast<int>(schedule_.of(stage_).size());
        for (int position = 0; position < count; ++position)
            follow({stage_, position}, updates);
        for (int chunk = 0; chunk < schedule_.chunks; ++chunk)
            require(states_[chunk] != State::partial,
                    [&] { return missing(chunk, "the end"); });
    }

  private:
    enum class State { none, partial, reduced };

    void follow(Place place, bool updates) {
        const Instruction& work = schedule_.at(place);
        State& state = states_[work.chunk];
        const auto refuse = [&](bool wrong, const char* what) {
            require(!wrong, "{}: {}", schedule_.where(place), what);
        };
        switch (work.kind) {
            case InstructionKind::backward:
            case InstructionKind::backward_weight:
                refuse(state == State::reduced,
                       "it adds to gradients that have been reduced (R) "
                       "already");
                state = State::partial;
                return;
            case InstructionKind::reduce_gradients:
                refuse(state == State::reduced,
                       "these gradients have been reduced already");
                state = State::reduced;
                return;
            case InstructionKind::optimizer_step:
                require(state != State::partial, [&] {
                    return missing(work.chunk, schedule_.where(place));
                });
                if (updates) state = State::none;
                return;
            default:
                return;
        }
    }

    std::string missing(int chunk, const std::string& before) const {
        return fmt::format(
            "other devices contribute to the gradients of stage {}, chunk "
            "{}, but schedule '{}' does not reduce them (R) before {}",
            stage_, chunk, schedule_.name, before);
    }

    const Schedule& schedule_;
    int stage_;
    std::vector<State> states_;
};

}  // namespace

void require_reductions(const Schedule& schedule, int stage, bool updates) {
    ReductionCheck(schedule, stage).run(updates);
}

}  // namespace lockstep
