#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "src/core/host_tensor.hpp"
#include "src/core/philox.hpp"
#include "src/core/source_line.hpp"
#include "src/core/tensor.hpp"
#include "src/device/backend.hpp"
#include "src/device/derivation.hpp"
#include "src/device/monitor.hpp"
#include "src/device/options.hpp"

namespace lockstep {

/// One device: memory, and operations the size of a GPU kernel.
///
/// Each public operation checks shapes and dtypes (UsageError names operation, got and
/// expected), tells the monitor its cost and what it reads and writes, and calls the
/// virtual `do_…` of DeviceBackend that a backend overrides. So a check or a cost is
/// written once, for all backends.
///
/// Shapes: a tensor of more than two dimensions is taken as the matrix (rows, columns) of
/// Shape::rows() and columns(); two that must be alike have the same rows, columns and
/// dtype. Results have the shape of the first operand, unless it says otherwise.
/// Destinations come first. Tensors may be empty: then an operation is charged, and does
/// what sums of nothing do.
///
/// Types: f32 and f64 everywhere; i32 for indices, and to move, add, multiply and
/// combine; bf16 where a run computes shapes only.
///
/// Tensors of another device are refused: ranks share nothing but messages. So is memory
/// shared by a destination and a source, except that of element-by-element operations the
/// two may be the same. Costs: each operand's bytes once for reading and once for
/// writing; flops by src/device/flops.hpp.
class Device : protected DeviceBackend {
  public:
    ~Device() override;
    Device(const Device&) = delete;
    Device& operator=(const Device&) = delete;

    int index() const { return index_; }
    bool has_numbers() const { return monitor_.has_numbers(); }
    DeviceMonitor& monitor() { return monitor_; }

    // Memory. Allocation counts for the category of the innermost MemoryScope.

    /// Unspecified values. Throws what the monitor throws where memory runs out.
    Tensor empty(Shape shape, DType dtype, SourceLine at = SourceLine::here());
    Tensor zeros(Shape shape, DType dtype, SourceLine at = SourceLine::here());
    Tensor upload(const HostTensor& values, SourceLine at = SourceLine::here());
    /// Into an existing tensor of the same shape and dtype.
    void upload_into(const Tensor& destination, const HostTensor& values,
                     SourceLine at = SourceLine::here());
    /// Waits for the device. NaN (0 for i32) where the run computes shapes only.
    HostTensor download(const Tensor& source, SourceLine at = SourceLine::here());
    /// As download, but costs no virtual time: for records, not for programs.
    HostTensor peek(const Tensor& source, SourceLine at = SourceLine::here());

    // Moving and combining.

    void fill(const Tensor& destination, double value,
              SourceLine at = SourceLine::here());
    void copy(const Tensor& destination, const Tensor& source,
              SourceLine at = SourceLine::here());
    /// Columns [from, from + count) of source into [to, to + count) of destination; same
    /// rows.
    void copy_columns(const Tensor& destination, std::int64_t to, const Tensor& source,
                      std::int64_t from, std::int64_t count,
                      SourceLine at = SourceLine::here());
    /// destination += factor * source.
    void add(const Tensor& destination, const Tensor& source, double factor = 1,
             SourceLine at = SourceLine::here());
    void scale(const Tensor& destination, double factor,
               SourceLine at = SourceLine::here());
    /// destination *= source, element by element.
    void multiply(const Tensor& destination, const Tensor& source,
                  SourceLine at = SourceLine::here());
    /// destination = reduction of (destination, source), element by element; mean is
    /// refused.
    void combine(const Tensor& destination, const Tensor& source, Reduction reduction,
                 SourceLine at = SourceLine::here());
    /// destination (1) (+)= the sum of all elements of source.
    void sum(const Tensor& destination, const Tensor& source, bool accumulate = false,
             SourceLine at = SourceLine::here());

    // Linear algebra.

    /// op(a) (m, k) times op(b) (k, n): (m, n), or a's shape with n columns where a is
    /// not transposed. 2mkn flops.
    Tensor matmul(const Tensor& a, const Tensor& b, MatmulOptions options = {},
                  SourceLine at = SourceLine::here());
    void matmul_into(const Tensor& destination, const Tensor& a, const Tensor& b,
                     MatmulOptions options = {}, SourceLine at = SourceLine::here());
    /// y (rows, columns) += bias (columns).
    void add_bias(const Tensor& y, const Tensor& bias,
                  SourceLine at = SourceLine::here());
    /// destination (columns) += the sum of the rows of x (rows, columns).
    void accumulate_rows(const Tensor& destination, const Tensor& x,
                         SourceLine at = SourceLine::here());

