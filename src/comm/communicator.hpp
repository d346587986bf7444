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

/// Bytes, or another count, for each verb.
using BytesByVerb = std::array<std::int64_t, kVerbs>;

/// A group of ranks that exchange messages: NCCL's verbs with PyTorch's semantics.
///
/// An operation starts when all earlier operations of this device and of the communicator
/// are done. It overlaps with later operations of the device, until Work::wait. All ranks
/// of the communicator call the same collectives in the same order. A send and its recv
/// wait for each other: nothing is buffered. The output is the first argument. Buffers
/// may be views. The buffers of one call may share memory only if the verb's in-place
/// rule allows it. The buffers of a group may share memory only if none of them is
/// written (src/comm/aliasing.hpp). The caller keeps the buffers until it has waited for
/// the Work. Wrong shapes, dtypes or ranks throw UsageError.
///
/// bf16 is rounded after each addition around the ring, as in NCCL's kernels (__hadd in
/// 2.28's src/device/reduce_kernel.h): sum gradients of many ranks in f32.
///
/// In the costs, S is the bytes of the whole buffer, and n is the number of ranks.
/// "Bytes" are the bytes that one rank sends; the ranks form a ring unless the comment
/// says otherwise. "Steps" are messages one after another; each of them costs latency.
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
    /// n-1 steps. In place if input is output's own block.
    Work all_gather(const Tensor& output, const Tensor& input,
                    SourceLine at = SourceLine::here());
    /// output: this rank's block of the reduction of all inputs (n x output's elements).
    /// (n-1)/n S bytes, n-1 steps. In place if output is input's own block.
    Work reduce_scatter(const Tensor& output, const Tensor& input,
                        Reduction reduction = Reduction::sum,
                        SourceLine at = SourceLine::here());
    /// Sends the root's buffer to all ranks. S bytes (the last rank of the chain sends
    /// none), n-1 steps.
    Work broadcast(const Tensor& buffer, int root, SourceLine at = SourceLine::here());
    /// In place: the root ends with the reduction; other ranks' buffers are unchanged.
    /// S bytes (the root sends none), n-1 steps.
    Work reduce(const Tensor& buffer, int root, Reduction reduction = Reduction::sum,
                SourceLine at = SourceLine::here());
    /// The root's output (n x input's elements): every rank's input in rank order. On
    /// other ranks output is none (a default Tensor). Each other rank sends its S/n bytes
    /// to the root.
    Work gather(const Tensor& output, const Tensor& input, int root,
                SourceLine at = SourceLine::here());
    /// The root's input (n x output's elements) is cut into blocks, which are sent in
    /// rank order. On other ranks input is none. The root sends (n-1)/n S bytes.
    Work scatter(const Tensor& output, const Tensor& input, int root,
                 SourceLine at = SourceLine::here());
    /// Sends block i of input to rank i, and receives block i of output from rank i.
    /// (n-1)/n S bytes, n-1 steps. In place if output is input.
    Work all_to_all(const Tensor& output, const Tensor& input,
                    SourceLine at = SourceLine::here());
    /// all_to_all with blocks of unequal sizes: sends send_counts[i] rows of input to
    /// rank i, and receives recv_counts[i] rows of output from rank i. Blocks are in rank
    /// order, and rows are those of the first dimension. Rank i's counts must match these
    /// counts. Counts must add up to all rows of their tensor. It is a group with one
    /// message to and one from each other rank. Empty messages, and the copy of this
    /// rank's own block, take no virtual time and are not counted.
    Work all_to_all_v(const Tensor& output, const std::vector<std::int64_t>& recv_counts,
                      const Tensor& input, const std::vector<std::int64_t>& send_counts,
                      SourceLine at = SourceLine::here());
    /// Sends to rank `peer`, or receives from it. The peer must call the matching recv or
    /// send, with the same count and dtype.
    Work send(const Tensor& input, int peer, SourceLine at = SourceLine::here());
    Work recv(const Tensor& output, int peer, SourceLine at = SourceLine::here());
    /// No rank's barrier ends before all ranks' barriers have begun. ceil(log2 n) empty
    /// messages.
    Work barrier(SourceLine at = SourceLine::here());

    /// Starts an operation that is given as data: its verb and buffers, its root or peer,
    /// its reduction and line. Dtype and count are filled in. All verbs above call this
    /// function, except all_to_all_v and barrier.
    Work start(CommOperation operation);

    /// Several operations that progress together (ncclGroupStart … ncclGroupEnd):
    ///
    ///     comm.group().send(right_going, right).recv(arriving, left).start().wait();
    ///
    /// Until the group is started, any other call of its communicator throws FaultError
    /// (F15).
    Group group(SourceLine at = SourceLine::here());

    /// Returns a communicator of the ranks that give the same colour, ordered by (key,
    /// rank). Every rank of this communicator must call split. Null for kNoColor. `name`
    /// is for timelines and messages.
    std::unique_ptr<Communicator> split(int color, int key,
                                        const std::string& name = "split",
                                        SourceLine at = SourceLine::here());
    /// Splits as requested. FaultError (F06) if the new communicator does not have the
    /// members that the request expects.
    std::unique_ptr<Communicator> split(const SplitRequest& request,
                                        SourceLine at = SourceLine::here());
    static constexpr int kNoColor = -1;

    /// Returns a communicator of `ranks`, numbered in that order; null on ranks that are
    /// not in the list. Every rank of this communicator must call subgroup with the same
    /// list and name; if not, FaultError (F06).
    std::unique_ptr<Communicator> subgroup(const std::vector<int>& ranks,
                                           const std::string& name = "subgroup",
                                           SourceLine at = SourceLine::here());

    /// Throws FaultError (F15) if a group was begun and never started. The code that made
    /// the communicator calls this when the rank's program is over.
    void require_groups_started() const;

    /// Returns the bytes that this rank has sent over this communicator so far. Only
    /// completed operations count, so a backend throws UsageError if it knows that an
    /// operation is in flight. See src/comm/expect.hpp.
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
    /// This rank's number in the run, valid also after the run.
    int owner() const { return owner_; }
    /// Returns the error for a use of this communicator after its run has ended, at line
    /// `at`. `made_at` is the line that made the communicator; empty for world.
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

    /// Checks the caller's operation, and fills in dtype and count.
    void complete(CommOperation& operation) const {
        operation.all_to_all_v = false;
        // Messages must be fast: a simulator of many devices makes millions of them.
        if (is_point_to_point(operation.verb)) [[likely]]
            complete_message(operation);
        else
            complete_collective(operation);
    }
    void complete_message(CommOperation& operation) const;
    void complete_collective(CommOperation& operation) const;
    /// Sets `input` and (in a reduce, only at the root) `output` to the one buffer.
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
    /// Throws FaultError (F11) for a message to oneself without its other side.
    [[noreturn]] void refuse_own(const CommOperation& operation) const;
    void require_no_open_group(const char* call, SourceLine at) const {
        if (group_open_) [[unlikely]]
            refuse_inside_group(call, at);
    }
    [[noreturn]] void refuse_inside_group(const char* call, SourceLine at) const;

    /// Starts an operation whose fields complete() has filled in.
    Work launch(CommOperation& operation);
    /// Starts the operations together, and may move from them. `at` is the line that
    /// calls group(), or the line of the single operation.
    virtual Work do_launch(std::span<CommOperation> operations, SourceLine at) = 0;
    /// By default, posts sends and recvs. A backend may override it.
    virtual Work do_all_to_all_v(const Tensor& output,
                                 const std::vector<std::int64_t>& recv_counts,
                                 const Tensor& input,
                                 const std::vector<std::int64_t>& send_counts,
                                 SourceLine at);
    virtual std::unique_ptr<Communicator> do_split(const SplitRequest& request,
                                                   SourceLine at) = 0;
    virtual BytesByVerb do_bytes_sent(SourceLine at) const = 0;
    /// By default, uses the communicator's own verbs. A backend may have a cheaper way.
    virtual void do_expect_replicated(const Tensor& tensor, const std::string& name,
                                      SourceLine at);
    /// By default these three do nothing. Backends that compare replicas override them.
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

