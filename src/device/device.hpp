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
/// Each operation is a description (src/device/operations/), from which follow its checks
/// (UsageError names operation, got and expected), its cost, and what the monitor is told
/// that it reads and writes. A backend adds only how it is computed.
///
/// Shapes: a tensor of more than two dimensions is taken as the matrix (rows, columns) of
/// Shape::matrix_rows() and columns(); two that must be alike have the same rows, columns
/// and dtype. Results have the shape of the first operand, unless it says otherwise.
/// Destinations come first. Tensors may be empty: then an operation is charged, and does
/// what sums of nothing do.
///
/// Types: f32 and f64 everywhere; i32 for indices, and to move, add, multiply and
/// combine. bf16 everywhere: computed in f32 and rounded once, to even where two are as
/// near; a backend may also round attention's weights, and what follows for scores
/// backward, before it multiplies with them. Statistics of rows, sums, losses and the
/// state of attention are then f32, and optimizers take bf16 gradients for f32
/// parameters.
///
/// Tensors of another device are refused: ranks share nothing but messages. So is memory
/// shared by a destination and a source, except that of element-by-element operations the
/// two may be the same. Costs: each operand's bytes once for reading and once for
/// writing, and the flops that the operation's description counts.
class Device {
  public:
    virtual ~Device() = default;
    Device(const Device&) = delete;
    Device& operator=(const Device&) = delete;

    int index() const { return index_; }
    bool has_numbers() const { return monitor_.has_numbers(); }
    DeviceMonitor& monitor() { return monitor_; }

    /// The processor and the memory beside the device, which are a device too: it has a
    /// clock, a ledger and figures of its own, and what lies there is computed there. The
    /// program itself runs on it: what the device is asked for after something that the
    /// host computes begins no earlier than when that is done; what it was asked for
    /// before goes on meanwhile. A host is its own. Throws UsageError if there is none.
    Device& host(SourceLine at = SourceLine::here());
    /// For who makes both.
    void set_host(Device& host) { host_ = &host; }
    /// For who makes none: what host() says then.
    void set_no_host(const char* why) { no_host_ = why; }
    /// Starts a copy between a tensor of this device and one of its host, of the same
    /// dtype and as many elements. It begins when what both were asked for before is
    /// done, and the copies of its direction that were started before; it runs beside
    /// what the device does next. Waiting for it keeps the program, and so the host,
    /// until it has ended. Host memory that is not pinned (PinnedMemory) goes by way of a
    /// buffer that is, into which the host copies before, or out of which after, and the
    /// call returns when all of it is done. A copy of a replica is not known to be one:
    /// who updates parameters on the host declares them there, too (declare_replicas).
    Work start_copy(const Tensor& destination, const Tensor& source,
                    SourceLine at = SourceLine::here());

    /// Returns the time of the program, virtual or real: when what it has waited for was
    /// done. What follows from it differs from rank to rank.
    Picoseconds now() const { return monitor_.now(); }
    /// The program waits until then: what the device is asked for next begins no earlier.
    /// Nothing happens if it is later already.
    void sleep_until(Picoseconds time, SourceLine at = SourceLine::here()) {
        monitor_.sleep_until(time, at);
    }

    // Memory. Allocation counts for the category of the innermost MemoryScope.

