#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "src/core/host_tensor.hpp"
#include "src/core/philox.hpp"
#include "src/core/source_line.hpp"
#include "src/core/tensor.hpp"
#include "src/device/monitor.hpp"
#include "src/device/operations.hpp"

namespace lockstep {

/// One device: memory, and operations the size of a GPU kernel.
///
/// Each operation is a description (src/device/operations/). The description gives the
/// operation's checks (UsageError names operation, got and expected), its cost, and the
/// reads and writes that are reported to the monitor. A backend adds the computation.
///
/// Shapes: a tensor of more than two dimensions is treated as a matrix with
/// Shape::matrix_rows() rows and columns() columns. If two tensors must match, they have
/// the same rows, columns and dtype. A result has the shape of the first operand unless
/// the operation's comment says otherwise. Destinations are the first arguments. An
/// operation on empty tensors is still charged; a sum of nothing is 0.
///
/// Types: every operation accepts f32 and f64. i32 is for indices, and can be moved,
/// added, multiplied and combined. Every operation also accepts bf16: it computes in f32
/// and rounds once, to nearest, ties to even. Before it multiplies, a backend may also
/// round attention's weights and, in backward, the gradients of the scores. For bf16
/// operands, statistics of rows, sums, losses and the state of attention are f32, and
/// optimizers accept bf16 gradients for f32 parameters.
///
/// Tensors of another device are refused: ranks exchange data only by messages. A
/// destination that shares memory with a source is refused, too, but in
/// element-by-element operations the two may be the same memory. Costs: the bytes of each
/// operand (once per read and once per write) and the flops of the operation's
/// description.
class Device {
  public:
    virtual ~Device() = default;
    Device(const Device&) = delete;
    Device& operator=(const Device&) = delete;

    int index() const { return index_; }
    bool has_numbers() const { return monitor_.has_numbers(); }
    DeviceMonitor& monitor() { return monitor_; }

    /// Returns the device's host: a processor and its memory. The host is a device, too,
    /// with its own clock, ledger and figures. The program runs on the host. A device
    /// operation begins only after all host operations that the program issued before it
    /// have ended. Device operations issued earlier continue meanwhile. The host of a
    /// host is itself. Throws UsageError if the device has no host.
    Device& host(SourceLine at = SourceLine::here());
    /// Called by the code that makes the device and its host.
    void set_host(Device& host) { host_ = &host; }
    /// Called by code that makes a device without a host: host() then throws with `why`.
    void set_no_host(const char* why) { no_host_ = why; }
    /// Starts a copy between a tensor of this device and a tensor of its host; both
    /// tensors have the same dtype and number of elements. The copy begins when all
    /// earlier operations of device and host, and all earlier copies in its direction,
    /// are done. The copy overlaps with later operations of the device. Waiting for the
    /// copy stops the program, and so the host, until the copy has ended. Host memory
    /// that is not pinned (PinnedMemory) is copied through a pinned buffer, which the
    /// host fills first, or empties afterwards; start_copy() returns when all is done.
    /// The copy of a replica does not count as a replica: a program that updates
    /// parameters on the host must declare them there, too (declare_replicas).
    Work start_copy(const Tensor& destination, const Tensor& source,
                    SourceLine at = SourceLine::here());

    /// Returns the program's time, virtual or real. Everything that the program waited
    /// for is done by then. Decisions that depend on this time differ between ranks.
    Picoseconds now() const { return monitor_.now(); }
    /// The program waits until `time`: the device's next operation begins no earlier.
    /// Does nothing if `time` has passed.
    void sleep_until(Picoseconds time, SourceLine at = SourceLine::here()) {
        monitor_.sleep_until(time, at);
    }

    // Memory. Allocation counts for the category of the innermost MemoryScope.

    /// Makes a tensor of unspecified values. Throws what the monitor throws when memory
    /// runs out.
    virtual Tensor empty(Shape shape, DType dtype,
                         SourceLine at = SourceLine::here()) = 0;
    Tensor zeros(Shape shape, DType dtype, SourceLine at = SourceLine::here());
    /// The program waits for the upload. On virtual devices each upload has the full rate
    /// of the link, even if devices share links to the host, or started copies
    /// (start_copy) are in progress.
    Tensor upload(const HostTensor& values, SourceLine at = SourceLine::here());
    /// Uploads into an existing tensor of the same shape and dtype.
    virtual void upload_into(const Tensor& destination, const HostTensor& values,
                             SourceLine at = SourceLine::here()) = 0;
    /// Waits for the device. If the run computes shapes only, the values are NaN, or
    /// kNoCount for i32; a shape or a count computed from kNoCount is refused.
    virtual HostTensor download(const Tensor& source,
                                SourceLine at = SourceLine::here()) = 0;
    /// Like download, but costs no virtual time: for records, not for programs.
    virtual HostTensor peek(const Tensor& source, SourceLine at = SourceLine::here()) = 0;

    // Moving and combining.

