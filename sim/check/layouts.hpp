#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "sim/check/origin.hpp"
#include "sim/check/shadow.hpp"

namespace lockstep::sim {

/// Says how the values of a tensor lie over the ranks of a team.
struct Layout {
    enum class Kind : std::uint8_t {
        unknown,     ///< nothing is said
        constant,    ///< filled with one number
        replicated,  ///< the same on all ranks that have it with the same identity
        sharded,     ///< one part of a whole that was dealt out
        varying,     ///< made of shards
        mixed,       ///< reduced, and a contribution that is not was added
        twice,       ///< summed over the team a second time
        drifted      ///< was replicated; each rank has changed its own since
    };

    Kind kind = Kind::unknown;
    /// Made by a sum or mean over the team, or of nothing else but that.
    bool reduced = false;
    int index = -1;              ///< of a shard: its member
    std::uint64_t identity = 0;  ///< equal if values were made in the same way
    double multiplier = 1;       ///< what they were scaled by since
    Origin origin;               ///< what gave them this layout
    Origin second;               ///< twice: the reduction too many
    SourceLine changed;  ///< mixed: what was added; drifted: the update; else the scaling
    std::shared_ptr<const Layout> before;  ///< twice: what was reduced again

    const Team* team() const { return origin ? origin->team : nullptr; }
};

constexpr const char* name_of(Layout::Kind kind) {
    constexpr const char* kNames[] = {"unknown", "constant", "replicated", "sharded",
                                      "varying", "mixed",    "twice",      "drifted"};
    return kNames[static_cast<int>(kind)];
}

/// Made by a sum or mean over a team, and the same on all of its ranks.
inline bool is_reduced(const Layout& layout) {
    return layout.kind == Layout::Kind::replicated && layout.reduced;
}

inline bool is_one(double factor) {
    return std::abs(factor - 1) < 1e-9;
}

using LayoutRanges = Shadow<Layout>::Ranges;

/// Updates of a parameter that all ranks of a team had alike, each with its own gradient.
struct Drift {
    std::vector<int> ranks;
    Origin parameter;
    Origin gradient;
    SourceLine at;
    const char* operation;
};

class Engine;

/// Follows how values lie over ranks, after the tags of spmd_types and JAX's varying
/// manual axes, and finds what is reduced twice (F22), accumulated onto what is reduced
/// (F27), or not reduced before it is used (F23).
///
/// Values of the program's own, uploaded or random, are unknown, and so is what is made
/// of them with anything but shards. A sum too many is a mistake only when something
/// reads it: one that is divided by the number of ranks at once is a mean, which does no
/// harm.
class Layouts final : public Tracker<Layout> {
  public:
    explicit Layouts(const Engine& engine);

    /// Returns the layout of a rank's tensor, if all of it has one; else unknown.
    Layout of(int rank, const Tensor& tensor) const;

    /// Returns the sum over the team of which a rank's tensor holds its share besides
    /// other values; null if there is none.
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
    std::vector<std::vector<const Team*>> steps_with_;  ///< by rank: teams over which a
                                                        ///< gradient that it used was
                                                        ///< reduced
};

}  // namespace lockstep::sim