    /// Unspecified values. Throws what the monitor throws when memory runs out.
    virtual Tensor empty(Shape shape, DType dtype,
                         SourceLine at = SourceLine::here()) = 0;
    Tensor zeros(Shape shape, DType dtype, SourceLine at = SourceLine::here());
    /// The program waits, as for download. On virtual devices each goes as if the link
    /// were the device's own, even if devices share links to the host, or copies that
    /// were started (start_copy) are under way.
    Tensor upload(const HostTensor& values, SourceLine at = SourceLine::here());
    /// Into an existing tensor of the same shape and dtype.
    virtual void upload_into(const Tensor& destination, const HostTensor& values,
                             SourceLine at = SourceLine::here()) = 0;
    /// Waits for the device. NaN, or kNoCount of i32, if the run computes shapes only;
    /// shapes and counts refuse kNoCount.
    virtual HostTensor download(const Tensor& source,
                                SourceLine at = SourceLine::here()) = 0;
    /// As download, but costs no virtual time: for records, not for programs.
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
    /// Columns [from, from + count) of source into [to, to + count) of destination; same
    /// rows.
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
    /// destination *= factor[0]: by a number (1) that only the device knows yet.
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
    /// Each element of source, rounded to the destination's type, among f32, f64 and
    /// bf16; same rows and columns.
    void cast(const Tensor& destination, const Tensor& source,
              SourceLine at = SourceLine::here()) {
        run(ops::Cast{destination, source}, at);
    }
    /// destination (1) (+)= the sum of all elements of source.
    void sum(const Tensor& destination, const Tensor& source, bool accumulate = false,
             SourceLine at = SourceLine::here()) {
        run(ops::Sum{destination, source, accumulate}, at);
    }

    /// destination (1) += the sum of x^2 over all elements: the square of a norm, of one
    /// tensor after another.
    void sum_of_squares(const Tensor& destination, const Tensor& x,
                        SourceLine at = SourceLine::here()) {
        run(ops::SumOfSquares{destination, x}, at);
    }

    // Linear algebra.

    /// op(a) (m, k) times op(b) (k, n): (m, n), or a's shape with n columns where a is
    /// not transposed. 2mkn flops.
    Tensor matmul(const Tensor& a, const Tensor& b, MatmulOptions options = {},
                  SourceLine at = SourceLine::here()) {
        return run(ops::Matmul{{}, a, b, own(options)}, at).destination;
    }
    void matmul_into(const Tensor& destination, const Tensor& a, const Tensor& b,
                     MatmulOptions options = {}, SourceLine at = SourceLine::here()) {
        run(ops::Matmul{destination, a, b, own(options), true}, at);
    }
    /// A product for each group of a's rows, rows[g] of them group g, with a matrix of
    /// its own: what layers of experts compute at once (Gale et al. 2022, MegaBlocks,
    /// 2211.15841, section 5, make one product of sparse blocks of it). See
    /// ops::GroupedMatmul for what lies where. One launch on virtual devices; on a GPU
    /// still one of cuBLAS's products a group. 2 M k n flops, if a is (M, k); a matrix
    /// whose group has no rows is not read.
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

    /// x[i] *= factors[i], row by row: as many factors as x has rows, in any shape.
    void scale_rows(const Tensor& x, const Tensor& factors,
                    SourceLine at = SourceLine::here()) {
        run(ops::ScaleRows{x, factors}, at);
    }
    /// destination[i] = the sum over j of a[i][j] b[i][j], into as many elements as there
    /// are rows: the gradient of the factors of scale_rows.
    void row_products(const Tensor& destination, const Tensor& a, const Tensor& b,
                      SourceLine at = SourceLine::here()) {
        run(ops::RowProducts{destination, a, b}, at);
    }

    /// Makes the columns of x (n, r) orthonormal, in order: column j is cleared of what
    /// it has along those before it, and gets length 1, so that the first j + 1 span what
    /// they did. By modified Gram-Schmidt, each column twice: after that they are as
    /// orthogonal as rounding lets them be (Parlett 1998, The Symmetric Eigenvalue
    /// Problem, section 6.9). A column of which nothing is left but rounding, 64 epsilon
    /// of its length, becomes zeros: those before it span it. A NaN makes its column NaN,
    /// and those behind. More columns than rows are refused. n r (4 r + 1) flops; for few
    /// columns, since one block of a GPU does it.
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
    /// Of x (rows, 2 width), a gate beside what it gates: y (rows, width) = silu(gate) *
    /// rest, with silu(g) = g / (1 + exp(-g)) (Shazeer, 2002.05202).
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