    void fill(const Tensor& destination, double value,
              SourceLine at = SourceLine::here()) {
        run(ops::Fill{destination, value}, at);
    }
    void copy(const Tensor& destination, const Tensor& source,
              SourceLine at = SourceLine::here()) {
        run(ops::Copy{destination, source}, at);
    }
    /// Copies columns [from, from + count) of source into columns [to, to + count) of
    /// destination; both have the same rows.
    void copy_columns(const Tensor& destination, std::int64_t to, const Tensor& source,
                      std::int64_t from, std::int64_t count,
                      SourceLine at = SourceLine::here()) {
        run(ops::CopyColumns{destination, to, source, from, count}, at);
    }
    /// destination += factor * source.
    void add(const Tensor& destination, const Tensor& source, double factor = 1,
             SourceLine at = SourceLine::here()) {
        run(ops::Add{destination, source, factor}, at);
    }
    void scale(const Tensor& destination, double factor,
               SourceLine at = SourceLine::here()) {
        run(ops::Scale{destination, factor}, at);
    }
    /// destination *= factor[0]. `factor` (1) is in the device's memory.
    void scale(const Tensor& destination, const Tensor& factor,
               SourceLine at = SourceLine::here()) {
        run(ops::ScaleByTensor{destination, factor}, at);
    }
    /// destination *= source, element by element.
    void multiply(const Tensor& destination, const Tensor& source,
                  SourceLine at = SourceLine::here()) {
        run(ops::Multiply{destination, source}, at);
    }
    /// destination = reduction of (destination, source), element by element; mean is
    /// refused.
    void combine(const Tensor& destination, const Tensor& source, Reduction reduction,
                 SourceLine at = SourceLine::here()) {
        run(ops::Combine{destination, source, reduction}, at);
    }
    /// Rounds each element of source to the destination's type. Both tensors are f32, f64
    /// or bf16 and have the same rows and columns.
    void cast(const Tensor& destination, const Tensor& source,
              SourceLine at = SourceLine::here()) {
        run(ops::Cast{destination, source}, at);
    }
    /// destination (1) (+)= the sum of all elements of source.
    void sum(const Tensor& destination, const Tensor& source, bool accumulate = false,
             SourceLine at = SourceLine::here()) {
        run(ops::Sum{destination, source, accumulate}, at);
    }

    /// destination (1) += the sum of x^2 over all elements. The results of several
    /// tensors add up to the square of their common norm.
    void sum_of_squares(const Tensor& destination, const Tensor& x,
                        SourceLine at = SourceLine::here()) {
        run(ops::SumOfSquares{destination, x}, at);
    }

    // Linear algebra.

    /// op(a) (m, k) times op(b) (k, n). The result is (m, n) if a is transposed, else a's
    /// shape with n columns. 2mkn flops.
    Tensor matmul(const Tensor& a, const Tensor& b, MatmulOptions options = {},
                  SourceLine at = SourceLine::here()) {
        return run(ops::Matmul{{}, a, b, own(options)}, at).destination;
    }
    void matmul_into(const Tensor& destination, const Tensor& a, const Tensor& b,
                     MatmulOptions options = {}, SourceLine at = SourceLine::here()) {
        run(ops::Matmul{destination, a, b, own(options), true}, at);
    }
    /// One product for each group of a's rows. Group g has rows[g] rows and a matrix of
    /// its own. Layers of experts compute these products together (Gale et al. 2022,
    /// MegaBlocks, 2211.15841, section 5: as one product of sparse blocks).
    /// ops::GroupedMatmul describes the layout. One launch on virtual devices; on a GPU,
    /// one cuBLAS product for each group. 2 M k n flops, if a is (M, k). The matrix of a
    /// group without rows is not read.
    void grouped_matmul(const Tensor& destination, const Tensor& a, const Tensor& b,
                        std::vector<std::int64_t> rows, MatmulOptions options = {},
                        SourceLine at = SourceLine::here()) {
        run(ops::GroupedMatmul{destination, a, b, std::move(rows), own(options)}, at);
    }
    /// y (rows, columns) += bias (columns).
    void add_bias(const Tensor& y, const Tensor& bias,
                  SourceLine at = SourceLine::here()) {
        run(ops::AddBias{y, bias}, at);
    }
    /// destination (columns) += the sum of the rows of x (rows, columns).
    void accumulate_rows(const Tensor& destination, const Tensor& x,
                         SourceLine at = SourceLine::here()) {
        run(ops::AccumulateRows{destination, x}, at);
    }

    /// x[i] *= factors[i] for each row i. `factors` has one element for each row, in any
    /// shape.
    void scale_rows(const Tensor& x, const Tensor& factors,
                    SourceLine at = SourceLine::here()) {
        run(ops::ScaleRows{x, factors}, at);
    }
    /// destination[i] = the sum over j of a[i][j] b[i][j]: one element for each row. This
    /// is the gradient of scale_rows' factors.
    void row_products(const Tensor& destination, const Tensor& a, const Tensor& b,
                      SourceLine at = SourceLine::here()) {
        run(ops::RowProducts{destination, a, b}, at);
    }