/// Collects operations of one communicator and starts them together. The verbs are those
/// of Communicator. A communicator has one open group at a time. A group must be started
/// exactly once, and accepts no operations afterwards; otherwise FaultError (F15). If an
/// exception leaves the group's scope, no operation of the group starts.
///
/// If all ranks have the same collectives in one group, these cost the latency of the
/// longest collective and the bytes of all. NCCL runs them in one kernel, whose channels
/// work at the same time. Lockstep leaves out two costs that NCCL has:
/// - Each channel runs its collectives one after another. NCCL's own estimate for N
///   collectives of one kind on a ring has ceil(N / channels) latencies: 7 for 100
///   all-gathers on 16 channels (latCount in ncclTopoGetAlgoTime, src/graph/tuning.cc of
///   NCCL 2.28; nTasksPerChannel in src/enqueue.cc). Collectives share an algorithm only
///   if their bytes differ by less than a factor of 4.
/// - The kernel reads a descriptor of each collective. If a group's descriptors do not
///   fit the kernel's buffers, the group becomes several kernels (ncclTasksRegAndEnqueue,
///   ncclLaunchPrepare).
/// Under NCCL 2.13.4 a user measured 116 s for groups of 980 reduce-scatters (21 MB
/// together), and 1.6 s if each group was one flat reduce-scatter
/// (github.com/NVIDIA/nccl, issue 725). So with NCCL, copying into a flat buffer pays.
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
    /// Adds an operation with one of these verbs, as in Communicator::start. UsageError
    /// for other verbs.
    Group& add(CommOperation operation);

    /// Starts the collected operations. An empty group is done at once.
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