    // Batch norm over the rows (Ioffe & Szegedy 2015, 1502.03167, algorithms 1 and 2),
    // in steps between which the sums of several devices can be added up. Two passes: a
    // mean, then the squares of what is left, so that no digits cancel.

    /// The sum of each column of x (rows, columns), then the number of rows: (columns +
    /// 1). Of no rows, zeros.
    Tensor batch_sums(const Tensor& x, SourceLine at = SourceLine::here()) {
        return run(ops::BatchSums{{}, x}, at).sums;
    }
    /// From the sums of all rows, here or elsewhere: the sum over the rows of x of (x -
    /// mean)^2, (columns).
    Tensor batch_squares(const Tensor& x, const Tensor& sums,
                         SourceLine at = SourceLine::here()) {
        return run(ops::BatchSquares{{}, x, sums}, at).squares;
    }
    /// From the sums and squares of all n rows: mean and rstd = 1 / sqrt(squares / n +
    /// epsilon), (columns) each; `y` is none. Running statistics, if they are given, go
    /// `momentum` of the way to the batch's mean and to squares / (n - 1), as PyTorch's
    /// do; of one row, to 0. Of no rows at all the mean is 0, and they stay as they are.
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
    /// The sums over the rows of dy, and of dy * (x - mean) * rstd: (2, columns). They
    /// are the gradients of bias and weight, too.
    Tensor batch_norm_backward_sums(const Tensor& dy, const Tensor& x,
                                    const Normalized& moments,
                                    SourceLine at = SourceLine::here()) {
        return run(ops::BatchNormBackwardSums{{}, dy, x, moments.mean, moments.rstd}, at)
            .sums;
    }
    /// From the sums (2, columns) of all rows and their number, `count` (1), which
    /// batch_sums has last: dx = rstd * weight * (dy - sums[0] / count - (x - mean) *
    /// rstd * sums[1] / count).
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

    // Attention, head by head. The weights that each of m queries gives to each of n keys
    // are (batches, heads, m, n). Of two operands one may have fewer heads, g where the
    // other has a: see AttentionHeads.

    /// factor * x y^T of each head: x's (m, width) and y's (n, width) give (batches,
    /// heads, m, n), as many heads as x has. 2 m n width flops a head.
    Tensor head_products(const Heads& x, const Heads& y, double factor = 1,
                         SourceLine at = SourceLine::here()) {
        return run(ops::HeadProducts{{}, x, y, factor}, at).products;
    }
    /// weights (m, n) times y (n, width) of each head: (m, batches, heads width), as many
    /// heads as weights has.
    Tensor head_sums(const Tensor& weights, const Heads& y,
                     SourceLine at = SourceLine::here()) {
        return run(ops::HeadSums{{}, weights, y}, at).sums;
    }
    /// destination += factor * op(weights) y of each head, into the destination's
    /// columns. Where the destination has fewer heads than y, each gets the sum of its
    /// group's.
    void add_head_sums(const Heads& destination, const Tensor& weights, const Heads& y,
                       HeadSumOptions options = {}, SourceLine at = SourceLine::here()) {
        run(ops::AddHeadSums{destination, weights, y, options}, at);
    }

    // The same without weights in memory, some keys at a time: begin, attend to each
    // block of keys once, in any order, and finish (Dao et al. 2022, FlashAttention,
    // 2205.14135, section 3.1). Charged for the pairs of a query and a key that it sees,
    // each 4 width flops forward and 10 width backward beside the softmax; where there
    // are none, nothing is run. Heads are up to kMostHeadWidth wide.

    static constexpr std::int64_t kMostHeadWidth = ops::kMostHeadWidth;