    /// Makes the columns of x (n, r) orthonormal, in order. The directions of all earlier
    /// columns are removed from column j, which then gets length 1. So the first j + 1
    /// columns span the same space as before. Each column is treated twice by modified
    /// Gram-Schmidt. After that the columns are as orthogonal as rounding allows (Parlett
    /// 1998, The Symmetric Eigenvalue Problem, section 6.9). If the removal leaves at
    /// most 64 epsilon of a column's length, the earlier columns span the column, and
    /// what remains is rounding: the column becomes zeros. A NaN makes its column and all
    /// later columns NaN. More columns than rows are refused. Costs n r (4 r + 1) flops.
    /// Meant for few columns, since a GPU computes it in one block.
    void orthonormalize(const Tensor& x, SourceLine at = SourceLine::here()) {
        run(ops::Orthonormalize{x}, at);
    }

    // Activations: y = f(x); the derivatives give dx for dy.

    Tensor tanh(const Tensor& x, SourceLine at = SourceLine::here()) {
        return run(ops::Tanh{{}, x}, at).y;
    }
    /// From y = tanh(x): dx = dy (1 - y^2).
    Tensor tanh_backward(const Tensor& y, const Tensor& dy,
                         SourceLine at = SourceLine::here()) {
        return run(ops::TanhBackward{{}, y, dy}, at).dx;
    }
    /// 1 / (1 + exp(-x)).
    Tensor sigmoid(const Tensor& x, SourceLine at = SourceLine::here()) {
        return run(ops::Sigmoid{{}, x}, at).y;
    }
    /// From y = sigmoid(x): dx = dy y (1 - y).
    Tensor sigmoid_backward(const Tensor& y, const Tensor& dy,
                            SourceLine at = SourceLine::here()) {
        return run(ops::SigmoidBackward{{}, y, dy}, at).dx;
    }
    /// GELU (Hendrycks & Gimpel, 1606.08415): x Phi(x), or with GeluForm::tanh, x (1 +
    /// tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2.
    Tensor gelu(const Tensor& x, GeluForm form = GeluForm::exact,
                SourceLine at = SourceLine::here()) {
        return run(ops::Gelu{{}, x, form}, at).y;
    }
    Tensor gelu_backward(const Tensor& x, const Tensor& dy,
                         GeluForm form = GeluForm::exact,
                         SourceLine at = SourceLine::here()) {
        return run(ops::GeluBackward{{}, x, dy, form}, at).dx;
    }
    /// x (rows, 2 width) consists of the gate and, to its right, the rest: y (rows,
    /// width) = silu(gate) * rest, with silu(g) = g / (1 + exp(-g)) (Shazeer,
    /// 2002.05202).
    Tensor swiglu(const Tensor& x, SourceLine at = SourceLine::here()) {
        return run(ops::Swiglu{{}, x}, at).y;
    }
    Tensor swiglu_backward(const Tensor& x, const Tensor& dy,
                           SourceLine at = SourceLine::here()) {
        return run(ops::SwigluBackward{{}, x, dy}, at).dx;
    }

    // Layer norm over the columns (Ba et al., 1607.06450).

    using Normalized = lockstep::Normalized;
    Normalized layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                          double epsilon = 1e-5, SourceLine at = SourceLine::here()) {
        return run(ops::LayerNorm{{}, x, weight, bias, epsilon}, at).result;
    }
    Tensor layer_norm_backward_input(const Tensor& dy, const Tensor& x,
                                     const Tensor& weight, const Normalized& saved,
                                     SourceLine at = SourceLine::here()) {
        return run(ops::LayerNormBackwardInput{{}, dy, x, weight, saved.mean, saved.rstd},
                   at)
            .dx;
    }
    /// d_weight += sum over rows of dy * (x - mean) * rstd; d_bias += sum over rows of
    /// dy.
    void layer_norm_backward_weight(const Tensor& d_weight, const Tensor& d_bias,
                                    const Tensor& dy, const Tensor& x,
                                    const Normalized& saved,
                                    SourceLine at = SourceLine::here()) {
        run(ops::LayerNormBackwardWeight{d_weight, d_bias, dy, x, saved.mean, saved.rstd},
            at);
    }

    // Root mean square norm over the columns (Zhang & Sennrich, 1910.07467): y = x *
    // rstd * weight, with rstd = 1 / sqrt(mean(x^2) + epsilon); `mean` is none.

    Normalized rms_norm(const Tensor& x, const Tensor& weight, double epsilon = 1e-5,
                        SourceLine at = SourceLine::here()) {
        const auto done = run(ops::RmsNorm{{}, {}, x, weight, epsilon}, at);
        return {done.y, {}, done.rstd};
    }
    Tensor rms_norm_backward_input(const Tensor& dy, const Tensor& x,
                                   const Tensor& weight, const Tensor& rstd,
                                   SourceLine at = SourceLine::here()) {
        return run(ops::RmsNormBackwardInput{{}, dy, x, weight, rstd}, at).dx;
    }
    /// d_weight += sum over rows of dy * x * rstd.
    void rms_norm_backward_weight(const Tensor& d_weight, const Tensor& dy,
                                  const Tensor& x, const Tensor& rstd,
                                  SourceLine at = SourceLine::here()) {
        run(ops::RmsNormBackwardWeight{d_weight, dy, x, rstd}, at);
    }

