#pragma once

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
    /// Of all of a tensor's values together; null is unknown.
    Weights of(int rank, const Tensor& tensor) const;
    Weights made_by(int rank, const DeviceOperation& operation) const;
    void begin_gradient(int rank, const DeviceOperation& operation);
    void scale(int rank, const DeviceOperation& operation);
    void check_update(int rank, const DeviceOperation& operation) const;
    Ranges reduced(const Meeting& meeting, const Origin& origin) const;

    const Engine& engine_;
    const Weights zero_ = std::make_shared<const RowWeights>();
};

}  // namespace lockstep::sim