    /// Attention that has seen no key.
    OnlineAttention begin_attention(const Heads& queries,
                                    SourceLine at = SourceLine::here());
    /// Takes the keys and their values in.
    void attend(const OnlineAttention& state, const AttentionHeads& heads,
                const AttentionOptions& options = {},
                SourceLine at = SourceLine::here()) {
        run(ops::Attend{state, heads, options}, at);
    }
    /// Makes `y` the values' mean, weighted by the softmax of the scores; 0 where a query
    /// saw no key. Gives maximum + log(sum): (b, a, m), in the place of `maximum`.
    Tensor finish_attention(const OnlineAttention& state,
                            SourceLine at = SourceLine::here()) {
        return run(ops::FinishAttention{state}, at).state.maximum;
    }
    /// The sum over the width of x y, row by row of each head: (batches, heads, m).
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
    /// layout of Llama's published weights: of each head's columns, j and j + width / 2
    /// are a point that turns by the angle position * base^(-2 j / width). Row i of the
    /// heads is the token positions[i]. The destination's other columns stay. It may be
    /// the source. An odd width is refused. Its backward is the same with
    /// options.inverse.
    void rotate(const Heads& destination, const Heads& source,
                const TokenRows& positions = {}, const RotaryOptions& options = {},
                SourceLine at = SourceLine::here()) {
        run(ops::Rotate{destination, source, positions, options, {}}, at);
    }
    /// Turns to positions that the device knows: those of row i of batch b are number
    /// i batches + b of `positions`, i32.
    void rotate_at(const Heads& destination, const Heads& source, const Tensor& positions,
                   const RotaryOptions& options = {},
                   SourceLine at = SourceLine::here()) {
        run(ops::Rotate{destination, source, {}, options, positions}, at);
    }

    // Attention over keys and values that stay on pages, (pages, rows of a page,
    // columns), as generation has it: rows of many sequences go through a model together,
    // each sees its own sequence. What is read and computed follows from `tokens`, so it
    // is charged exactly, and what does not fit is refused without numbers, too.

    /// Columns [from, from + columns of the pages) of each row of source, to the place of
    /// its token. Two rows with the same place are refused.
    void store_pages(const Tensor& pages, const Tensor& source, std::int64_t from,
                     PagedTokensRef tokens, SourceLine at = SourceLine::here()) {
        run(ops::StorePages{pages, source, from, std::move(tokens)}, at);
    }
    /// Each head's columns of x (m, b, a k) times a matrix of its own: y (m, b, a n), of
    /// matrices (a k, n) that lie one below the other; or transposed, (a n, k). 2 m b a k
    /// n flops.
    Tensor head_matmul(const Heads& x, const Tensor& matrices, MatmulOptions options = {},
                       SourceLine at = SourceLine::here()) {
        return run(ops::HeadMatmul{{}, x, matrices, own(options)}, at).y;
    }
    /// softmax(factor q K^T) V of each head and row of queries (rows, batches, …), K and
    /// V those of its sequence up to its own token: (rows, batches, heads times the width
    /// of values). Keys and values are heads of pages, seen as (pages, rows of a page,
    /// columns). A row's bits depend on its own sequence alone. Charged for the pairs of
    /// a row and a key that it sees, 2 (width + width of values) flops each beside the
    /// softmax, and for each sequence's keys and values once. Heads are up to 1,024 wide.
    Tensor attend_pages(const AttentionHeads& heads, PagedTokensRef tokens,
                        double factor = 1, SourceLine at = SourceLine::here()) {
        return attend_pages(heads, {}, std::move(tokens), factor, at);
    }
    /// Adds a second term to the scores, of queries and keys that turn with
    /// positions (DeepSeek-AI 2024, 2405.04434, section 2.1.3): factor (q K^T + q' K'^T).
    /// K' may be columns of the same pages; turned heads are up to 128 wide.
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
    /// x divided by the sum of its row, and by 1e-20 more: a row of zeros stays one.
    Tensor normalize_rows(const Tensor& x, SourceLine at = SourceLine::here()) {
        return run(ops::NormalizeRows{{}, x}, at).y;
    }
    /// dx = (dy - the row's sum of y dy) / its sum of x, and 1e-20 more; y of x.
    Tensor normalize_rows_backward(const Tensor& x, const Tensor& dy,
                                   SourceLine at = SourceLine::here()) {
        return run(ops::NormalizeRowsBackward{{}, x, dy}, at).dx;
    }
    /// Row losses -log softmax(logits)[target]: (rows). Targets, rows of them, i32; a
    /// target outside [0, columns) throws UsageError where there are numbers.
    Tensor cross_entropy(const Tensor& logits, const Tensor& targets,
                         SourceLine at = SourceLine::here()) {
        return run(ops::CrossEntropy{{}, logits, targets}, at).losses;
    }
    /// factor * (softmax(logits) - one_hot(targets)).
    Tensor cross_entropy_backward(const Tensor& logits, const Tensor& targets,
                                  double factor, SourceLine at = SourceLine::here()) {
        return run(ops::CrossEntropyBackward{{}, logits, targets, factor}, at).d_logits;
    }