    // Batch norm over the rows (Ioffe & Szegedy 2015, 1502.03167, algorithms 1 and 2), in
    // steps. Between the steps, the sums of several devices can be added up. The first
    // pass is for the mean, the second for squared distances, so that no digits cancel.

    /// The sum of each column of x (rows, columns), then the number of rows: (columns +
    /// 1). Zeros if x has no rows.
    Tensor batch_sums(const Tensor& x, SourceLine at = SourceLine::here()) {
        return run(ops::BatchSums{{}, x}, at).sums;
    }
    /// From the sums of all devices' rows: the sum of (x - mean)^2 over the rows of x,
    /// (columns).
    Tensor batch_squares(const Tensor& x, const Tensor& sums,
                         SourceLine at = SourceLine::here()) {
        return run(ops::BatchSquares{{}, x, sums}, at).squares;
    }
    /// From the sums and squares of all n rows: mean and rstd = 1 / sqrt(squares / n +
    /// epsilon), (columns) each; `y` is none. If running statistics are given, they move
    /// by the fraction `momentum` towards the batch's mean and squares / (n - 1), as in
    /// PyTorch; for one row, the latter is 0. If there are no rows, the mean is 0, and
    /// running statistics do not change.
    Normalized batch_moments(const Tensor& sums, const Tensor& squares,
                             const RunningMoments& running = {}, double epsilon = 1e-5,
                             SourceLine at = SourceLine::here()) {
        const auto done =
            run(ops::BatchMoments{{}, {}, sums, squares, running, epsilon}, at);
        return {{}, done.mean, done.rstd};
    }
    /// y = (x - mean) * rstd * weight + bias.
    Tensor batch_norm(const Tensor& x, const Normalized& moments, const Tensor& weight,
                      const Tensor& bias, SourceLine at = SourceLine::here()) {
        return run(ops::BatchNorm{{}, x, moments.mean, moments.rstd, weight, bias}, at).y;
    }
    /// The sums of dy, and of dy * (x - mean) * rstd, over the rows: (2, columns). The
    /// sums are also the gradients of bias and weight.
    Tensor batch_norm_backward_sums(const Tensor& dy, const Tensor& x,
                                    const Normalized& moments,
                                    SourceLine at = SourceLine::here()) {
        return run(ops::BatchNormBackwardSums{{}, dy, x, moments.mean, moments.rstd}, at)
            .sums;
    }
    /// From the sums (2, columns) of all rows and the number of rows, `count` (1), the
    /// last element of batch_sums: dx = rstd * weight * (dy - sums[0] / count - (x -
    /// mean) * rstd * sums[1] / count).
    Tensor batch_norm_backward_input(const Tensor& dy, const Tensor& x,
                                     const Tensor& weight, const Normalized& moments,
                                     const Tensor& sums, const Tensor& count,
                                     SourceLine at = SourceLine::here()) {
        return run(
                   ops::BatchNormBackwardInput{
                       {}, dy, x, weight, moments.mean, moments.rstd, sums, count},
                   at)
            .dx;
    }

    // Attention, head by head. The weights of m queries for n keys are (batches, heads,
    // m, n). Of two operands, one may have fewer heads (g) than the other (a): see
    // AttentionHeads.

    /// factor * x y^T for each head: x's (m, width) and y's (n, width) give (batches,
    /// heads, m, n), with the heads of x. 2 m n width flops for each head.
    Tensor head_products(const Heads& x, const Heads& y, double factor = 1,
                         SourceLine at = SourceLine::here()) {
        return run(ops::HeadProducts{{}, x, y, factor}, at).products;
    }
    /// weights (m, n) times y (n, width) for each head: (m, batches, heads width), with
    /// the heads of weights.
    Tensor head_sums(const Tensor& weights, const Heads& y,
                     SourceLine at = SourceLine::here()) {
        return run(ops::HeadSums{{}, weights, y}, at).sums;
    }
    /// destination += factor * op(weights) y for each head, into the destination's
    /// columns. If the destination has fewer heads than y, each of its heads gets the sum
    /// of a group of y's heads.
    void add_head_sums(const Heads& destination, const Tensor& weights, const Heads& y,
                       HeadSumOptions options = {}, SourceLine at = SourceLine::here()) {
        run(ops::AddHeadSums{destination, weights, y, options}, at);
    }

    // Attention without weights in memory, some keys at a time: begin, attend to each
    // block of keys once, in any order, and finish (Dao et al. 2022, FlashAttention,
    // 2205.14135, section 3.1). For each pair of a query and a key that the query sees, 4
    // width flops are charged forward and 10 width backward, plus the softmax. If there
    // is no pair, nothing runs. Heads are at most kMostHeadWidth wide.

    static constexpr std::int64_t kMostHeadWidth = ops::kMostHeadWidth;

