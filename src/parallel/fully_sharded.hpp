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
    ShardBy by = ShardBy::rows;
    /// A unit's values go after forward and are gathered again for backward. If they are
    /// kept, an all-gather is saved, and they need the room of all of them.
    bool reshard_after_forward = true;
    /// So many layers ahead of the one that computes values are gathered.
    int prefetch = 1;
    /// The type in which gradients are added up, and in which shards have them; their own
    /// by default. For gradients in bf16 of many ranks, f32.
    std::optional<DType> reduce_in{};
    /// Shards live on the host, and so does the optimizer that is made of them: their
    /// values come from there for each use, one layer before they are gathered.
    bool on_host = false;
};

/// ZeRO stage 3: each of n ranks keeps a shard of everything, parameters, too, and they
/// are whole only around their use (Rajbhandari et al. 2019, 1910.02054, section 5.3;
/// Zhao et al. 2023, PyTorch FSDP, 2304.11277, section 3).
///
///     FullySharded sync(device, replicas, *gpt);
///     AdamW optimizer(sync.shards());
///     train_step(device, *gpt, loss, micro_batches, sync, optimizer);
///
/// Each module of a Sequential that has parameters is a unit: of a GPT, its tables, each
/// block, the last norm and the head. A unit's values are gathered before its forward and
/// its backward, those of the next one while this one computes, and let go of after. Its
/// gradients are there during its backward; they are reduced and scattered while the next
/// unit computes. The last module's values are kept between forward and backward, which
/// begins with it. So at most the values of 1 + prefetch units are there, and the
/// gradients of two; and what tied modules share, from the first use to the last.
///
/// Two all-gathers and a reduce-scatter of S a micro-batch, less an all-gather of the
/// last unit: 3(n-1)/n S bytes, where data parallelism sends 2(n-1)/n S a step. With bf16
/// values and gradients, f32 masters and AdamW a device holds 16/n bytes a parameter, and
/// the units that are whole.
///
/// A module may use a parameter of another unit, as a head does that is tied to a table:
/// that unit is gathered for it, too. From the second time on that is known, and done in
/// time. Wrap a module to be recomputed before (Recompute): then its unit is gathered
/// once for backward.
///
/// Ranks need not be all replicas. Hybrid sharding (2304.11277, section 3.2.2) shards
/// along the line inside a node; the model is declared partial along the line between
/// nodes, too, and shards are added up along that at the end of the step. A parameter
/// that is a tensor-parallel shard has a shard of that.
///
/// Differs: in the paper all that is in no block is one unit, the root, whose values stay
/// after forward. Each rank must use each unit as often as the others do.
class FullySharded : public GradientSync {
  public:
    /// Takes the model's modules, which may have been made without memory
    /// (ParameterInit::allocate), and puts units in their places: the model can be used
    /// no longer than this. Throws UsageError if the parameters are not known to be
    /// partial along `line`, if those of a module have several types, if there are too
    /// few to give each rank one element, or if shards on the host are to be added up
    /// along another line, too.
    FullySharded(Device& device, Communicator& line, Sequential& model,
                 const FullyShardedOptions& options = {});
    ~FullySharded() override;

    /// After finish() their gradients are the batch's.
    std::vector<Parameter*> shards() const override;

    void begin() override;
    void finish() override;
    /// Throws UsageError if the optimizer has other parameters than the shards.
    void update(Optimizer& optimizer) override;
    void send_values() override;

    /// A unit, and how far its gradients are in the step.
    struct Unit {
        ShardedUnit sharded;
        /// Whose gradients a pass has completed.
        std::vector<const Parameter*> passed{};
        bool has_terms = false;  ///< the shards hold some of the step
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
    std::vector<Layer*> layers_;  ///< in forward's order; the model has them
    std::unordered_map<const Parameter*, Unit*> unit_of_;
    Layer* current_ = nullptr;  ///< that computes
    SumsInTurn in_turn_;
};

}  // namespace lockstep
