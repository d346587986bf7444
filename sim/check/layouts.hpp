#pragma once

#include <map>

#include "sim/check/layout.hpp"
#include "sim/check/tracker.hpp"

namespace lockstep::sim {

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

    /// Of a rank's tensor, where all of it has one; else unknown.
    Layout of(int rank, const Tensor& tensor) const;

    void executing(int rank, const DeviceOperation& operation) override;
    void collective_begins(const Team& team, const Meeting& meeting) override;
    void message_begins(Posted& send, Posted& recv) override;
    void run_ended() override;

  private:
    void check_use(int rank, const DeviceOperation& operation) const;
    void scale(int rank, const DeviceOperation& operation);
    void update(int rank, const DeviceOperation& operation);
    Layout result_of(int rank, const DeviceOperation& operation) const;

    void check_shards(const Team& team, const Meeting& meeting,
                      const Origin& origin) const;
    Layout reduction_of(const Team& team, const Meeting& meeting,
                        const Origin& origin) const;
    Layout gathering_of(const Meeting& meeting, const Origin& origin) const;
    void forget_drifts(const Meeting& meeting);

    const Engine& engine_;
    std::map<std::uint64_t, Drift> drifts_;             ///< by the parameter's identity
    std::vector<std::vector<const Team*>> steps_with_;  ///< by rank: teams over which a
                                                        ///< gradient that it used was
                                                        ///< reduced
};

}  // namespace lockstep::sim