    /// Returns the state of attention that has seen no key.
    OnlineAttention begin_attention(const Heads& queries,
                                    SourceLine at = SourceLine::here());
    /// Adds the keys and their values to the state.
    void attend(const OnlineAttention& state, const AttentionHeads& heads,
                const AttentionOptions& options = {},
                SourceLine at = SourceLine::here()) {
        run(ops::Attend{state, heads, options}, at);
    }
    /// Turns `y` into the mean of the values, weighted by the softmax of the scores; 0 if
    /// a query saw no key. Overwrites `maximum` with maximum + log(sum), (b, a, m), and
    /// returns it.
    Tensor finish_attention(const OnlineAttention& state,
                            SourceLine at = SourceLine::here()) {
        return run(ops::FinishAttention{state}, at).state.maximum;
    }
    /// The sum of x y over the width, for each row of each head: (batches, heads, m).
    Tensor head_row_products(const Heads& x, const Heads& y,
                             SourceLine at = SourceLine::here()) {
        return run(ops::HeadRowProducts{{}, x, y}, at).products;
    }
    /// Adds what these keys and values contribute to the three gradients. With p =
    /// exp(factor q k - log_sum_exp) and ds = factor p (dy v - dy_y): dq += ds k, dk +=
    /// ds^T q, dv += p^T dy.
    void attend_backward(const AttentionHeads& gradients, const AttentionHeads& heads,
                         const AttentionBackward& backward,
                         const AttentionOptions& options = {},
                         SourceLine at = SourceLine::here()) {
        run(ops::AttendBackward{gradients, heads, backward, options}, at);
    }

    /// Rotary positions (Su et al. 2021, RoFormer, 2104.09864, section 3.2.2), in the
    /// layout of Llama's published weights: columns j and j + width / 2 of each head are
    /// a point, which turns by the angle position * base^(-2 j / width). Row i of the
    /// heads is token positions[i]. The destination's other columns do not change. The
    /// destination may be the source. An odd width is refused. The backward is the same
    /// operation with options.inverse.
    void rotate(const Heads& destination, const Heads& source,
                const TokenRows& positions = {}, const RotaryOptions& options = {},
                SourceLine at = SourceLine::here()) {
        run(ops::Rotate{destination, source, positions, options, {}}, at);
    }
    /// Like rotate(), with positions in the device's memory: the position of row i of
    /// batch b is element i batches + b of `positions`, i32.
    void rotate_at(const Heads& destination, const Heads& source, const Tensor& positions,
                   const RotaryOptions& options = {},
                   SourceLine at = SourceLine::here()) {
        run(ops::Rotate{destination, source, {}, options, positions}, at);
    }

    // Attention over keys and values that stay on pages of shape (pages, rows of a page,
    // columns), as in generation. Rows of many sequences go through a model together, and
    // each row sees only its own sequence. `tokens` says what is read and computed, so
    // the charge is exact. Tokens that do not fit are refused even if the run computes
    // shapes only.

    /// Copies columns [from, from + columns of the pages) of each row of source to the
    /// place of the row's token. Two rows with the same place are refused.
    void store_pages(const Tensor& pages, const Tensor& source, std::int64_t from,
                     PagedTokensRef tokens, SourceLine at = SourceLine::here()) {
        run(ops::StorePages{pages, source, from, std::move(tokens)}, at);
    }
    /// The columns of each head of x (m, b, a k) times the head's own matrix: y (m, b, a
    /// n). The matrices are one below the other in (a k, n), or transposed in (a n, k). 2
    /// m b a k n flops.
    Tensor head_matmul(const Heads& x, const Tensor& matrices, MatmulOptions options = {},
                       SourceLine at = SourceLine::here()) {
        return run(ops::HeadMatmul{{}, x, matrices, own(options)}, at).y;
    }
    /// softmax(factor q K^T) V for each head and row of queries (rows, batches, …):
    /// (rows, batches, heads times the width of values). K and V are the keys and values
    /// of the row's sequence, up to the row's token. Keys and values are heads of pages,
    /// seen as (pages, rows of a page, columns). A row's bits depend only on its own
    /// sequence. For each pair of a row and a key that the row sees, 2 (width + width of
    /// values) flops are charged, plus the softmax. The bytes of each sequence's keys and
    /// values are charged once. Heads are at most 1,024 wide.
    Tensor attend_pages(const AttentionHeads& heads, PagedTokensRef tokens,
                        double factor = 1, SourceLine at = SourceLine::here()) {
        return attend_pages(heads, {}, std::move(tokens), factor, at);
    }
    /// Adds a second term to the scores: factor (q K^T + q' K'^T), where q' and K' turn
    /// with positions (DeepSeek-AI 2024, 2405.04434, section 2.1.3). K' may be columns of
    /// the same pages. Turned heads are at most 128 wide.
    Tensor attend_pages(const AttentionHeads& heads, const TurnedHeads& turned,
                        PagedTokensRef tokens, double factor = 1,
                        SourceLine at = SourceLine::here()) {
        return run(ops::AttendPages{{},
                                    heads.queries,
                                    heads.keys,
                                    heads.values,
                                    std::move(tokens),
                                    factor,
                                    turned.queries,
                                    turned.keys},
                   at)
            .y;
    }

    // Softmax and losses.

