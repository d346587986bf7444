#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <span>

#include "src/comm/mesh.hpp"
#include "src/comm/rank.hpp"
#include "src/nn/losses.hpp"
#include "src/nn/module.hpp"
#include "src/nn/saved_on_host.hpp"
#include "src/parallel/train_step.hpp"
#include "src/pipeline/messages.hpp"
#include "src/pipeline/weight_versions.hpp"
#include "src/pipeline/work_index.hpp"

namespace lockstep {

/// A schedule made ready to be executed: valid, and with its messages. Made
/// once, and shared by all stages that run in this process.
class PipelinePlan {
  public:
    /// Adds messages if there are none, planned for forwards and halves of backward that
    /// all take the same time. Throws UsageError if the schedule has a problem.
    explicit PipelinePlan(const Schedule& schedule);
    /// As it is, though it may deadlock, or worse: to see what becomes of it. Throws
    /// UsageError only where a number is out of range, or there are no messages.
    static PipelinePlan unchecked(Schedule schedule);

    PipelinePlan(const PipelinePlan&) = delete;
    PipelinePlan& operator=(const PipelinePlan&) = delete;

    const Schedule& schedule() const { return schedule_; }
    const WorkIndex& index() const { return index_; }
    const WeightVersions& versions() const { return versions_; }

  private:
    struct AsItIs {};
    PipelinePlan(AsItIs, Schedule schedule);

    Schedule schedule_;
    WorkIndex index_;
    WeightVersions versions_;
};

/// A stage's messages under way: over one communicator, or over one for each direction
/// between two stages, as the schedule has its queues. A communicator's operations end in
/// the order in which they were started: so what was sent before something that has been
/// received is gone, and its tensor need not be kept.
class StageMail {
  private:
    struct Queue;

  public:
    /// Every rank of the line makes one, with the same plan.
    StageMail(Communicator& line, const PipelinePlan& plan);

    /// Something that was asked for.
    struct Arrival {
        Tensor tensor;
        std::optional<Work> work;
        Queue* queue = nullptr;
        int number = 0;
    };
    struct Message {
        int peer = 0;  ///< stage at the other end
        Tensor tensor;
        Arrival* arrival = nullptr;  ///< to be filled in; null if the message is sent
        SourceLine at;
    };

    /// Starts the messages together. What is sent is kept until it is gone.
    void post(const std::vector<Message>& messages);
    /// The device goes on when it is there.
    Tensor wait(Arrival& arrival);
    /// The device goes on when all is gone.
    void finish();

  private:
    struct Departure {
        Tensor tensor;
        Work work;
        int number;
    };
    struct Queue {
        Communicator* line = nullptr;
        int started = 0;
        std::deque<Departure> departures;
    };

    Queue& queue_of(const Message& message);
    /// Returns the peer's rank in the queue's communicator.
    int rank_of(const Message& message) const;

    Communicator& line_;
    std::vector<std::unique_ptr<Communicator>> own_lines_;
    /// By stage that sends and stage that receives; one alone is by {-1, -1}.
    std::map<std::pair<int, int>, Queue> queues_;
};

/// Weights of one stage's chunks that optimizer steps have replaced and that its schedule
/// still reads, and what it takes to estimate others. Nothing is copied if there are
/// none.
class WeightStash {
  public:
    WeightStash(Device& device, const PipelinePlan& plan, int stage);

    /// How much of the average of steps is kept at each step; see Pipeline::estimate_by.
    void set_decay(double decay) { decay_ = decay; }
    /// Before an optimizer step: if the weights are read again later, a
    /// copy of them stays here, and the step changes the weights.
    void before_update(Place place, Module& chunk);
    /// Behind it: takes the step into the average of steps, if the chunk has estimates.
    void after_update(Place place, Module& chunk);
    // lesson: weights-that-are-read
    /// Runs `work` of the instruction with the weights that it reads.
    template <typename Work>
    auto with_weights(Place place, Module& chunk, Work&& work) {
        Values estimated;
        Values* read = values_of(place, chunk, estimated);
        exchange(read, chunk);
        auto result = work();
        exchange(read, chunk);
        drop(place);
        return result;
    }
    // lesson: end

  private:
    using Values = std::vector<Tensor>;
    /// Of a chunk that has estimates.
    struct Trend {
        Values step;    ///< the average of steps; none before the first
        Values before;  ///< the weights before the step at hand
    };