    // The same of logits (rows, columns) that are a shard of all classes, by way of what
    // shards have to tell each other: the largest of all maxima, and sums of all parts.

    /// The maximum of each row: (rows). -infinity where the shard is all padding.
    Tensor row_maximum(const Tensor& logits, VocabularyShard shard = {},
                       SourceLine at = SourceLine::here()) {
        return run(ops::RowMaximum{{}, logits, shard}, at).maximum;
    }
    /// Parts (2, rows): sum over the shard of exp(logit - maximum), and the target's
    /// logit where it lies in the shard, else 0. A target is a place in the whole
    /// vocabulary.
    Tensor cross_entropy_parts(const Tensor& logits, const Tensor& targets,
                               const Tensor& maximum, VocabularyShard shard = {},
                               SourceLine at = SourceLine::here()) {
        return run(ops::CrossEntropyParts{{}, logits, targets, maximum, shard}, at).parts;
    }
    /// From the whole's maximum (rows) and summed parts (2, rows): row losses (rows).
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

    /// Row ids[i] of table (vocabulary, width) for each i: ids.shape + (width). Zeros
    /// where the table is a shard and the row is another's; charged as if all were here.
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

    // Rows by index: n indices, i32, in any shape, of rows of a matrix (rows, columns);
    // and a list (n, columns). An index outside [0, rows) throws UsageError where there
    // are numbers. Charged for the rows that are named, not for the matrix.

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

    // Columns by index, others in each row: indices (rows, k), i32. One that is outside
    // [0, columns) is refused where there are numbers. The elements named are charged.

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

    /// The k largest of each row of x (rows, columns), the largest first: into values
    /// (rows, k), and their columns into indices (rows, k), i32. Of equal ones the lower
    /// column comes first; a NaN is larger than all numbers. With k = 1, indices are what
    /// other libraries call argmax. Of columns in groups, only those of some groups are
    /// looked at. A k outside [1, columns] is refused, and one of more columns than are
    /// looked at.
    void top_k(const Tensor& values, const Tensor& indices, const Tensor& x,
               std::int64_t k, const ColumnGroups& groups = {},
               SourceLine at = SourceLine::here()) {
        run(ops::TopK{values, indices, x, k, groups}, at);
    }

    /// Sorts ids (n, k), i32, each from 0 to the number of counts: a stable counting
    /// sort, which brings what goes to one expert, say, side by side (Gale et al. 2022,
    /// 2211.15841, section 5). Of the places 0, 1, … of ids laid out flat, order (n k)
    /// has those of id 0 first, then those of id 1, and so on, each in ascending order;
    /// or by columns: those of column 0 first, each column's in ascending order. rows
    /// (n k) has the row of each such place: order[i] / k. counts[i] says how many places
    /// have the id i. All are i32, and may have any shape with that many elements. An id
    /// outside [0, counts) throws UsageError if there are numbers.
    void sort_ids(const Tensor& order, const Tensor& rows, const Tensor& counts,
                  const Tensor& ids, bool by_columns = false,
                  SourceLine at = SourceLine::here()) {
        run(ops::SortIds{order, rows, counts, ids, by_columns}, at);
    }