    /// Returns the softmax of each row.
    Tensor softmax(const Tensor& x, SoftmaxOptions options = {},
                   SourceLine at = SourceLine::here()) {
        return run(ops::Softmax{{}, x, options}, at).y;
    }
    Tensor softmax_backward(const Tensor& y, const Tensor& dy,
                            SourceLine at = SourceLine::here()) {
        return run(ops::SoftmaxBackward{{}, y, dy}, at).dx;
    }
    /// The logarithm of the sum of exp(x) of each row: (rows).
    Tensor log_sum_exp(const Tensor& x, SourceLine at = SourceLine::here()) {
        return run(ops::LogSumExp{{}, x}, at).y;
    }
    /// x / (the sum of its row + 1e-20): a row of zeros stays a row of zeros.
    Tensor normalize_rows(const Tensor& x, SourceLine at = SourceLine::here()) {
        return run(ops::NormalizeRows{{}, x}, at).y;
    }
    /// dx = (dy - sum(y * dy)) / (sum(x) + 1e-20) in each row, with y =
    /// normalize_rows(x).
    Tensor normalize_rows_backward(const Tensor& x, const Tensor& dy,
                                   SourceLine at = SourceLine::here()) {
        return run(ops::NormalizeRowsBackward{{}, x, dy}, at).dx;
    }
    /// The loss -log softmax(logits)[target] of each row: (rows). Targets are i32, one
    /// for each row. A target outside [0, columns) throws UsageError if the run computes
    /// numbers.
    Tensor cross_entropy(const Tensor& logits, const Tensor& targets,
                         SourceLine at = SourceLine::here()) {
        return run(ops::CrossEntropy{{}, logits, targets}, at).losses;
    }
    /// factor * (softmax(logits) - one_hot(targets)).
    Tensor cross_entropy_backward(const Tensor& logits, const Tensor& targets,
                                  double factor, SourceLine at = SourceLine::here()) {
        return run(ops::CrossEntropyBackward{{}, logits, targets, factor}, at).d_logits;
    }

    // Cross entropy of logits (rows, columns) that are a shard of all classes. Between
    // the steps, the program all-reduces the shards' maxima (maximum) and parts (sum).

    /// The maximum of each row: (rows). -infinity if the shard is all padding.
    Tensor row_maximum(const Tensor& logits, VocabularyShard shard = {},
                       SourceLine at = SourceLine::here()) {
        return run(ops::RowMaximum{{}, logits, shard}, at).maximum;
    }
    /// Parts (2, rows): the sum of exp(logit - maximum) over the shard, and the target's
    /// logit if the shard has it, else 0. A target is an index into the whole vocabulary.
    Tensor cross_entropy_parts(const Tensor& logits, const Tensor& targets,
                               const Tensor& maximum, VocabularyShard shard = {},
                               SourceLine at = SourceLine::here()) {
        return run(ops::CrossEntropyParts{{}, logits, targets, maximum, shard}, at).parts;
    }
    /// The losses (rows), from the maximum (rows) and the summed parts (2, rows) of all
    /// shards.
    Tensor cross_entropy_of_parts(const Tensor& maximum, const Tensor& parts,
                                  SourceLine at = SourceLine::here()) {
        return run(ops::CrossEntropyOfParts{{}, maximum, parts}, at).losses;
    }
    /// The shard's columns of factor * (softmax(logits) - one_hot(targets)); 0 in
    /// padding.
    Tensor cross_entropy_backward_of_parts(const Tensor& logits, const Tensor& targets,
                                           const Tensor& maximum, const Tensor& parts,
                                           double factor, VocabularyShard shard = {},
                                           SourceLine at = SourceLine::here()) {
        return run(
                   ops::CrossEntropyBackwardOfParts{
                       {}, logits, targets, maximum, parts, factor, shard},
                   at)
            .d_logits;
    }

    /// Sum of (prediction - target)^2 over all elements: (1).
    Tensor squared_error(const Tensor& prediction, const Tensor& target,
                         SourceLine at = SourceLine::here()) {
        return run(ops::SquaredError{{}, prediction, target}, at).loss;
    }
    /// factor * 2 (prediction - target).
    Tensor squared_error_backward(const Tensor& prediction, const Tensor& target,
                                  double factor, SourceLine at = SourceLine::here()) {
        return run(ops::SquaredErrorBackward{{}, prediction, target, factor}, at)
            .d_prediction;
    }

    // Embedding.

    /// Row ids[i] of table (vocabulary, width) for each i: ids.shape + (width). If the
    /// table is a shard, other shards' rows are zeros; all rows are charged.
    Tensor embedding(const Tensor& table, const Tensor& ids, VocabularyShard shard = {},
                     SourceLine at = SourceLine::here()) {
        return run(ops::Embedding{{}, table, ids, shard}, at).rows;
    }
    /// d_table[ids[i]] += dy[i], in order of i, for the rows that the table holds.
    void embedding_backward(const Tensor& d_table, const Tensor& ids, const Tensor& dy,
                            VocabularyShard shard = {},
                            SourceLine at = SourceLine::here()) {
        run(ops::EmbeddingBackward{d_table, ids, dy, shard}, at);
    }

