#pragma once

#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "src/nn/sequential.hpp"
#include "src/parallel/sharded_unit.hpp"
#include "src/parallel/train_step.hpp"

namespace lockstep {

struct FullyShardedOptions {
    ShardBy shard_by = ShardBy::rows;
    /// Releases a unit's values after forward, and gathers them again for backward. If
    /// false, saves an all-gather, but needs memory for the values of all units.
    bool reshard_after_forward = true;
    /// While one layer computes, the values of the next `prefetch` layers are gathered.
    int prefetch = 1;
    /// The type in which gradients are summed and kept in shards; by default the
    /// gradients' own type. Use f32 for bf16 gradients of many ranks.
    std::optional<DType> reduce_in{};
    /// Keeps the shards on the host, and with them the optimizer and its state. Values
    /// are copied to the device one layer before they are gathered.
    bool on_host = false;
};

/// ZeRO stage 3: each of n ranks keeps a shard of everything, including parameters. A
/// parameter is whole only around its use (Rajbhandari et al. 2019, 1910.02054,
/// section 5.3; Zhao et al. 2023, PyTorch FSDP, 2304.11277, section 3).
///
///     FullySharded sync(device, replicas, *gpt);
///     AdamW optimizer(sync.shards());
///     train_step(device, *gpt, loss, micro_batches, sync, optimizer);
///
/// Each module with parameters in the Sequential is a unit; a GPT's units are its tables,
/// each block, the last norm and the head. A unit's values are gathered before its
/// forward and before its backward, and released after each. While one unit computes, the
/// next unit's values are gathered. A unit's gradients exist during its backward; they
/// are reduced and scattered while the next unit computes. The last module's values are
/// kept between forward and backward, because backward begins with that module. So a
/// device holds the values of at most 1 + prefetch units, and the gradients of at most
/// two. A parameter of tied modules is held from its first use to its last.
///
/// Sends two all-gathers and a reduce-scatter of S bytes per micro-batch, minus one
/// all-gather of the last unit: 3(n-1)/n S bytes. Data parallelism sends 2(n-1)/n S a
/// step. With bf16 values and gradients, f32 masters and AdamW a device holds 16/n bytes
/// per parameter, plus the gathered units.
///
/// A module may use a parameter of another unit, for example a head that is tied to a
/// table. That unit is then gathered for this module, too. From the second such use on,
/// this gather is prefetched. Wrap a module in Recompute before you shard the model: then
/// its unit is gathered only once for backward.
///
/// `line` need not contain all replicas. Hybrid sharding (2304.11277, section 3.2.2)
/// shards along the line inside a node. For this, declare the model partial along the
/// line between nodes, too: the shards' gradients are summed along that line at the end
/// of the step. A parameter that is a tensor-parallel shard is sharded once more.
///
/// Differs: in the paper all parameters outside blocks are one unit (the root), and its
/// values stay after forward. Each rank must use each unit the same number of times.
class FullySharded : public GradientSync {
  public:
    /// Wraps the model's modules, which may have been made without memory
    /// (ParameterInit::allocate). The model must not be used after this object is
    /// destroyed. Throws UsageError if the parameters are not known to be partial along
    /// `line`, if the parameters of a module have several types, if there are too few
    /// elements to give each rank one, or if shards on the host would also be summed
    /// along another line.
    FullySharded(Device& device, Communicator& line, Sequential& model,
                 const FullyShardedOptions& options = {});
    ~FullySharded() override;

    /// This rank's shards. After finish() their gradients are those of the batch.
    std::vector<Parameter*> shards() const override;

    void begin() override;
    void finish() override;
    /// Throws UsageError if the optimizer has other parameters than the shards.
    void update(Optimizer& optimizer) override;
    void send_values() override;

    /// A unit, and the state of its gradients in the step.
    struct Unit {
        ShardedUnit sharded;
        /// Parameters whose gradients are complete in this pass.
        std::vector<const Parameter*> passed{};
        bool has_terms = false;  ///< the shards' gradients have terms of the step
    };

  private:
    class Layer;
    enum class Direction : std::int8_t { backward = -1, forward = 1 };

    void open(Layer& layer, Direction direction);
    void prefetch(const Layer& layer, Direction direction);
    void close(const std::vector<Unit*>& units, bool keep);
    void reduce(Unit& unit);

    void passed(Parameter& parameter) override;
    void before_use(Parameter& parameter, Use use) override;
    void after_use(Parameter& parameter, Use use) override;
    Unit& unit_of(const Parameter& parameter) { return *unit_of_.at(&parameter); }

    Device& device_;
    Communicator& line_;
    FullyShardedOptions options_;
    std::vector<std::unique_ptr<Unit>> units_;
    std::vector<Layer*> layers_;  ///< in forward's order; the model owns them
    std::unordered_map<const Parameter*, Unit*> unit_of_;
    Layer* current_ = nullptr;  ///< the layer that computes
    SumsInTurn in_turn_;
};

}  // namespace lockstep