    // Optimizers; state and parameter are updated in place.

    /// destination (1) = min(1, most / (norm + 1e-6)), as PyTorch's clip_grad_norm_ has
    /// it, with the norm's square in squares (1): scaled by that, gradients have a norm
    /// of at most `most` (Pascanu et al. 2013, 1211.5063, section 3.2). The two may be
    /// the same memory. A negative `most` is refused.
    void clip_factor(const Tensor& destination, const Tensor& squares, double most,
                     SourceLine at = SourceLine::here()) {
        run(ops::ClipFactor{destination, squares, most}, at);
    }

    /// `velocity` may be none when momentum is 0.
    void sgd(const Tensor& parameter, const Tensor& gradient, const Tensor& velocity,
             const SgdOptions& options, SourceLine at = SourceLine::here()) {
        run(ops::Sgd{parameter, gradient, velocity, options}, at);
    }
    /// Step counts from 1 (Loshchilov & Hutter, 1711.05101, algorithm 2).
    void adamw(const Tensor& parameter, const Tensor& gradient,
               const Tensor& first_moment, const Tensor& second_moment, std::int64_t step,
               const AdamWOptions& options, SourceLine at = SourceLine::here()) {
        run(ops::AdamW{parameter, gradient, first_moment, second_moment, step, options},
            at);
    }

    // Random values: element (i, j) is number part.offset + i * part.pitch + j of the
    // stream, on every backend.

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
    /// Which number that is, `part` says. Its backward is the same of dy.
    Tensor dropout(const Tensor& x, double probability, RandomStream stream,
                   RandomPart part = {}, SourceLine at = SourceLine::here()) {
        return run(ops::Dropout{{}, x, probability, stream, part}, at).y;
    }

    /// Checks the operation, charges it, makes its results and computes them: what all
    /// functions above do.
    virtual void perform(OperationRef operation, SourceLine at) = 0;

    // Phases, categories, ways to compute: use PhaseScope, MemoryScope, RowByRow.

    MemoryCategory category() const { return category_; }
    void set_category(MemoryCategory category) { category_ = category; }
    bool pins() const { return pins_; }
    void set_pins(bool pins) { pins_ = pins; }
    bool row_by_row() const { return row_by_row_; }
    void set_row_by_row(bool row_by_row) { row_by_row_ = row_by_row; }

    // For a communicator, which charges its own cost: memory that the ledger leaves out,
    // and moves that are neither checked nor charged. Nothing happens for empty tensors.
    // The source may be another device's. Errors name `at`, the line that asked for it.

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

    /// Live storage, newest first; none of a device in another process.
    const Storage* live() const { return live_; }

  protected:
    Device(int index, DeviceMonitor& monitor) : index_(index), monitor_(monitor) {}

    /// The arithmetic alone: operands are checked and have elements.
    virtual void do_compute(OperationRef operation, SourceLine at) = 0;

    Storage* live_ = nullptr;

  private:
    template <typename Op>
    void compute_unless_empty(const Op& operation, SourceLine at) {
        if (operation.destination.elements() > 0) do_compute(OperationRef(operation), at);
    }
    friend void intrusive_ptr_release(Storage* storage);
    /// The last tensor of a storage has gone; so does the storage, after this.
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

/// While it lives, what the host allocates is pinned: it stays where it is, so that a
/// device copies from and to it by itself, beside computation and at the full rate of the
/// link. There is only so much of it on a real host.
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

/// While it lives, no row of a product of matrices depends on how many other rows there
/// are (MatmulOptions::row_by_row), if a is not transposed. So what a model gives for one
/// sequence does not depend on those that are computed with it. It takes longer: a GPU
/// computes tiles of one size, the last of which is filled up.
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
