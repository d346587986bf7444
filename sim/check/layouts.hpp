#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "sim/check/origin.hpp"
#include "sim/check/shadow.hpp"

namespace lockstep::sim {

/// How the values of a tensor are distributed over the ranks of a team.
struct Layout {
    enum class Kind : std::uint8_t {
        unknown,     ///< nothing is known
        constant,    ///< filled with one number
        replicated,  ///< equal on all ranks whose `identity` is equal
        sharded,     ///< one shard of a whole
        varying,     ///< made of shards
        mixed,       ///< a reduced sum to which something unreduced was added
        twice,       ///< summed over the team a second time
        drifted      ///< was replicated; since then each rank has changed its copy
    };

    Kind kind = Kind::unknown;
    /// Made by a sum or mean over the team, or only from such values.
    bool reduced = false;
    int index = -1;              ///< the member that a shard belongs to
    std::uint64_t identity = 0;  ///< equal if values were made in the same way
    double multiplier = 1;       ///< the product of all scalings since `origin`
    Origin origin;               ///< the collective that gave the values this layout
    Origin second;               ///< if twice: the second reduction
    SourceLine changed;  ///< line of the addition (mixed), update (drifted), scaling
    std::shared_ptr<const Layout> before;  ///< if twice: before the second reduction

    const Team* team() const { return origin ? origin->team : nullptr; }
};

constexpr const char* name_of(Layout::Kind kind) {
    constexpr const char* kNames[] = {"unknown", "constant", "replicated", "sharded",
                                      "varying", "mixed",    "twice",      "drifted"};
    return kNames[static_cast<int>(kind)];
}

/// Returns whether the values are a sum or mean over a team and equal on all its ranks.
inline bool is_reduced(const Layout& layout) {
    return layout.kind == Layout::Kind::replicated && layout.reduced;
}

inline bool is_one(double factor) {
    return std::abs(factor - 1) < 1e-9;
}

using LayoutRanges = Shadow<Layout>::Ranges;

/// Updates of a parameter that was the same on all ranks of a team. Each rank has used
/// its own gradient.
struct Drift {
    std::vector<int> ranks;
    Origin parameter;
    Origin gradient;
    SourceLine at;
    const char* operation;
};

class Engine;

/// Follows how values are distributed over ranks, like the tags of spmd_types and JAX's
/// varying manual axes. It finds values that are reduced twice (F22), accumulated onto a
/// reduced sum (F27), or not reduced before they are used (F23).
///
/// Uploaded and random values have the layout `unknown`. So do values made from them,
/// unless a shard is among the operands. A second sum is a mistake only when something
/// reads it: if it is first divided by the number of ranks, it is a mean, which does no
/// harm.
class Layouts final : public Tracker<Layout> {
  public:
    explicit Layouts(const Engine& engine);

    /// Returns the layout of a rank's tensor, if all of it has one; else unknown.
    Layout layout_of(int rank, const Tensor& tensor) const;

    /// If the tensor contains this rank's shard of a sum over the team, returns that sum;
    /// else null.
    Origin dealt_within(int rank, const Tensor& tensor, const Team& team) const;

    void executing(int rank, const DeviceOperation& operation) override;
    void collective_begins(const Team& team, const Meeting& meeting) override;
    void message_begins(Posted& send, Posted& recv) override;
    void run_ended() override;

  private:
    void check_use(int rank, const DeviceOperation& operation) const;
    void scale(int rank, const DeviceOperation& operation);
    void update(int rank, const DeviceOperation& operation);
    Layout result_of(int rank, const DeviceOperation& operation) const;

    template <typename Fits>
    const Layout* shards_of_one_sum(const Team& team, const Meeting& meeting,
                                    Fits fits) const;
    void check_shards(const Team& team, const Meeting& meeting,
                      const Origin& origin) const;
    Layout reduction_of(const Team& team, const Meeting& meeting, Layout result) const;
    Layout gathering_of(const Team& team, const Meeting& meeting, Layout result) const;
    void forget_drifts(const Meeting& meeting);

    const Engine& engine_;
    std::map<std::uint64_t, Drift> drifts_;             ///< by the parameter's identity
    std::vector<std::vector<const Team*>> steps_with_;  ///< by rank: teams over which
                                                        ///< its gradients were reduced
};

}  // namespace lockstep::sim
