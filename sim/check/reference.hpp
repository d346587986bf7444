#pragma once

#include <map>

#include "sim/check/origin.hpp"
#include "sim/check/watcher.hpp"
#include "src/core/host_tensor.hpp"

namespace lockstep::sim {

class Engine;
struct ClusterOptions;

/// What a run kept, by name.
using KeptTensors = std::map<std::string, HostTensor>;

/// What the reference keeps, run on one virtual device of the same kind.
KeptTensors run_reference(const ClusterOptions& options);

/// Compares what ranks have kept, once all have ended, with what one device kept under
/// the same names, and tells from the difference what it can: one factor of a group's
/// size is an average taken wrongly (F21), one of the number of micro-batches or steps
/// gradients that were accumulated wrongly (F27), and another weight for each row, where
/// ranks had different numbers of rows, a mean of unequal means (F28).
///
/// Tensors of other shapes, and other than f32 and f64, are not compared. The difference
/// may be that of sums in another order; NaN never passes.
class ReferenceWatcher final : public Watcher {
  public:
    ReferenceWatcher(const Engine& engine, KeptTensors expected);

    void executing(int rank, const DeviceOperation& operation) override;
    void collective_begins(const Team& team, const Meeting& meeting) override;
    void run_ended() override;

  private:
    /// What a rank has done.
    struct Work {
        std::int64_t rows = 0;  ///< of the losses since its last update
        std::int64_t rows_a_step = 0;
        int losses = 0;  ///< since its last update
        int losses_a_step = 0;
        bool uneven = false;  ///< losses of one step had different numbers of rows
        std::int64_t rows_before = 0;
        int steps = 0;
        const char* loss = nullptr;
        SourceLine loss_at;
    };
    struct Difference {
        std::string name;
        std::int64_t at = -1;  ///< where it is largest
        double expected = 0;
        double got = 0;
        double relative = 0;  ///< to the largest value
        double factor = 0;    ///< of all elements; 0 where they have none in common
        bool is_nan = false;
    };

    static bool differs(const HostTensor& expected, const HostTensor& got,
                        Difference& difference);
    Diagnosis explain(const Difference& difference, const std::vector<int>& ranks) const;
    std::string fault_of(const Difference& difference, std::string& reason,
                         std::string& cure) const;
    bool is_group_size(double n) const;

    const Engine& engine_;
    KeptTensors expected_;
    std::vector<Work> work_;
    Origin reduction_;  ///< the last sum or mean of more than one number
};

}  // namespace lockstep::sim
