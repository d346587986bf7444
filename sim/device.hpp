#pragma once

#include "src/device/device.hpp"

namespace lockstep::sim {

/// A virtual device: memory on the host, arithmetic by Eigen on the thread that runs it.
///
/// Results depend on the operands' values and shapes alone: not on where in memory they
/// lie, nor on the thread. What is computed element by element does not depend on the
/// element's place either, so a shard's values are the bits of the whole's. Sums are
/// taken in f64, products of matrices in the operands' type.
class Device final : public lockstep::Device {
  public:
    Device(int index, DeviceMonitor& monitor);
    ~Device() override;

  private:
    // device.cpp: memory and host copies.
    std::byte* do_allocate(std::int64_t bytes) override;
    void do_free(std::byte* data) noexcept override;
    void do_upload(const Tensor& destination, const HostTensor& values) override;
    void do_download(HostTensor& values, const Tensor& source) override;

    // device_move.cpp: moving and combining.
    void do_fill(const Tensor& destination, double value) override;
    void do_copy(const Tensor& destination, const Tensor& source) override;
    void do_copy_columns(const Tensor& destination, std::int64_t to, const Tensor& source,
                         std::int64_t from, std::int64_t count) override;
    void do_add(const Tensor& destination, const Tensor& source, double factor) override;
    void do_scale(const Tensor& destination, double factor) override;
    void do_multiply(const Tensor& destination, const Tensor& source) override;
    void do_combine(const Tensor& destination, const Tensor& source,
                    Reduction reduction) override;
    void do_sum(const Tensor& destination, const Tensor& source,
                bool accumulate) override;

    // device_matrix.cpp
    void do_matmul(const Tensor& destination, const Tensor& a, const Tensor& b,
                   const MatmulOptions& options) override;
    void do_add_bias(const Tensor& y, const Tensor& bias) override;
    void do_accumulate_rows(const Tensor& destination, const Tensor& x) override;

    // device_activation.cpp
    void do_tanh(const Tensor& y, const Tensor& x) override;
    void do_tanh_backward(const Tensor& dx, const Tensor& y, const Tensor& dy) override;
    void do_gelu(const Tensor& y, const Tensor& x) override;
    void do_gelu_backward(const Tensor& dx, const Tensor& x, const Tensor& dy) override;
    void do_swiglu(const Tensor& y, const Tensor& x) override;
    void do_swiglu_backward(const Tensor& dx, const Tensor& x, const Tensor& dy) override;

    // device_norm.cpp
    void do_layer_norm(const Normalized& result, const Tensor& x, const Tensor& weight,
                       const Tensor& bias, double epsilon) override;
    void do_layer_norm_backward_input(const Tensor& dx, const Tensor& dy, const Tensor& x,
                                      const Tensor& weight,
                                      const Normalized& saved) override;
    void do_layer_norm_backward_weight(const Tensor& d_weight, const Tensor& d_bias,
                                       const Tensor& dy, const Tensor& x,
                                       const Normalized& saved) override;
    void do_rms_norm(const Tensor& y, const Tensor& rstd, const Tensor& x,
                     const Tensor& weight, double epsilon) override;
    void do_rms_norm_backward_input(const Tensor& dx, const Tensor& dy, const Tensor& x,
                                    const Tensor& weight, const Tensor& rstd) override;
    void do_rms_norm_backward_weight(const Tensor& d_weight, const Tensor& dy,
                                     const Tensor& x, const Tensor& rstd) override;

    // device_online_attention.cpp
    void do_head_row_products(const Tensor& products, const Heads& x,
                              const Heads& y) override;
    void do_attend(const OnlineAttention& state, const AttentionHeads& heads,
                   const AttentionOptions& options) override;
    void do_finish_attention(const Tensor& log_sum_exp,
                             const OnlineAttention& state) override;
    void do_attend_backward(const AttentionHeads& gradients, const AttentionHeads& heads,
                            const AttentionBackward& backward,
                            const AttentionOptions& options) override;

    // device_attention.cpp
    void do_head_products(const Tensor& products, const Heads& x, const Heads& y,
                          double factor) override;
    void do_head_sums(const Heads& destination, const Tensor& weights, const Heads& y,
                      const HeadSumOptions& options, bool accumulate) override;

    /// Throws IndexOutside for the first index outside [0, bound).
    static void check_indices(const Tensor& indices, std::int64_t bound);

    // device_loss.cpp: softmax and losses.
    void do_softmax(const Tensor& y, const Tensor& x,
                    const SoftmaxOptions& options) override;
    void do_softmax_backward(const Tensor& dx, const Tensor& y,
                             const Tensor& dy) override;
    void do_cross_entropy(const Tensor& losses, const Tensor& logits,
                          const Tensor& targets) override;
    void do_cross_entropy_backward(const Tensor& d_logits, const Tensor& logits,
                                   const Tensor& targets, double factor) override;
    void do_squared_error(const Tensor& loss, const Tensor& prediction,
                          const Tensor& target) override;
    void do_squared_error_backward(const Tensor& d_prediction, const Tensor& prediction,
                                   const Tensor& target, double factor) override;

    // device_vocabulary.cpp: cross entropy of a shard of all classes.
    void do_row_maximum(const Tensor& maximum, const Tensor& logits,
                        const VocabularyShard& shard) override;
    void do_cross_entropy_parts(const Tensor& parts, const Tensor& logits,
                                const Tensor& targets, const Tensor& maximum,
                                const VocabularyShard& shard) override;
    void do_cross_entropy_of_parts(const Tensor& losses, const Tensor& maximum,
                                   const Tensor& parts) override;
    void do_cross_entropy_backward_of_parts(const Tensor& d_logits, const Tensor& logits,
                                            const Tensor& targets, const Tensor& maximum,
                                            const Tensor& parts, double factor,
                                            const VocabularyShard& shard) override;

    // device_lookup.cpp: embedding and random values.
    void do_embedding(const Tensor& rows, const Tensor& table, const Tensor& ids,
                      const VocabularyShard& shard) override;
    void do_embedding_backward(const Tensor& d_table, const Tensor& ids, const Tensor& dy,
                               const VocabularyShard& shard) override;
    void do_random_uniform(const Tensor& destination, RandomStream stream, double low,
                           double high, std::int64_t offset) override;
    void do_random_normal(const Tensor& destination, RandomStream stream, double mean,
                          double deviation, std::int64_t offset) override;

    // device_optimizer.cpp
    void do_sgd(const Tensor& parameter, const Tensor& gradient, const Tensor& velocity,
                const SgdOptions& options) override;
    void do_adamw(const Tensor& parameter, const Tensor& gradient,
                  const Tensor& first_moment, const Tensor& second_moment,
                  std::int64_t step, const AdamWOptions& options) override;
};

}  // namespace lockstep::sim
