#pragma once

#include <cstddef>
#include <cstdint>

#include "src/core/host_tensor.hpp"
#include "src/core/philox.hpp"
#include "src/core/tensor.hpp"
#include "src/device/heads.hpp"
#include "src/device/options.hpp"

namespace lockstep {

/// What a norm gives.
struct Normalized {
    Tensor y;     ///< (rows, columns)
    Tensor mean;  ///< (rows)
    Tensor rstd;  ///< (rows), 1 / sqrt(variance + epsilon)
};

/// What a backend computes: the arithmetic behind Device's operations, which say what
/// each means. Operands are checked and have elements; sgd's velocity may be none. A
/// shard's `whole` is never 0 here.
class DeviceBackend {
  public:
    virtual ~DeviceBackend() = default;

    /// What is thrown from operations that take indices where one lies outside; the
    /// operation turns it into a UsageError with the caller's line. Destinations that
    /// were to be written hold anything then; ones that were to be added to are
    /// unchanged.
    struct IndexOutside {
        std::int64_t position;
        std::int64_t index;
    };

    virtual std::byte* do_allocate(std::int64_t bytes) = 0;
    virtual void do_free(std::byte* data) noexcept = 0;
    virtual void do_upload(const Tensor& destination, const HostTensor& values) = 0;
    virtual void do_download(HostTensor& values, const Tensor& source) = 0;

