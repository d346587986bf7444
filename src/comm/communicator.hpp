#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "src/comm/operation.hpp"
#include "src/device/work.hpp"
#include "src/run/diagnosis.hpp"

namespace lockstep {

class ByteCount;
class Group;

/// Bytes, or what else is counted, of each verb.
using BytesByVerb = std::array<std::int64_t, kVerbs>;

/// A group of ranks that exchange messages: NCCL's verbs with PyTorch's semantics.
///
/// An operation starts when what this device issued before it is done and the
/// communicator's earlier operations are; it runs beside what the device issues next;
/// Work::wait orders the two again. All ranks of the communicator call the same
/// collectives in the same order. A send and its recv meet: nothing is buffered.
/// Destinations come first. Buffers may be views; those of one call share memory only as
/// its in-place rule says, those of a group only where all of them are read
/// (src/comm/aliasing.hpp). The caller keeps them until the Work was waited for. Wrong
/// shapes, dtypes or ranks throw UsageError.
///
/// bf16 is rounded after each addition on the way round the ring, as NCCL's kernels do
/// (__hadd in 2.28's src/device/reduce_kernel.h): sum gradients of many ranks in f32.
///
/// S is the bytes of the whole buffer, n the size. "Bytes" is what one rank sends, over a
/// ring unless said otherwise; latency steps are messages one after another.
class Communicator {
  public:
    virtual ~Communicator() = default;
    Communicator(const Communicator&) = delete;
    Communicator& operator=(const Communicator&) = delete;

    int rank() const { return rank_; }
    int size() const { return size_; }
    const std::string& name() const { return name_; }

    /// In place: every rank ends with the reduction over all ranks. 2(n-1)/n S bytes,
    /// 2(n-1) steps.
    Work all_reduce(const Tensor& buffer, Reduction reduction = Reduction::sum,
                    SourceLine at = SourceLine::here());
    /// Reduces `input` into `output`.
    Work all_reduce(const Tensor& output, const Tensor& input, Reduction reduction,
                    SourceLine at = SourceLine::here());
    /// output (n x input's elements): every rank's input, in rank order. (n-1)/n S bytes,
    /// n-1 steps. In place where input is output's own block.
    Work all_gather(const Tensor& output, const Tensor& input,
                    SourceLine at = SourceLine::here());
    /// output: this rank's block of the reduction of all inputs (n x output's elements).
    /// (n-1)/n S bytes, n-1 steps. In place where output is input's own block.
    Work reduce_scatter(const Tensor& output, const Tensor& input,
                        Reduction reduction = Reduction::sum,
                        SourceLine at = SourceLine::here());
    /// The root's buffer goes to all. S bytes (the last rank of the chain sends none),
    /// n-1 steps.
    Work broadcast(const Tensor& buffer, int root, SourceLine at = SourceLine::here());
    /// In place: the root ends with the reduction; other ranks' buffers are unchanged.
    /// S bytes (the root sends none), n-1 steps.
    Work reduce(const Tensor& buffer, int root, Reduction reduction = Reduction::sum,
                SourceLine at = SourceLine::here());
    /// The root's output (n x input's elements): every rank's input in rank order.
    /// Elsewhere output is none (a default Tensor). Each other rank sends its S/n bytes
    /// to the root.
    Work gather(const Tensor& output, const Tensor& input, int root,
                SourceLine at = SourceLine::here());
    /// The root's input (n x output's elements) is dealt out in rank order. Elsewhere
    /// input is none. The root sends (n-1)/n S bytes.
    Work scatter(const Tensor& output, const Tensor& input, int root,
                 SourceLine at = SourceLine::here());
    /// Block i of input goes to rank i's output, block of this rank. (n-1)/n S bytes, n-1
    /// steps. In place where output is input.
    Work all_to_all(const Tensor& output, const Tensor& input,
                    SourceLine at = SourceLine::here());
    /// Parts of unequal sizes, in rows of the first dimension (elements, where there is
    /// one): the next send_counts[i] rows of input go to rank i, the next recv_counts[i]
    /// rows of output come from rank i, whose send_counts must say the same. Counts add
    /// up to all rows of their tensor. A group of one message to, and one from, each
    /// other rank that gets or sends any; the own part is a copy.
    Work all_to_all_v(const Tensor& output, const std::vector<std::int64_t>& recv_counts,
                      const Tensor& input, const std::vector<std::int64_t>& send_counts,
                      SourceLine at = SourceLine::here());
    /// To and from one rank, which must call the other half with the same count and
    /// dtype.
    Work send(const Tensor& input, int peer, SourceLine at = SourceLine::here());
    Work recv(const Tensor& output, int peer, SourceLine at = SourceLine::here());
    /// No rank's barrier ends before every rank's has begun. ceil(log2 n) empty messages.
    Work barrier(SourceLine at = SourceLine::here());

