#pragma once

#include <functional>
#include <memory>
#include <span>

#include "src/comm/rank.hpp"
#include "src/nn/losses.hpp"
#include "src/nn/module.hpp"
#include "src/nn/optimizer.hpp"
#include "src/parallel/gradient_accumulation.hpp"
#include "src/pipeline/mail.hpp"
#include "src/pipeline/plan.hpp"
#include "src/pipeline/weight_stash.hpp"

namespace lockstep {

/// What goes from one part of a model to the next: its shape for a
/// micro-batch, of which every stage knows the shapes.
struct PartBoundary {
    std::function<Shape(const MicroBatch&)> shape;
    DType dtype = DType::f32;
};

/// One device's place in a pipeline: the stage `line.rank()` of a schedule,
/// with its chunks of the model. Executes any valid schedule.
///
/// Messages go over `line` in the schedule's order and run beside what the
/// device computes; it waits for what it needs, when it needs it. Each
/// boundary between stages carries two tensors a micro-batch, an activation
/// forward and its gradient back. For each micro-batch and chunk a stage
/// keeps what forward saved until backward has used it; what it sent, until
/// the next message that it waits for has come; and the weights of older
/// versions that are still to be read (src/pipeline/weight_stash.hpp).
class Pipeline {
  public:
    /// `chunks[c]` computes part plan.schedule().part(stage, c); that of
    /// part 0 is told to give no gradient of its input. Everything given
    /// must stay. Throws UsageError where line or chunks are not as many as
    /// the schedule's stages and chunks.
    Pipeline(Device& device, Communicator& line, const PipelinePlan& plan,
             std::vector<Module*> chunks, PartBoundary boundary,
             SourceLine at = SourceLine::here());

    /// Gradients will be summed over `replicas`, which hold the same chunks
    /// and have micro-batches of their own: data parallelism. Every rank of
    /// them calls it.
    void reduce_over(Communicator& replicas);
    /// The parameter is another stage's too, whose rank calls the same: its
    /// gradients will be summed over `sharers`, so that all step alike. For
    /// a table at both ends, and for parts that two stages hold. The
    /// sharers' schedules must reduce the chunk as often, and in one order
    /// with their messages and with other chunks that they tie, as those do
    /// that reduce at their end. Throws UsageError where no chunk has the
    /// parameter.
    void tie(Parameter& parameter, Communicator& sharers);
    /// What optimizer steps do: optimizers[c] updates chunk c. Without it
    /// they do nothing, and gradients stay as they are. Throws UsageError
    /// where there is not one for each chunk, or the schedule has no step
    /// (U) of one.
    void update_by(std::vector<Optimizer*> optimizers,
                   SourceLine at = SourceLine::here());

    /// Follows the schedule once. The stage that holds the model's first
    /// part reads the micro-batches' inputs, that of the last part their
    /// targets and weights (B_i / B for the mean over all samples of all
    /// replicas). Leaves the sums of gradients since the last optimizer
    /// step in the chunks' parameters. Gives the sum of weight times loss,
    /// (1), where the last part is; elsewhere none. Throws UsageError for
    /// another number of micro-batches, where shared gradients are not
    /// reduced once and in time (src/pipeline/reductions.hpp), and where a
    /// part that other stages hold too has a parameter that is not tied.
    Tensor run(const Loss& loss, std::span<const MicroBatch> micro_batches,
               SourceLine at = SourceLine::here());

  private:
    /// One micro-batch in one chunk, between its forward and its backward.
    struct Flight {
        Saved saved;
        Tensor x;   ///< into the chunk, from this device
        Tensor y;   ///< out of it, until it is sent
        Tensor dy;  ///< gradient of y
        Tensor dx;  ///< gradient of x, until it is sent
        StageMail::Arrival x_arrives;
        StageMail::Arrival dy_arrives;
    };

    void execute(Place place);
    void forward(Place place);
    void backward(Place place);
    void backward_input(Place place);
    void backward_weight(Place place);
    void send(Place place, Tensor& tensor,
              SourceLine at = SourceLine::here());
    void receive(Place place, StageMail::Arrival& arrival,
                 SourceLine at = SourceLine::here());
    SourceLine line_of(Place place, SourceLine otherwise) const;
    int chunk_of(const Parameter& parameter) const;
    void require_shared_gradients() const;
    void require_tied(int chunk) const;
    void reduce_gradients(int chunk);
    void update(Place place);

    const Instruction& at(Place place) const {
        return plan_.schedule().at(place);
    }
    int part(Place place) const { return plan_.schedule().part(place); }
    bool is_first(Place place) const { return part(place) == 0; }
    bool is_last(Place place) const {
        return part(place) == plan_.schedule().last_part();
    }
    Module& chunk(Place place) { return *chunks_[at(place).chunk]; }
    const MicroBatch& micro_batch(Place place) const {
        return micro_batches_[at(place).micro_batch];
    }
    Flight& flight(int chunk, int micro_batch);
    Flight& flight(Place place) {
        return flight(at(place).chunk, at(place).micro_batch);
    }
    /// Of the same micro-batch in the part before or after, where it is on
    /// this device.
    Flight* neighbour(Place place, int step);
    void require_batches(std::span<const MicroBatch> micro_batches,
                         SourceLine at) const;
    void finish_forward(Place place, const Tensor& y);
    void add_loss(Place place, const Tensor& y);
    Tensor arriving(Tensor& local, StageMail::Arrival& arrival);
    void finish_backward(Place place, const Tensor& dx);
    void begin_gradients();
    void clear_used_up(std::size_t chunk);

    Device& device_;
    Communicator& line_;
    const PipelinePlan& plan_;
    std::vector<Module*> chunks_;
    PartBoundary boundary_;
    Communicator* replicas_ = nullptr;
    std::vector<std::pair<Parameter*, Communicator*>> ties_;
    std::vector<Optimizer*> optimizers_;

    // Of the run in progress.
    SourceLine at_;
    const Loss* loss_ = nullptr;
    std::span<const MicroBatch> micro_batches_;
    Tensor total_loss_;
    std::vector<Flight> flights_;
    StageMail mail_;
    WeightStash stash_;
    std::vector<char> used_up_;  ///< by chunk: gradients of an earlier step
};

}  // namespace lockstep
