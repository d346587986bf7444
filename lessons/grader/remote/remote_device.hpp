#pragma once

#include "lessons/grader/remote/rank_line.hpp"
#include "src/device/device.hpp"

namespace lockstep::lessons {

/// Tells the grader of phases. All else that a monitor learns, the grader's own device
/// tells its own monitor.
class RemoteMonitor final : public DeviceMonitor {
  public:
    explicit RemoteMonitor(RankLine& line) : line_(line) {}

    void execute(const DeviceOperation&, FunctionRef<void()>) override {}
    void copy(CopyDirection, const Tensor&, SourceLine, FunctionRef<void()>) override {}
    void allocated(const Storage&) override {}
    void freed(const Storage& storage) noexcept override { line_.forget(storage); }
    void phase_began(Phase phase, int micro_batch, SourceLine at) override {
        line_.tell(RankRequest::phase_began, phase, micro_batch, at);
    }
    void phase_ended() noexcept override { line_.tell(RankRequest::phase_ended); }
    bool has_numbers() const override { return true; }

  private:
    RankLine& line_;
};

/// A rank's device in the process of the rank: remote_device.cpp has Device's operations,
/// each of which asks the grader, which has the device. So there is no arithmetic, and no
/// memory, here.
class RemoteDevice final : public Device {
  public:
    RemoteDevice(int index, RankLine& line)
        : Device(index, monitor_), line_(line), monitor_(line) {
        line.set_device(*this);
    }

    RankLine& line() { return line_; }

  private:
    /// What is a communicator's alone: moves that cost nothing.
    [[noreturn]] static void refuse();

    std::byte* do_allocate(std::int64_t) override { refuse(); }
    void do_free(std::byte*) noexcept override {}
    void do_upload(const Tensor&, const HostTensor&) override { refuse(); }
    void do_download(HostTensor&, const Tensor&) override { refuse(); }
    void do_fill(const Tensor&, double) override { refuse(); }
    void do_copy(const Tensor&, const Tensor&) override { refuse(); }
    void do_copy_columns(const Tensor&, std::int64_t, const Tensor&, std::int64_t,
                         std::int64_t) override {
        refuse();
    }
    void do_add(const Tensor&, const Tensor&, double) override { refuse(); }
    void do_scale(const Tensor&, double) override { refuse(); }
    void do_multiply(const Tensor&, const Tensor&) override { refuse(); }
    void do_combine(const Tensor&, const Tensor&, Reduction) override { refuse(); }
    void do_sum(const Tensor&, const Tensor&, bool) override { refuse(); }
    void do_matmul(const Tensor&, const Tensor&, const Tensor&,
                   const MatmulOptions&) override {
        refuse();
    }
    void do_add_bias(const Tensor&, const Tensor&) override { refuse(); }
    void do_accumulate_rows(const Tensor&, const Tensor&) override { refuse(); }
    void do_tanh(const Tensor&, const Tensor&) override { refuse(); }
    void do_tanh_backward(const Tensor&, const Tensor&, const Tensor&) override {
        refuse();
    }
    void do_gelu(const Tensor&, const Tensor&) override { refuse(); }
    void do_gelu_backward(const Tensor&, const Tensor&, const Tensor&) override {
        refuse();
    }
    void do_swiglu(const Tensor&, const Tensor&) override { refuse(); }
    void do_swiglu_backward(const Tensor&, const Tensor&, const Tensor&) override {
        refuse();
    }
    void do_layer_norm(const Normalized&, const Tensor&, const Tensor&, const Tensor&,
                       double) override {
        refuse();
    }
    void do_layer_norm_backward_input(const Tensor&, const Tensor&, const Tensor&,
                                      const Tensor&, const Normalized&) override {
        refuse();
    }
    void do_layer_norm_backward_weight(const Tensor&, const Tensor&, const Tensor&,
                                       const Tensor&, const Normalized&) override {
        refuse();
    }
    void do_rms_norm(const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                     double) override {
        refuse();
    }
    void do_rms_norm_backward_input(const Tensor&, const Tensor&, const Tensor&,
                                    const Tensor&, const Tensor&) override {
        refuse();
    }
    void do_rms_norm_backward_weight(const Tensor&, const Tensor&, const Tensor&,
                                     const Tensor&) override {
        refuse();
    }
    void do_head_products(const Tensor&, const Heads&, const Heads&, double) override {
        refuse();
    }
    void do_head_sums(const Heads&, const Tensor&, const Heads&, const HeadSumOptions&,
                      bool) override {
        refuse();
    }
    void do_head_row_products(const Tensor&, const Heads&, const Heads&) override {
        refuse();
    }
    void do_attend(const OnlineAttention&, const AttentionHeads&,
                   const AttentionOptions&) override {
        refuse();
    }
    void do_finish_attention(const Tensor&, const OnlineAttention&) override { refuse(); }
    void do_attend_backward(const AttentionHeads&, const AttentionHeads&,
                            const AttentionBackward&, const AttentionOptions&) override {
        refuse();
    }
    void do_softmax(const Tensor&, const Tensor&, const SoftmaxOptions&) override {
        refuse();
    }
    void do_softmax_backward(const Tensor&, const Tensor&, const Tensor&) override {
        refuse();
    }
    void do_cross_entropy(const Tensor&, const Tensor&, const Tensor&) override {
        refuse();
    }
    void do_cross_entropy_backward(const Tensor&, const Tensor&, const Tensor&,
                                   double) override {
        refuse();
    }
    void do_row_maximum(const Tensor&, const Tensor&, const VocabularyShard&) override {
        refuse();
    }
    void do_cross_entropy_parts(const Tensor&, const Tensor&, const Tensor&,
                                const Tensor&, const VocabularyShard&) override {
        refuse();
    }
    void do_cross_entropy_of_parts(const Tensor&, const Tensor&, const Tensor&) override {
        refuse();
    }
    void do_cross_entropy_backward_of_parts(const Tensor&, const Tensor&, const Tensor&,
                                            const Tensor&, const Tensor&, double,
                                            const VocabularyShard&) override {
        refuse();
    }
    void do_squared_error(const Tensor&, const Tensor&, const Tensor&) override {
        refuse();
    }
    void do_squared_error_backward(const Tensor&, const Tensor&, const Tensor&,
                                   double) override {
        refuse();
    }
    void do_embedding(const Tensor&, const Tensor&, const Tensor&,
                      const VocabularyShard&) override {
        refuse();
    }
    void do_embedding_backward(const Tensor&, const Tensor&, const Tensor&,
                               const VocabularyShard&) override {
        refuse();
    }
    void do_sgd(const Tensor&, const Tensor&, const Tensor&, const SgdOptions&) override {
        refuse();
    }
    void do_adamw(const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                  std::int64_t, const AdamWOptions&) override {
        refuse();
    }
    void do_random_uniform(const Tensor&, RandomStream, double, double,
                           std::int64_t) override {
        refuse();
    }
    void do_random_normal(const Tensor&, RandomStream, double, double,
                          std::int64_t) override {
        refuse();
    }

    RankLine& line_;
    RemoteMonitor monitor_;
};

}  // namespace lockstep::lessons