    // Rows by index: n indices (i32, any shape) name rows of a matrix (rows, columns); a
    // list (n, columns) has one row for each index. An index outside [0, rows) throws
    // UsageError if the run computes numbers. The named rows are charged, not the matrix.

    /// destination[i] = source[indices[i]]; destination is the list. Of any type.
    void take_rows(const Tensor& destination, const Tensor& source, const Tensor& indices,
                   SourceLine at = SourceLine::here()) {
        run(ops::TakeRows{destination, source, indices}, at);
    }
    /// destination[indices[i]] += source[i], in order of i; source is the list.
    void add_rows(const Tensor& destination, const Tensor& source, const Tensor& indices,
                  SourceLine at = SourceLine::here()) {
        run(ops::AddRows{destination, source, indices}, at);
    }

    // Columns by index, different columns in each row: indices (rows, k), i32. An index
    // outside [0, columns) is refused if the run computes numbers. The named elements are
    // charged.

    /// destination[i][j] = source[i][indices[i][j]]: (rows, k).
    void take_columns(const Tensor& destination, const Tensor& source,
                      const Tensor& indices, SourceLine at = SourceLine::here()) {
        run(ops::TakeColumns{destination, source, indices}, at);
    }
    /// destination[i][indices[i][j]] += source[i][j], in order of j.
    void add_columns(const Tensor& destination, const Tensor& source,
                     const Tensor& indices, SourceLine at = SourceLine::here()) {
        run(ops::AddColumns{destination, source, indices}, at);
    }

    /// Writes the k largest of each row of x (rows, columns), the largest first, into
    /// values (rows, k), and their columns into indices (rows, k), i32. If values are
    /// equal, the lower column comes first; a NaN is larger than all numbers. With k = 1,
    /// indices are what other libraries call argmax. If columns have groups, only the
    /// chosen groups are searched. A k outside [1, columns], or larger than the number of
    /// searched columns, is refused.
    void top_k(const Tensor& values, const Tensor& indices, const Tensor& x,
               std::int64_t k, const ColumnGroups& groups = {},
               SourceLine at = SourceLine::here()) {
        run(ops::TopK{values, indices, x, k, groups}, at);
    }

    /// Sorts ids (n, k), i32, by a stable counting sort. The sort brings, for example,
    /// all copies for one expert side by side (Gale et al. 2022, 2211.15841, section 5).
    /// The places of ids are numbered 0, 1, … row by row. order (n k) gets the places
    /// with id 0 first, then those with id 1, and so on. Places of one id are in
    /// ascending order; if by_columns, those in column 0 come first, then those in column
    /// 1, and so on. rows (n k) gets the row of each place: order[i] / k. counts[i] gets
    /// the number of places with id i. order, rows and counts are i32, in any shape. An
    /// id outside [0, number of counts) throws UsageError if the run computes numbers.
    void sort_ids(const Tensor& order, const Tensor& rows, const Tensor& counts,
                  const Tensor& ids, bool by_columns = false,
                  SourceLine at = SourceLine::here()) {
        run(ops::SortIds{order, rows, counts, ids, by_columns}, at);
    }

    // Optimizers; state and parameter are updated in place.

    /// destination (1) = min(1, most / (norm + 1e-6)), as in PyTorch's clip_grad_norm_;
    /// squares (1) is the square of the norm. Gradients scaled by this factor have a norm
    /// of at most `most` (Pascanu et al. 2013, 1211.5063, section 3.2). destination and
    /// squares may be the same memory. A negative `most` is refused.
    void clip_factor(const Tensor& destination, const Tensor& squares, double most,
                     SourceLine at = SourceLine::here()) {
        run(ops::ClipFactor{destination, squares, most}, at);
    }

    /// `velocity` may be none if momentum is 0.
    void sgd(const Tensor& parameter, const Tensor& gradient, const Tensor& velocity,
             const SgdOptions& options, SourceLine at = SourceLine::here()) {
        run(ops::Sgd{parameter, gradient, velocity, options}, at);
    }
    /// `step` is counted from 1 (Loshchilov & Hutter, 1711.05101, algorithm 2).
    void adamw(const Tensor& parameter, const Tensor& gradient,
               const Tensor& first_moment, const Tensor& second_moment, std::int64_t step,
               const AdamWOptions& options, SourceLine at = SourceLine::here()) {
        run(ops::AdamW{parameter, gradient, first_moment, second_moment, step, options},
            at);
    }

    // Random values: element (i, j) is the stream's number at the index part.offset + i *
    // part.pitch + j, on every backend.

    void random_uniform(const Tensor& destination, RandomStream stream, double low,
                        double high, RandomPart part = {},
                        SourceLine at = SourceLine::here()) {
        run(ops::RandomUniform{destination, stream, low, high, part}, at);
    }
    void random_normal(const Tensor& destination, RandomStream stream, double mean,
                       double deviation, RandomPart part = {},
                       SourceLine at = SourceLine::here()) {
        run(ops::RandomNormal{destination, stream, mean, deviation, part}, at);
    }