    // Activations: y = f(x); the derivatives give dx for dy.

    Tensor tanh(const Tensor& x, SourceLine at = SourceLine::here());
    /// From y = tanh(x): dx = dy (1 - y^2).
    Tensor tanh_backward(const Tensor& y, const Tensor& dy,
                         SourceLine at = SourceLine::here());
    /// Exact GELU, x Phi(x) (Hendrycks & Gimpel, 1606.08415).
    Tensor gelu(const Tensor& x, SourceLine at = SourceLine::here());
    Tensor gelu_backward(const Tensor& x, const Tensor& dy,
                         SourceLine at = SourceLine::here());
    /// Of x (rows, 2 width), a gate beside what it gates: y (rows, width) = silu(gate) *
    /// rest, with silu(g) = g / (1 + exp(-g)) (Shazeer, 2002.05202).
    Tensor swiglu(const Tensor& x, SourceLine at = SourceLine::here());
    Tensor swiglu_backward(const Tensor& x, const Tensor& dy,
                           SourceLine at = SourceLine::here());

    // Layer norm over the columns (Ba et al., 1607.06450).

    using Normalized = lockstep::Normalized;
    Normalized layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                          double epsilon = 1e-5, SourceLine at = SourceLine::here());
    Tensor layer_norm_backward_input(const Tensor& dy, const Tensor& x,
                                     const Tensor& weight, const Normalized& saved,
                                     SourceLine at = SourceLine::here());
    /// d_weight += sum over rows of dy * (x - mean) * rstd; d_bias += sum over rows of
    /// dy.
    void layer_norm_backward_weight(const Tensor& d_weight, const Tensor& d_bias,
                                    const Tensor& dy, const Tensor& x,
                                    const Normalized& saved,
                                    SourceLine at = SourceLine::here());

    // Root mean square norm over the columns (Zhang & Sennrich, 1910.07467): y = x *
    // rstd * weight, with rstd = 1 / sqrt(mean(x^2) + epsilon); `mean` is none.

    Normalized rms_norm(const Tensor& x, const Tensor& weight, double epsilon = 1e-5,
                        SourceLine at = SourceLine::here());
    Tensor rms_norm_backward_input(const Tensor& dy, const Tensor& x,
                                   const Tensor& weight, const Tensor& rstd,
                                   SourceLine at = SourceLine::here());
    /// d_weight += sum over rows of dy * x * rstd.
    void rms_norm_backward_weight(const Tensor& d_weight, const Tensor& dy,
                                  const Tensor& x, const Tensor& rstd,
                                  SourceLine at = SourceLine::here());

    // Attention, head by head. The weights that each of m queries gives to each of n keys
    // are (batches, heads, m, n). Of two operands one may have fewer heads, g where the
    // other has a: see AttentionHeads.

    /// factor * x y^T of each head: x's (m, width) and y's (n, width) give (batches,
    /// heads, m, n), as many heads as x has. 2 m n width flops a head.
    Tensor head_products(const Heads& x, const Heads& y, double factor = 1,
                         SourceLine at = SourceLine::here());
    /// weights (m, n) times y (n, width) of each head: (m, batches, heads width), as many
    /// heads as weights has.
    Tensor head_sums(const Tensor& weights, const Heads& y,
                     SourceLine at = SourceLine::here());
    /// destination += factor * op(weights) y of each head, into the destination's
    /// columns. Where the destination has fewer heads than y, each gets the sum of its
    /// group's.
    void add_head_sums(const Heads& destination, const Tensor& weights, const Heads& y,
                       HeadSumOptions options = {}, SourceLine at = SourceLine::here());

    // The same without weights in memory, some keys at a time: begin, attend to each
    // block of keys once, in any order, and finish (Dao et al. 2022, FlashAttention,
    // 2205.14135, section 3.1). Charged for the pairs of a query and a key that it sees,
    // each 4 width flops forward and 10 width backward beside the softmax; where there
    // are none, nothing is run. Heads are up to kMostHeadWidth wide.

    static constexpr std::int64_t kMostHeadWidth = 256;

