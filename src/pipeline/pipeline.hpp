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

/// A schedule that is ready to run: valid, and with its messages. It is made once and
/// shared by all stages in this process.
class PipelinePlan {
  public:
    /// Adds messages if there are none. Their order is planned as if forwards and halves
    /// of backwards took the same time. Throws UsageError if the schedule has a problem.
    explicit PipelinePlan(const Schedule& schedule);
    /// Uses the schedule as it is, even if it deadlocks or computes wrong numbers, to
    /// show what happens. Throws UsageError only if a number is out of range or there are
    /// no messages.
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

/// A stage's messages under way. They use one communicator, or one for each direction
/// between two stages, as Schedule::queues says. The operations of a communicator end in
/// the order in which they started. So when a receive is done, all earlier sends are
/// done, and their tensors are released.
class StageMail {
  private:
    struct Queue;

  public:
    /// Every rank of the line makes a StageMail, with the same plan.
    StageMail(Communicator& line, const PipelinePlan& plan);

    /// A tensor that is to be received.
    struct Arrival {
        Tensor tensor;
        std::optional<Work> work;
        Queue* queue = nullptr;
        int number = 0;
    };
    struct Message {
        int peer = 0;  ///< stage at the other end
        Tensor tensor;
        Arrival* arrival = nullptr;  ///< filled in by post(); null for a send
        SourceLine at;
    };

    /// Starts the messages together. Keeps each sent tensor until its send is done.
    void post(const std::vector<Message>& messages);
    /// Makes the device wait until the tensor has arrived, and returns the tensor.
    Tensor wait(Arrival& arrival);
    /// Makes the device wait until all sends are done.
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
    /// By sending and receiving stage; a single queue has the key {-1, -1}.
    std::map<std::pair<int, int>, Queue> queues_;
};

/// Old weights of one stage's chunks: optimizer steps have replaced them, but the
/// schedule still reads them. It also keeps the data from which weights are estimated. It
/// copies nothing if the schedule reads only the newest weights.
class WeightStash {
  public:
    WeightStash(Device& device, const PipelinePlan& plan, int stage);

    /// The fraction of the average step that is kept at each step; see
    /// Pipeline::estimate_by.
    void set_decay(double decay) { decay_ = decay; }
    /// Call it before an optimizer step. It keeps a copy of the weights if they are read
    /// again later.
    void before_update(Place place, Module& chunk);
    /// Call it after the step. It adds the step to the average if the chunk has
    /// estimates.
    void after_update(Place place, Module& chunk);
    // lesson: weights-that-are-read
    /// Runs `work`, the instruction's computation, with the weights that it reads.
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
    /// The average step of a chunk that has estimates.
    struct Trend {
        Values step;    ///< none before the first step
        Values before;  ///< the weights before the current step
    };

    /// Returns the weights that the instruction reads: kept old weights, or an estimate,
    /// which is written to `estimated`. Returns null if it reads the newest weights.
    Values* values_of(Place place, Module& chunk, Values& estimated);
    Values copies_of(Module& chunk) const;
    /// Swaps the chunk's weights with `values`, unless `values` is null.
    static void exchange(Values* values, Module& chunk);
    /// Drops weights that no later instruction reads.
    void drop(Place place);
    const Instruction& at(Place place) const { return plan_.schedule().at(place); }
    std::pair<int, int> key(Place place) const {
        return {plan_.schedule().at(place).chunk, plan_.versions().read(place)};
    }