    /// The weights that the instruction reads, if they are not the newest: old ones, or
    /// an estimate, which is made in `estimated`. Else null.
    Values* values_of(Place place, Module& chunk, Values& estimated);
    Values copies_of(Module& chunk) const;
    /// The chunk's weights and these change places.
    static void exchange(Values* values, Module& chunk);
    /// Forgets what nobody reads after the instruction.
    void drop(Place place);
    const Instruction& at(Place place) const { return plan_.schedule().at(place); }
    std::pair<int, int> key(Place place) const {
        return {plan_.schedule().at(place).chunk, plan_.versions().read(place)};
    }

    Device& device_;
    const PipelinePlan& plan_;
    /// By chunk and version: the last position that reads it.
    std::map<std::pair<int, int>, int> last_read_;
    std::map<std::pair<int, int>, Values> kept_;
    std::map<int, Trend> trends_;  ///< by chunk, of those that have estimates
    double decay_ = 0;
};

/// The tensor that goes from one part of a model to the next. Every stage
/// knows its shape for a micro-batch.
struct PartBoundary {
    std::function<Shape(const MicroBatch&)> shape;
    DType dtype = DType::f32;
};

/// One device's place in a pipeline: the stage `line.rank()` of a schedule,
/// with its chunks of the model. Executes any valid schedule; run_plainly()
/// (plain_pipeline.hpp) executes simple ones, and is read first.
///
/// Messages go over `line` in the schedule's order and run beside what the device
/// computes; it waits for what it needs, when it needs it. Each boundary between stages
/// carries two tensors a micro-batch, an activation forward and its gradient back. For
/// each micro-batch and chunk a stage keeps what forward saved until backward has used
/// it; what it sent, until the next message that it waits for has come; and the weights
/// of older versions that are still to be read (WeightStash).
class Pipeline {
  public:
    /// `chunks[c]` computes part plan.schedule().part(stage, c); that of
    /// part 0 is told to give no gradient of its input. Everything given
    /// must stay. Throws UsageError if line or chunks are not as many as
    /// the schedule's stages and chunks.
    Pipeline(Device& device, Communicator& line, const PipelinePlan& plan,
             std::vector<Module*> chunks, PartBoundary boundary,
             SourceLine at = SourceLine::here());

    /// Gradients will be summed over `replicas`, which hold the same chunks and have
    /// micro-batches of their own: data parallelism. Every rank of them calls it.
    void reduce_over(Communicator& replicas, SourceLine at = SourceLine::here());
    /// Does so for ranks along those axes, of which some may share parameters out.
    void reduce_over(Mesh& mesh, const std::vector<std::string>& axes,
                     SourceLine at = SourceLine::here());
    /// Says how gradients become whole at R, and who updates what at U: syncs[c] for
    /// chunk c. Without it R adds up each gradient along the axes where it is partial,
    /// after the chunk's last backward. Throws UsageError if there is not one for each
    /// chunk.
    void sync_by(std::vector<GradientSync*> syncs, SourceLine at = SourceLine::here());
    /// The parameter is another stage's too, whose rank calls the same: its gradients
    /// will be summed over `sharers`, so that all step alike. For a table at both ends,
    /// and for parts that two stages hold. The sharers' schedules must reduce the chunk
    /// as often, and in one order with their messages and with other chunks that they
    /// tie. Throws UsageError if no chunk has the parameter.
    void tie(Parameter& parameter, Communicator& sharers,
             SourceLine at = SourceLine::here());
    /// Ties all parameters of parts that another stage holds, too, as pipelines from both
    /// ends have them. Every rank of the line calls it.
    void tie_copies();
    /// Sets what optimizer steps do: optimizers[c] updates chunk c. Without it they do
    /// nothing, and gradients stay as they are. Throws UsageError if there is not one for
    /// each chunk, or the schedule has no step (U) of one.
    void update_by(std::vector<Optimizer*> optimizers,
                   SourceLine at = SourceLine::here());

    /// Says how weights are estimated ("@~"): as the newest, and so many times the
    /// average of past steps as the version that is meant lies ahead or behind. The
    /// average keeps `decay`, from 0 to less than 1, of itself at each step. 0, as
    /// without this, is the last step alone: with momentum what SpecTrain predicts by
    /// (Chen et al. 2018, 1809.02839, section 4). PipeMare estimates old weights with a
    /// decay of D^(1/(versions between)), D about 0.1 (Yang et al. 2021, 1910.05124,
    /// section 3.2).
    void estimate_by(double decay, SourceLine at = SourceLine::here());

    /// What a forward has saved waits on the host for its backward, unless that is what
    /// the stage computes next: it goes while the next computation runs, and comes back
    /// while the one before its backward does. So what forwards have saved takes the room
    /// of three micro-batches at most, whatever the schedule (Wan et al. 2025,
    /// PipeOffload, 2503.01328); between the halves of a backward, what the second needs
    /// stays on the device. All that SavedOnHost says of tensors holds; the device needs
    /// a host.
    void offload_activations(std::int64_t least_bytes = 1024);