    /// The verb as data: its buffers, and its root or peer, reduction and line. Dtype and
    /// count are filled in. All verbs above are calls of this one.
    Work start(CommOperation operation);

    /// Several operations that progress together (ncclGroupStart … ncclGroupEnd):
    ///
    ///     comm.group().send(right_going, right).recv(arriving, left).start().wait();
    ///
    /// Until it is started its communicator takes nothing else: FaultError (F15).
    Group group(SourceLine at = SourceLine::here());

    /// A communicator of the ranks that give the same colour, ordered by (key, rank);
    /// every rank of this one calls it. None (null) for kNoColor. `name` is for timelines
    /// and messages.
    std::unique_ptr<Communicator> split(int color, int key,
                                        const std::string& name = "split",
                                        SourceLine at = SourceLine::here());
    /// Splits, with the members that this rank expects: if the ranks' requests do not
    /// make that communicator, FaultError (F06).
    std::unique_ptr<Communicator> split(const SplitRequest& request,
                                        SourceLine at = SourceLine::here());
    static constexpr int kNoColor = -1;

    /// A communicator of `ranks`, numbered in that order; every rank of this one calls it
    /// with the same list and name, or FaultError (F06). None (null) on ranks that are
    /// not in the list.
    std::unique_ptr<Communicator> subgroup(const std::vector<int>& ranks,
                                           const std::string& name = "subgroup",
                                           SourceLine at = SourceLine::here());

    /// For who made it, once this rank's program is over: FaultError (F15) where a group
    /// was begun and never started.
    void require_groups_started() const;

    /// Returns what this rank has sent over this communicator so far. It counts what is
    /// done, so it throws UsageError while a backend that knows has something in flight.
    /// See src/comm/expect.hpp.
    BytesByVerb bytes_sent(SourceLine at = SourceLine::here()) const {
        return do_bytes_sent(at);
    }

  protected:
    Communicator(Device& device, std::string name, int rank, int size)
        : device_(device),
          owner_(device.index()),
          name_(std::move(name)),
          rank_(rank),
          size_(size) {}

    Device& device() const { return device_; }
    /// This rank's number in the run; still known when the run is over.
    int owner() const { return owner_; }
    /// Describes a use of it at `at`, after the run that made it. World was made nowhere.
    FaultError used_after_run(SourceLine made_at, SourceLine at) const;

  private:
    friend class ByteCount;
    friend class Group;
    friend void expect_replicated(Communicator& group, const Tensor& tensor,
                                  const std::string& name, SourceLine at);
    friend void declare_replicas(Communicator& group, const Tensor& tensor,
                                 const std::string& name, SourceLine at);
    friend void declare_same(Communicator& group, const Tensor& tensor,
                             const std::string& name, SourceLine at);
    friend void declare_same(Communicator& group, const HostTensor& values,
                             const std::string& name, SourceLine at);

    /// Checks what the caller asks, and fills in the rest.
    void complete(CommOperation& operation) const {
        operation.all_to_all_v = false;
        // A simulator of many devices makes millions of messages.
        if (is_point_to_point(operation.verb)) [[likely]]
            complete_message(operation);
        else
            complete_collective(operation);
    }
    void complete_message(CommOperation& operation) const;
    void complete_collective(CommOperation& operation) const;
    /// A broadcast and a reduction have one buffer: input, output or both.
    void set_one_buffer(CommOperation& operation) const;
    void fit_two_buffers(CommOperation& operation) const;
    void require_own(const CommOperation& operation, const Tensor& tensor) const {
        if (tensor && tensor.device() != &device_) [[unlikely]]
            refuse_foreign(operation, tensor);
    }
    [[noreturn]] void refuse_foreign(const CommOperation& operation,
                                     const Tensor& tensor) const;
    void require_peer(const CommOperation& operation) const {
        if (operation.peer < 0 || operation.peer >= size_) [[unlikely]]
            refuse_peer(operation);
    }
    [[noreturn]] void refuse_peer(const CommOperation& operation) const;
    void require_no_open_group(const char* call, SourceLine at) const {
        if (group_open_) [[unlikely]]
            refuse_inside_group(call, at);
    }
    [[noreturn]] void refuse_inside_group(const char* call, SourceLine at) const;