    /// Attention that has seen no key.
    OnlineAttention begin_attention(const Heads& queries,
                                    SourceLine at = SourceLine::here());
    /// Takes the keys and their values in.
    void attend(const OnlineAttention& state, const AttentionHeads& heads,
                const AttentionOptions& options = {}, SourceLine at = SourceLine::here());
    /// Makes `y` the values' mean, weighted by the softmax of the scores; 0 where a query
    /// saw no key. Gives maximum + log(sum): (b, a, m), in the place of `maximum`.
    Tensor finish_attention(const OnlineAttention& state,
                            SourceLine at = SourceLine::here());
    /// The sum over the width of x y, row by row of each head: (batches, heads, m).
    Tensor head_row_products(const Heads& x, const Heads& y,
                             SourceLine at = SourceLine::here());
    /// Adds what these keys and values contribute to the three gradients. With p =
    /// exp(factor q k - log_sum_exp) and ds = factor p (dy v - dy_y): dq += ds k, dk +=
    /// ds^T q, dv += p^T dy.
    void attend_backward(const AttentionHeads& gradients, const AttentionHeads& heads,
                         const AttentionBackward& backward,
                         const AttentionOptions& options = {},
                         SourceLine at = SourceLine::here());

    // Softmax and losses.

    /// Of each row.
    Tensor softmax(const Tensor& x, SoftmaxOptions options = {},
                   SourceLine at = SourceLine::here());
    Tensor softmax_backward(const Tensor& y, const Tensor& dy,
                            SourceLine at = SourceLine::here());
    /// Row losses -log softmax(logits)[target]: (rows). Targets, rows of them, i32; a
    /// target outside [0, columns) throws UsageError where there are numbers.
    Tensor cross_entropy(const Tensor& logits, const Tensor& targets,
                         SourceLine at = SourceLine::here());
    /// factor * (softmax(logits) - one_hot(targets)).
    Tensor cross_entropy_backward(const Tensor& logits, const Tensor& targets,
                                  double factor, SourceLine at = SourceLine::here());

    // The same of logits (rows, columns) that are a shard of all classes, by way of what
    // shards have to tell each other: the largest of all maxima, and sums of all parts.

    /// The maximum of each row: (rows). -infinity where the shard is all padding.
    Tensor row_maximum(const Tensor& logits, VocabularyShard shard = {},
                       SourceLine at = SourceLine::here());
    /// Parts (2, rows): sum over the shard of exp(logit - maximum), and the target's
    /// logit where it lies in the shard, else 0. A target is a place in the whole
    /// vocabulary.
    Tensor cross_entropy_parts(const Tensor& logits, const Tensor& targets,
                               const Tensor& maximum, VocabularyShard shard = {},
                               SourceLine at = SourceLine::here());
    /// From the whole's maximum (rows) and summed parts (2, rows): row losses (rows).
    Tensor cross_entropy_of_parts(const Tensor& maximum, const Tensor& parts,
                                  SourceLine at = SourceLine::here());
    /// The shard's columns of factor * (softmax(logits) - one_hot(targets)); 0 in
    /// padding.
    Tensor cross_entropy_backward_of_parts(const Tensor& logits, const Tensor& targets,
                                           const Tensor& maximum, const Tensor& parts,
                                           double factor, VocabularyShard shard = {},
                                           SourceLine at = SourceLine::here());

    /// Sum of (prediction - target)^2 over all elements: (1).
    Tensor squared_error(const Tensor& prediction, const Tensor& target,
                         SourceLine at = SourceLine::here());
    /// factor * 2 (prediction - target).
    Tensor squared_error_backward(const Tensor& prediction, const Tensor& target,
                                  double factor, SourceLine at = SourceLine::here());

    // Embedding.

    /// Row ids[i] of table (vocabulary, width) for each i: ids.shape + (width). Zeros
    /// where the table is a shard and the row is another's; charged as if all were here.
    Tensor embedding(const Tensor& table, const Tensor& ids, VocabularyShard shard = {},
                     SourceLine at = SourceLine::here());
    /// d_table[ids[i]] += dy[i], in order of i, for the rows that the table holds.
    void embedding_backward(const Tensor& d_table, const Tensor& ids, const Tensor& dy,
                            VocabularyShard shard = {},
                            SourceLine at = SourceLine::here());

    // Optimizers; state and parameter are updated in place.

    /// `velocity` may be none when momentum is 0.
    void sgd(const Tensor& parameter, const Tensor& gradient, const Tensor& velocity,
             const SgdOptions& options, SourceLine at = SourceLine::here());
    /// Step counts from 1 (Loshchilov & Hutter, 1711.05101, algorithm 2).
    void adamw(const Tensor& parameter, const Tensor& gradient,
               const Tensor& first_moment, const Tensor& second_moment, std::int64_t step,
               const AdamWOptions& options, SourceLine at = SourceLine::here());