    /// Follows the schedule once. The stage that holds the model's first part reads the
    /// micro-batches' inputs, that of the last part their targets, all their weights (B_i
    /// / B for the mean over all samples of all replicas). Leaves the sums of gradients
    /// since the last optimizer step in the chunks' parameters. Gives the sum of weight
    /// times loss, (1), where the last part is; elsewhere what layers of this stage have
    /// added to the loss, or none. Throws UsageError for another number of micro-batches,
    /// where shared gradients are not reduced once and in time, and where a part that
    /// other stages hold too has a parameter that is not tied.
    Tensor run(const Loss& loss, std::span<const MicroBatch> micro_batches,
               SourceLine at = SourceLine::here());

    /// Has the loss of each micro-batch kept, too: losses() gives weight times loss, (1)
    /// each, of the last run; none where a stage has nothing of it.
    void keep_losses() { keeps_losses_ = true; }
    const std::vector<Tensor>& losses() const { return losses_; }
    /// Calls `hook` behind each update of a chunk with the chunk and the version of its
    /// weights that is now the newest, counted from the run's beginning.
    void after_update(std::function<void(int chunk, int version)> hook) {
        after_update_ = std::move(hook);
    }

    /// Follows the schedule's forwards and their messages alone, and keeps nothing for a
    /// backward. Gives what the last part makes of each micro-batch, in order, on the
    /// stage that holds it, and none of those that another stage makes; nothing
    /// elsewhere.
    std::vector<Tensor> infer(std::span<const MicroBatch> micro_batches,
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

    void begin_run(const Loss* loss, std::span<const MicroBatch> micro_batches,
                   SourceLine at);
    void execute(Place place);
    void post(Positions together);
    void forward(Place place);
    void backward(Place place);
    void backward_input(Place place);
    void backward_weight(Place place);
    void send_to_host(Place place);
    void fetch_from_host(Place place);
    Place next_computation(Place place) const;
    StageMail::Message message(Place place);
    StageMail::Message sent(Place place, Tensor& tensor,
                            SourceLine at = SourceLine::here());
    StageMail::Message received(Place place, StageMail::Arrival& arrival,
                                SourceLine at = SourceLine::here());
    SourceLine line_of(Place place, SourceLine otherwise) const;
    int chunk_of(const Parameter& parameter) const;
    void require_shared_gradients() const;
    void require_tied(int chunk) const;
    void reduce_gradients(Place place);
    void update(Place place);

    const Instruction& at(Place place) const { return plan_.schedule().at(place); }
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
    Flight& flight(Place place) { return flight(at(place).chunk, at(place).micro_batch); }
    /// Returns the micro-batch's flight in the part before or after, if
    /// that is on this device.
    Flight* neighbour(Place place, int step);
    void require_batches(std::span<const MicroBatch> micro_batches, SourceLine at) const;
    void finish_forward(Place place, const Tensor& y);
    void add_loss(Place place, const Tensor& y);
    void add_to_total(Place place, const Tensor& loss);
    Tensor arriving(Tensor& local, StageMail::Arrival& arrival);
    void finish_backward(Place place, const Tensor& dx);
    void begin_gradients(Place place);
    void clear_used_up(int chunk, Place place);
    int passes_left(int chunk, Place place) const;

    Device& device_;
    Communicator& line_;
    const PipelinePlan& plan_;
    std::vector<Module*> chunks_;
    PartBoundary boundary_;
    std::vector<Parameter*> ties_;
    std::vector<std::unique_ptr<Communicator>> holders_;  ///< of parts that are tied
    std::vector<GradientSync*> syncs_;
    std::vector<Optimizer*> optimizers_;
    bool keeps_losses_ = false;
    std::function<void(int chunk, int version)> after_update_;
    std::optional<SavedOnHost> on_host_;

    // These belong to the run in progress.
    SourceLine at_;
    const Loss* loss_ = nullptr;  ///< null if it runs forwards alone
    std::span<const MicroBatch> micro_batches_;
    Tensor total_loss_;
    std::vector<Tensor> losses_;   ///< by micro-batch, if they are kept
    std::vector<Tensor> results_;  ///< of forwards alone
    std::vector<Flight> flights_;
    StageMail mail_;
    WeightStash stash_;
    std::vector<char> used_up_;  ///< by chunk: gradients of an earlier step
};

}  // namespace lockstep