    virtual void do_fill(const Tensor& destination, double value) = 0;
    /// The source may be another device's of the same backend.
    virtual void do_copy(const Tensor& destination, const Tensor& source) = 0;
    virtual void do_copy_columns(const Tensor& destination, std::int64_t to,
                                 const Tensor& source, std::int64_t from,
                                 std::int64_t count) = 0;
    virtual void do_add(const Tensor& destination, const Tensor& source,
                        double factor) = 0;
    virtual void do_scale(const Tensor& destination, double factor) = 0;
    virtual void do_multiply(const Tensor& destination, const Tensor& source) = 0;
    virtual void do_combine(const Tensor& destination, const Tensor& source,
                            Reduction reduction) = 0;
    virtual void do_sum(const Tensor& destination, const Tensor& source,
                        bool accumulate) = 0;
    virtual void do_matmul(const Tensor& destination, const Tensor& a, const Tensor& b,
                           const MatmulOptions& options) = 0;
    virtual void do_add_bias(const Tensor& y, const Tensor& bias) = 0;
    virtual void do_accumulate_rows(const Tensor& destination, const Tensor& x) = 0;
    virtual void do_tanh(const Tensor& y, const Tensor& x) = 0;
    virtual void do_tanh_backward(const Tensor& dx, const Tensor& y,
                                  const Tensor& dy) = 0;
    virtual void do_gelu(const Tensor& y, const Tensor& x) = 0;
    virtual void do_gelu_backward(const Tensor& dx, const Tensor& x,
                                  const Tensor& dy) = 0;
    virtual void do_swiglu(const Tensor& y, const Tensor& x) = 0;
    virtual void do_swiglu_backward(const Tensor& dx, const Tensor& x,
                                    const Tensor& dy) = 0;
    virtual void do_layer_norm(const Normalized& result, const Tensor& x,
                               const Tensor& weight, const Tensor& bias,
                               double epsilon) = 0;
    virtual void do_layer_norm_backward_input(const Tensor& dx, const Tensor& dy,
                                              const Tensor& x, const Tensor& weight,
                                              const Normalized& saved) = 0;
    virtual void do_layer_norm_backward_weight(const Tensor& d_weight,
                                               const Tensor& d_bias, const Tensor& dy,
                                               const Tensor& x,
                                               const Normalized& saved) = 0;
    virtual void do_rms_norm(const Tensor& y, const Tensor& rstd, const Tensor& x,
                             const Tensor& weight, double epsilon) = 0;
    virtual void do_rms_norm_backward_input(const Tensor& dx, const Tensor& dy,
                                            const Tensor& x, const Tensor& weight,
                                            const Tensor& rstd) = 0;
    virtual void do_rms_norm_backward_weight(const Tensor& d_weight, const Tensor& dy,
                                             const Tensor& x, const Tensor& rstd) = 0;
    virtual void do_head_products(const Tensor& products, const Heads& x, const Heads& y,
                                  double factor) = 0;
    /// destination (+)= factor * op(weights) y of each head. Where it does not
    /// accumulate, the destination's heads take all of its tensor.
    virtual void do_head_sums(const Heads& destination, const Tensor& weights,
                              const Heads& y, const HeadSumOptions& options,
                              bool accumulate) = 0;
    /// products (b, a, m) of x and y, both (m, b, a width).
    virtual void do_head_row_products(const Tensor& products, const Heads& x,
                                      const Heads& y) = 0;
    /// At least one query sees a key.
    virtual void do_attend(const OnlineAttention& state, const AttentionHeads& heads,
                           const AttentionOptions& options) = 0;
    virtual void do_finish_attention(const Tensor& log_sum_exp,
                                     const OnlineAttention& state) = 0;
    /// At least one query sees a key.
    virtual void do_attend_backward(const AttentionHeads& gradients,
                                    const AttentionHeads& heads,
                                    const AttentionBackward& backward,
                                    const AttentionOptions& options) = 0;
    virtual void do_softmax(const Tensor& y, const Tensor& x,
                            const SoftmaxOptions& options) = 0;
    virtual void do_softmax_backward(const Tensor& dx, const Tensor& y,
                                     const Tensor& dy) = 0;
    virtual void do_cross_entropy(const Tensor& losses, const Tensor& logits,
                                  const Tensor& targets) = 0;
    virtual void do_cross_entropy_backward(const Tensor& d_logits, const Tensor& logits,
                                           const Tensor& targets, double factor) = 0;
    virtual void do_row_maximum(const Tensor& maximum, const Tensor& logits,
                                const VocabularyShard& shard) = 0;
    virtual void do_cross_entropy_parts(const Tensor& parts, const Tensor& logits,
                                        const Tensor& targets, const Tensor& maximum,
                                        const VocabularyShard& shard) = 0;
    virtual void do_cross_entropy_of_parts(const Tensor& losses, const Tensor& maximum,
                                           const Tensor& parts) = 0;
    virtual void do_cross_entropy_backward_of_parts(const Tensor& d_logits,
                                                    const Tensor& logits,
                                                    const Tensor& targets,
                                                    const Tensor& maximum,
                                                    const Tensor& parts, double factor,
                                                    const VocabularyShard& shard) = 0;
    virtual void do_squared_error(const Tensor& loss, const Tensor& prediction,
                                  const Tensor& target) = 0;
    virtual void do_squared_error_backward(const Tensor& d_prediction,
                                           const Tensor& prediction, const Tensor& target,
                                           double factor) = 0;
    virtual void do_embedding(const Tensor& rows, const Tensor& table, const Tensor& ids,
                              const VocabularyShard& shard) = 0;
    virtual void do_embedding_backward(const Tensor& d_table, const Tensor& ids,
                                       const Tensor& dy,
                                       const VocabularyShard& shard) = 0;
    virtual void do_sgd(const Tensor& parameter, const Tensor& gradient,
                        const Tensor& velocity, const SgdOptions& options) = 0;
    virtual void do_adamw(const Tensor& parameter, const Tensor& gradient,
                          const Tensor& first_moment, const Tensor& second_moment,
                          std::int64_t step, const AdamWOptions& options) = 0;
    virtual void do_random_uniform(const Tensor& destination, RandomStream stream,
                                   double low, double high, std::int64_t offset) = 0;
    virtual void do_random_normal(const Tensor& destination, RandomStream stream,
                                  double mean, double deviation, std::int64_t offset) = 0;
};

}  // namespace lockstep