    Device& device_;
    const PipelinePlan& plan_;
    /// By chunk and version: the last position that reads the version.
    std::map<std::pair<int, int>, int> last_read_;
    std::map<std::pair<int, int>, Values> kept_;
    std::map<int, Trend> trends_;  ///< by chunk; only chunks that have estimates
    double decay_ = 0;
};

/// The tensor that one part of a model passes to the next. Every stage knows the tensor's
/// shape for a micro-batch.
struct PartBoundary {
    std::function<Shape(const MicroBatch&)> shape;
    DType dtype = DType::f32;
};

/// One device's place in a pipeline: the stage `line.rank()` of a schedule, with its
/// chunks of the model. Executes any valid schedule. First read PlainPipeline
/// (plain_pipeline.hpp), which executes simple schedules.
///
/// Messages go over `line` in the schedule's order and overlap with computation. The
/// device waits for a message only when it needs the tensor. Each boundary between stages
/// carries two tensors for each micro-batch: an activation forward and its gradient back.
/// A stage keeps what a forward saved until the backward has used it. It keeps a sent
/// tensor until a later receive is done, and old weights until they have been read
/// (WeightStash).
class Pipeline {
  public:
    /// `chunks[c]` computes part plan.schedule().part(stage, c); the chunk of part 0 is
    /// told to compute no gradient of its input. All arguments must outlive the pipeline.
    /// Throws UsageError unless the line has the schedule's number of stages and `chunks`
    /// has the schedule's number of chunks.
    Pipeline(Device& device, Communicator& line, const PipelinePlan& plan,
             std::vector<Module*> chunks, PartBoundary boundary,
             SourceLine at = SourceLine::here());

    /// Declares data parallelism: gradients will be summed over `replicas`, which hold
    /// the same chunks and have their own micro-batches. Every rank of `replicas` calls
    /// it.
    void reduce_over(Communicator& replicas, SourceLine at = SourceLine::here());
    /// Does the same for the ranks along `axes`; some of these axes may shard parameters.
    void reduce_over(Mesh& mesh, const std::vector<std::string>& axes,
                     SourceLine at = SourceLine::here());
    /// Sets how R completes gradients and what U updates on this rank: syncs[c] for chunk
    /// c. Without syncs, R sums each gradient along the axes where it is partial, after
    /// the chunk's last backward. Throws UsageError unless there is one sync for each
    /// chunk, with the chunk's parameters.
    void sync_by(std::vector<GradientSync*> syncs, SourceLine at = SourceLine::here());
    /// Declares that other stages have the parameter too: its gradients will be summed
    /// over `sharers`, so that all copies take the same step. Every rank of `sharers`
    /// calls it. Use it for a table at both ends, and for parts that two stages hold. All
    /// sharers must reduce the chunk equally often, and in the same order relative to
    /// their messages and to other tied chunks. Throws UsageError if no chunk has the
    /// parameter.
    void tie(Parameter& parameter, Communicator& sharers,
             SourceLine at = SourceLine::here());
    /// Ties all parameters of every part that several stages hold, as in bidirectional
    /// pipelines. Every rank of the line calls it.
    void tie_copies();
    /// Sets what optimizer steps do: optimizers[c] updates chunk c. Without this call,
    /// steps do nothing, and gradients stay as they are. Throws UsageError unless there
    /// is one optimizer for each chunk, and if the schedule never updates (U) a chunk.
    void update_by(std::vector<Optimizer*> optimizers,
                   SourceLine at = SourceLine::here());

    /// Sets how weights are estimated ("@~"). For a version k ahead of the newest (k < 0:
    /// behind), the estimate is the newest weights plus k times the average step. At each
    /// step the average keeps the fraction `decay` of itself, 0 <= decay < 1. With 0 (the
    /// default) the average is the last step; with momentum this is SpecTrain's
    /// prediction (Chen et al. 2018, 1809.02839, section 4). PipeMare estimates old
    /// weights with a decay of D^(1/(versions between)), D about 0.1 (Yang et al. 2021,
    /// 1910.05124, section 3.2).
    void estimate_by(double decay, SourceLine at = SourceLine::here());

    /// Moves to the host what a forward has saved, until the backward needs it, unless
    /// this backward is the stage's next computation. The copy to the host overlaps with
    /// the next computation, the copy back with the computation before the backward. So
    /// saved activations need the memory of at most three micro-batches under any
    /// schedule (Wan et al. 2025, PipeOffload, 2503.01328). Between the halves of a
    /// backward, what the second half needs stays on the device. SavedOnHost says which
    /// tensors are moved. The device needs a host.
    void offload_activations(std::int64_t least_bytes = 1024);

