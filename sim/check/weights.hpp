#pragma once

#include <map>

#include "sim/check/row_weights.hpp"
#include "sim/check/tracker.hpp"

namespace lockstep::sim {

class Engine;

/// Follows, from the backward of a loss to the update of a parameter, with which weight
/// each row counts, and finds what is averaged wrongly (F21) and means of unequal means
/// (F28). Whatever is not plainly linear makes a value unknown; so does a product of
/// elements, which may be a mask that leaves rows out.
class WeightWatcher final : public Tracker<Weights> {
  public:
    explicit WeightWatcher(const Engine& engine);

    void executing(int rank, const DeviceOperation& operation) override;
    void collective_begins(const Team& team, const Meeting& meeting) override;
    void message_begins(Posted& send, Posted& recv) override;

  private:
    struct RankLosses {
        std::vector<std::shared_ptr<const LossRows>> losses;  ///< since its last step
        bool stepped = false;                                 ///< since the last of them
    };
    struct GroupSizes {
        std::size_t seen = 0;  ///< communicators
        std::vector<int> sizes;
    };

    /// Of all of a tensor's values together; null is unknown.
    Weights of(int rank, const Tensor& tensor) const;
    Weights made_by(int rank, const DeviceOperation& operation) const;
    void begin_gradient(int rank, const DeviceOperation& operation);
    void scale(int rank, const DeviceOperation& operation);
    bool has_all_losses(int rank, const RowWeights& gradient) const;
    const std::vector<int>& group_sizes(int rank);
    void check_update(int rank, const DeviceOperation& operation);
    Ranges reduced(const Meeting& meeting, const Origin& origin) const;

    const Engine& engine_;
    std::vector<RankLosses> of_step_;            ///< by rank
    std::vector<GroupSizes> groups_;             ///< by rank
    std::map<Weights, std::vector<int>> right_;  ///< with which group sizes
    const Weights zero_ = std::make_shared<const RowWeights>();
};

}  // namespace lockstep::sim
