#pragma once

#include <set>
#include <vector>

#include "sim/check/rollcall.hpp"
#include "sim/check/shadow.hpp"
#include "sim/check/watcher.hpp"

namespace lockstep::sim {

class Engine;
class Layouts;

/// F29: random numbers that ranks share and should not, or should share and do not.
///
/// Looks at masks: what is drawn in a forward phase and multiplies something there.
/// Activations that are replicas, since all ranks have them from one all-reduce or
/// all-gather, need one mask on all of these ranks. Replicas of a model whose gradients
/// are summed need different ones; replicas are told from parts of one model by
/// exchanging nothing but parameters in forward. Where replicas of single parameters are
/// declared over a team, sums of other things than gradients say nothing: parts of one
/// model may have left out what they should exchange. A mask is known by its stream and
/// offset; one that the program uploads is not known.
class StreamWatcher final : public Watcher {
  public:
    StreamWatcher(const Engine& engine, const Layouts& layouts);

    void declared(const Team& team, int member, const Tensor& tensor,
                  const std::string& name, SourceLine at) override;
    void executing(int rank, const DeviceOperation& operation) override;
    void copied(int rank, CopyDirection direction, const Tensor& tensor,
                SourceLine at) override;
    void launched(Batch& batch) override;
    void freed(int rank, const Storage& storage) noexcept override;
    void quiet() override;
    void collective_begins(const Team& team, const Meeting& meeting) override;
    void run_ended() override { quiet(); }

  private:
    struct Draw {
        const char* name = "";
        RandomStream stream;
        std::int64_t offset = 0;
        std::int64_t count = 0;
        std::int64_t pitch = 0;    ///< of rows with gaps between them
        std::int64_t columns = 0;  ///< of these
        SourceLine at;

        bool same_numbers(const Draw& other) const;
        std::uint64_t hash() const;
        std::string text() const;
    };
    struct Use {
        Draw draw;
        SourceLine at;
    };
    struct RankDraws {
        Shadow<Draw> drawn;
        std::vector<Use> uses;               ///< since the last update
        std::vector<const Team*> exchanged;  ///< with whom, in forward, since then
    };

    RankDraws& of(int rank) { return ranks_[rank]; }
    bool is_in_forward(int rank) const;
    void multiplied(int rank, const DeviceOperation& operation);
    bool are_replicas(const Team& team) const;
    bool sums_gradients(const Team& team, const Meeting& meeting) const;
    Diagnosis explain_shared(const Team& team, const Meeting& meeting) const;

    const Engine& engine_;
    const Layouts& layouts_;
    std::vector<RankDraws> ranks_;
    std::set<const Team*> declared_;  ///< with declared replicas
    Rollcall rollcall_;
    bool noted_ = false;
};

}  // namespace lockstep::sim