    // Random values: element (i, j) is number part.offset + i * part.pitch + j of the
    // stream, on every backend.

    void random_uniform(const Tensor& destination, RandomStream stream, double low,
                        double high, RandomPart part = {},
                        SourceLine at = SourceLine::here());
    void random_normal(const Tensor& destination, RandomStream stream, double mean,
                       double deviation, RandomPart part = {},
                       SourceLine at = SourceLine::here());

    // Phases and categories: use PhaseScope and MemoryScope.

    MemoryCategory category() const { return category_; }
    void set_category(MemoryCategory category) { category_ = category; }

    /// For a communicator, which charges its own cost: memory that the ledger leaves out,
    /// and unchecked, uncharged moves. Nothing happens for empty tensors. The source may
    /// be another device's.
    Tensor scratch(Shape shape, DType dtype);
    void transfer(const Tensor& destination, const Tensor& source) {
        if (destination.elements() > 0) do_copy(destination, source);
    }
    void transfer_combine(const Tensor& destination, const Tensor& source,
                          Reduction reduction) {
        if (destination.elements() > 0) do_combine(destination, source, reduction);
    }
    void transfer_scale(const Tensor& destination, double factor) {
        if (destination.elements() > 0) do_scale(destination, factor);
    }
    void transfer_fill(const Tensor& destination, double value) {
        if (destination.elements() > 0) do_fill(destination, value);
    }
    HostTensor transfer_to_host(const Tensor& source) { return read(source); }

    /// Live storage, newest first.
    const Storage* live() const { return live_; }

  protected:
    Device(int index, DeviceMonitor& monitor) : index_(index), monitor_(monitor) {}

    /// A backend's destructor calls this while its memory functions still exist: frees
    /// the data of what is still alive and disowns it, so that tensors may outlive their
    /// device. The monitor is not told.
    void free_all() noexcept;

  private:
    friend void intrusive_ptr_release(Storage* storage);

    void link(Storage& storage) noexcept;
    void unlink(Storage& storage) noexcept;
    void release(Storage& storage) noexcept;

    using Operands = std::initializer_list<const Tensor*>;
    struct Charge {
        const char* operation;
        SourceLine at;
        std::int64_t flops = 0;
        std::int64_t bytes = kOperands;
        Derivation derivation{};
        /// Each operand that is read counts its bytes, and each that is written.
        static constexpr std::int64_t kOperands = -1;
    };
    /// Tells the monitor of the operation, with the dtype of what it writes. `numbers` is
    /// run unless an operand is empty; then `numbers_if_empty`.
    void run(
        const Charge& charge, Operands reads, Operands writes,
        FunctionRef<void()> numbers, FunctionRef<void()> numbers_if_empty = [] {});
    /// The same for indices in [0, bound): where one lies outside, the error names it.
    void run_indexed(
        const Charge& charge, std::int64_t bound, Operands reads, Operands writes,
        FunctionRef<void()> numbers, FunctionRef<void()> numbers_if_empty = [] {});

    HostTensor read(const Tensor& source);

    /// Where there is nothing to index, the first index lies outside.
    void refuse_any_index(const Tensor& indices);

    int index_;
    DeviceMonitor& monitor_;
    MemoryCategory category_ = MemoryCategory::activations;
    Storage* live_ = nullptr;
};

/// While it lives, what the device allocates counts for `category`.
class MemoryScope {
  public:
    MemoryScope(Device& device, MemoryCategory category)
        : device_(device), before_(device.category()) {
        device.set_category(category);
    }
    ~MemoryScope() { device_.set_category(before_); }
    MemoryScope(const MemoryScope&) = delete;
    MemoryScope& operator=(const MemoryScope&) = delete;

  private:
    Device& device_;
    MemoryCategory before_;
};

/// While it lives, the device is in a phase of the training step: forward of micro-batch
/// 3, say. Timelines and diagnoses name it. In the `unit` cluster, where operations are
/// free, the phase itself costs its unit of time.
class PhaseScope {
  public:
    PhaseScope(Device& device, Phase phase, int micro_batch = -1,
               SourceLine at = SourceLine::here())
        : monitor_(device.monitor()) {
        monitor_.phase_began(phase, micro_batch, at);
    }
    ~PhaseScope() { monitor_.phase_ended(); }
    PhaseScope(const PhaseScope&) = delete;
    PhaseScope& operator=(const PhaseScope&) = delete;

  private:
    DeviceMonitor& monitor_;
};

}  // namespace lockstep