    /// Dropout (Srivastava et al. 2014, JMLR 15, section 4): y = x / (1 - probability),
    /// or 0 for an element whose number, uniform in [0, 1), is below the probability.
    /// `part` says which numbers are used. The backward is the same operation on dy.
    Tensor dropout(const Tensor& x, double probability, RandomStream stream,
                   RandomPart part = {}, SourceLine at = SourceLine::here()) {
        return run(ops::Dropout{{}, x, probability, stream, part}, at).y;
    }

    /// Checks the operation, charges it, makes its results and computes them. All
    /// operations above call this function.
    virtual void perform(OperationRef operation, SourceLine at) = 0;

    // Phases, categories, ways to compute. Programs use PhaseScope, MemoryScope,
    // PinnedMemory and RowByRow instead.

    MemoryCategory category() const { return category_; }
    void set_category(MemoryCategory category) { category_ = category; }
    bool pins() const { return pins_; }
    void set_pins(bool pins) { pins_ = pins; }
    bool row_by_row() const { return row_by_row_; }
    void set_row_by_row(bool row_by_row) { row_by_row_ = row_by_row; }

    // For communicators, which charge their own costs: scratch() makes memory that the
    // ledger leaves out; transfers are neither checked nor charged. Empty tensors are
    // skipped. The source may be on another device. Errors name `at`, the caller's line.

    virtual Tensor scratch(Shape shape, DType dtype, SourceLine at = {}) = 0;
    virtual HostTensor transfer_to_host(const Tensor& source, SourceLine at = {}) = 0;
    virtual void transfer_from_host(const Tensor& destination, const HostTensor& values,
                                    SourceLine at = {}) = 0;
    void transfer(const Tensor& destination, const Tensor& source, SourceLine at = {}) {
        compute_unless_empty(ops::Copy{destination, source}, at);
    }
    void transfer_combine(const Tensor& destination, const Tensor& source,
                          Reduction reduction, SourceLine at = {}) {
        compute_unless_empty(ops::Combine{destination, source, reduction}, at);
    }
    void transfer_scale(const Tensor& destination, double factor, SourceLine at = {}) {
        compute_unless_empty(ops::Scale{destination, factor}, at);
    }
    void transfer_fill(const Tensor& destination, double value, SourceLine at = {}) {
        compute_unless_empty(ops::Fill{destination, value}, at);
    }

    /// Returns the live storage, newest first; null for a device in another process.
    const Storage* live() const { return live_; }

  protected:
    Device(int index, DeviceMonitor& monitor) : index_(index), monitor_(monitor) {}

    /// Does only the arithmetic. The operands are checked already, and are not empty.
    virtual void do_compute(OperationRef operation, SourceLine at) = 0;

    Storage* live_ = nullptr;

  private:
    template <typename Op>
    void compute_unless_empty(const Op& operation, SourceLine at) {
        if (operation.destination.elements() > 0) do_compute(OperationRef(operation), at);
    }
    friend void intrusive_ptr_release(Storage* storage);
    /// Called when the last tensor of a storage is destroyed. The storage is deleted
    /// afterwards.
    virtual void release(Storage& storage) noexcept = 0;

    MatmulOptions own(MatmulOptions options) const {
        if (row_by_row_ && !options.transpose_a) options.row_by_row = true;
        return options;
    }

    template <typename Op>
    Op run(Op operation, SourceLine at) {
        perform(OperationRef(operation), at);
        return operation;
    }

    int index_;
    DeviceMonitor& monitor_;
    MemoryCategory category_ = MemoryCategory::activations;
    bool pins_ = false;
    bool row_by_row_ = false;
    Device* host_ = nullptr;
    const char* no_host_ = "this device was made without a host";
};

/// While it lives, memory that the device allocates counts for `category`.
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

/// While it lives, memory that the host allocates is pinned: the system does not move it.
/// So a device can copy from and to this memory while the device computes, and at the
/// full rate of the link. A real host has only a limited amount of pinned memory.
class PinnedMemory {
  public:
    explicit PinnedMemory(Device& host) : host_(host), before_(host.pins()) {
        host.set_pins(true);
    }
    ~PinnedMemory() { host_.set_pins(before_); }
    PinnedMemory(const PinnedMemory&) = delete;
    PinnedMemory& operator=(const PinnedMemory&) = delete;

  private:
    Device& host_;
    bool before_;
};

/// While it lives, no row of a product of matrices depends on the number of other rows
/// (MatmulOptions::row_by_row), if a is not transposed. So a model's result for one
/// sequence does not depend on the sequences that are computed with it. Products then
/// take longer: a GPU computes tiles of one size and pads the last tile.
class RowByRow {
  public:
    explicit RowByRow(Device& device) : device_(device), before_(device.row_by_row()) {
        device.set_row_by_row(true);
    }
    ~RowByRow() { device_.set_row_by_row(before_); }
    RowByRow(const RowByRow&) = delete;
    RowByRow& operator=(const RowByRow&) = delete;

  private:
    Device& device_;
    bool before_;
};

/// While it lives, the device is in a phase of the training step: for example, in the
/// forward of micro-batch 3. Timelines and diagnoses name the phase. In the `unit`
/// cluster operations are free, and the phase itself costs its unit of time.
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