    /// Declares that all ranks of `group`, which are at the same stage of their lines,
    /// send and receive the same tensors. Then each of them sends only its share of a
    /// tensor's rows, and the receivers gather the shares over `group`: the links between
    /// stages carry 1 / group.size() of the bytes (Narayanan et al. 2021, 2104.04473,
    /// section 4.1). A tensor's first dimension must be a multiple of group.size().
    /// `group` must outlive the pipeline.
    void scatter_messages(Communicator& group) { group_ = &group; }

    /// Runs the schedule once. The stage with the model's first part reads the
    /// micro-batches' inputs, the stage with the last part reads the targets, and all
    /// stages read the micro-batches' weights (B_i / B for the mean over all samples of
    /// all replicas). Leaves the gradients, summed since the last optimizer step, in the
    /// chunks' parameters. Returns the sum of weight times loss, (1), on the stage with
    /// the last part; elsewhere the terms that this stage's layers have added to the
    /// loss, or none. Throws UsageError if the number of micro-batches is wrong; if
    /// shared gradients are not reduced, or are reduced before their last backward; and
    /// if a part that several stages hold has a parameter that is not tied.
    Tensor run(const Loss& loss, std::span<const MicroBatch> micro_batches,
               SourceLine at = SourceLine::here());

    /// Also keeps the loss of each micro-batch: losses() returns weight times loss, (1)
    /// each, of the last run. An entry is none if this stage added nothing to that loss.
    void keep_losses() { keeps_losses_ = true; }
    const std::vector<Tensor>& losses() const { return losses_; }
    /// Calls `hook` after each update of a chunk, with the chunk and the newest version
    /// of its weights, counted from the run's beginning.
    void after_update(std::function<void(int chunk, int version)> hook) {
        after_update_ = std::move(hook);
    }

    /// Runs only the schedule's forwards and their messages, and saves nothing for a
    /// backward. A stage that holds the last part returns that part's output for each
    /// micro-batch, in order; an output is none if another stage made it. Other stages
    /// return an empty list.
    std::vector<Tensor> infer(std::span<const MicroBatch> micro_batches,
                              SourceLine at = SourceLine::here());

  private:
    /// One micro-batch in one chunk, between its forward and its backward.
    struct Flight {
        Saved saved;
        Tensor x;   ///< input of the chunk, if made on this device
        Tensor y;   ///< output of the chunk, until it is sent
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
    /// Returns the shape of what one rank sends and receives.
    Shape message_shape(Place place) const;
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
    /// Returns the micro-batch's Flight in the part before or after, if that part is on
    /// this device.
    Flight* neighbour(Place place, int step);
    void require_batches(std::span<const MicroBatch> micro_batches, SourceLine at) const;
    void finish_forward(Place place, const Tensor& y);
    void add_loss(Place place, const Tensor& y);
    void add_to_total(Place place, const Tensor& loss);
    Tensor arriving(Tensor& local, StageMail::Arrival& arrival, Place place);
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
    std::vector<std::unique_ptr<Communicator>> holders_;  ///< of tied parts
    std::vector<GradientSync*> syncs_;
    std::vector<Optimizer*> optimizers_;
    bool keeps_losses_ = false;
    std::function<void(int chunk, int version)> after_update_;
    std::optional<SavedOnHost> on_host_;
    Communicator* group_ = nullptr;  ///< of ranks that have the same messages

    // These belong to the run in progress.
    SourceLine at_;
    const Loss* loss_ = nullptr;  ///< null in infer()
    std::span<const MicroBatch> micro_batches_;
    Tensor total_loss_;
    std::vector<Tensor> losses_;   ///< by micro-batch, if they are kept
    std::vector<Tensor> results_;  ///< of infer()
    std::vector<Flight> flights_;
    StageMail mail_;
    WeightStash stash_;
    std::vector<char> used_up_;  ///< by chunk: whether gradients are from an earlier step
};

}  // namespace lockstep