    /// Starts an operation that is complete.
    Work launch(CommOperation& operation);
    /// Starts the operations together, which it may move from; `at` is the caller's line
    /// of the group, or of the one.
    virtual Work do_launch(std::span<CommOperation> operations, SourceLine at) = 0;
    /// By sends and recvs, where a backend does not hand the whole call on.
    virtual Work do_all_to_all_v(const Tensor& output,
                                 const std::vector<std::int64_t>& recv_counts,
                                 const Tensor& input,
                                 const std::vector<std::int64_t>& send_counts,
                                 SourceLine at);
    virtual std::unique_ptr<Communicator> do_split(const SplitRequest& request,
                                                   SourceLine at) = 0;
    virtual BytesByVerb do_bytes_sent(SourceLine at) const = 0;
    /// By way of the communicator's own verbs, where a backend knows nothing cheaper.
    virtual void do_expect_replicated(const Tensor& tensor, const std::string& name,
                                      SourceLine at);
    /// For a backend that looks for replicas that part.
    virtual void do_declare_replicas(const Tensor& /*tensor*/,
                                     const std::string& /*name*/, SourceLine /*at*/) {}
    virtual void do_declare_same(const Tensor& /*tensor*/, const std::string& /*name*/,
                                 SourceLine /*at*/) {}
    virtual void do_declare_same(const HostTensor& /*values*/,
                                 const std::string& /*name*/, SourceLine /*at*/) {}

    Device& device_;
    int owner_;
    std::string name_;
    int rank_;
    int size_;
    std::vector<CommOperation> grouped_;
    bool group_open_ = false;
    SourceLine group_at_;
};

/// Collects operations of one communicator and starts them together. The verbs are the
/// communicator's. One group of a communicator at a time; a group must be started, once,
/// and takes nothing more then: FaultError (F15). One that an exception leaves is given
/// up: nothing of it starts.
///
/// Collectives that all ranks have in one group cost the latency of the longest and the
/// bytes of all. NCCL runs them in one kernel, whose channels work side by side. What it
/// costs there besides is left out here:
/// - Each channel goes through its collectives one after another. NCCL's own estimate for
///   N of one kind on a ring has ceil(N / channels) latencies: 7 for 100 all-gathers on
///   16 channels (latCount in ncclTopoGetAlgoTime, src/graph/tuning.cc of NCCL 2.28;
///   nTasksPerChannel in src/enqueue.cc). Only those whose bytes differ by less than a
///   factor of 4 share an algorithm.
/// - Each has a descriptor that the kernel reads, and a group whose descriptors do not
/// fit
///   its buffers becomes several kernels (ncclTasksRegAndEnqueue, ncclLaunchPrepare).
/// Under NCCL 2.13.4 a user measured 116 s for groups of 980 reduce-scatters, of 21 MB
/// together, and 1.6 s with each group as one flat reduce-scatter
/// (github.com/NVIDIA/nccl, issue 725). So a flat buffer is still worth its copies there.
class [[nodiscard]] Group {
  public:
    Group(Communicator& communicator, SourceLine at);
    ~Group();
    Group(const Group&) = delete;
    Group& operator=(const Group&) = delete;

    Group& send(const Tensor& input, int peer, SourceLine at = SourceLine::here());
    Group& recv(const Tensor& output, int peer, SourceLine at = SourceLine::here());
    Group& all_reduce(const Tensor& buffer, Reduction reduction = Reduction::sum,
                      SourceLine at = SourceLine::here());
    Group& all_gather(const Tensor& output, const Tensor& input,
                      SourceLine at = SourceLine::here());
    Group& reduce_scatter(const Tensor& output, const Tensor& input,
                          Reduction reduction = Reduction::sum,
                          SourceLine at = SourceLine::here());
    Group& broadcast(const Tensor& buffer, int root, SourceLine at = SourceLine::here());
    Group& reduce(const Tensor& buffer, int root, Reduction reduction = Reduction::sum,
                  SourceLine at = SourceLine::here());
    Group& gather(const Tensor& output, const Tensor& input, int root,
                  SourceLine at = SourceLine::here());
    Group& scatter(const Tensor& output, const Tensor& input, int root,
                   SourceLine at = SourceLine::here());
    Group& all_to_all(const Tensor& output, const Tensor& input,
                      SourceLine at = SourceLine::here());
    /// One of these verbs as data, as Communicator::start takes it. UsageError for
    /// others.
    Group& add(CommOperation operation);

    /// Launches what was collected. A group of nothing is done at once.
    Work start(SourceLine at = SourceLine::here());

  private:
    Group& add_message(Verb verb, const Tensor& buffer, int peer, SourceLine at);
    [[noreturn]] void refuse_late(Verb verb, SourceLine at) const;
    [[noreturn]] void refuse_second_start(SourceLine at) const;

    Communicator& communicator_;
    SourceLine at_;
    SourceLine started_at_;
    bool started_ = false;
};

}  // namespace lockstep
