// Device, for the process of a rank: every operation is the grader's. This file stands in
// for src/device/device*.cpp, which are not linked there.

#include "lessons/grader/remote/remote_device.hpp"

#include "lessons/grader/remote/device_calls.hpp"
#include "src/core/require.hpp"

namespace lockstep {

namespace {

using lessons::RemoteDevice;

template <auto Operation, typename... Arguments>
auto call(Device& device, const Arguments&... arguments) {
    using Signature = lessons::SignatureOf<decltype(Operation)>;
    lessons::RankLine& line = static_cast<RemoteDevice&>(device).line();
    return line.ask<typename Signature::Result>(
        lessons::RankRequest::device_call, device.category(),
        lessons::number_of_call<Operation>(), arguments...);
}

}  // namespace

void lessons::RemoteDevice::refuse() {
    throw UsageError(
        "this is for communicators; a program uses copy(), add() and the "
        "like");
}

void intrusive_ptr_release(Storage* storage) {
    if (--storage->references_ > 0) return;
    storage->device->release(*storage);
    delete storage;
}

Device::~Device() = default;

void Device::release(Storage& storage) noexcept {
    monitor_.freed(storage);
}

Tensor Device::empty(Shape shape, DType dtype, SourceLine at) {
    return call<&Device::empty>(*this, shape, dtype, at);
}

Tensor Device::zeros(Shape shape, DType dtype, SourceLine at) {
    return call<&Device::zeros>(*this, shape, dtype, at);
}

Tensor Device::upload(const HostTensor& values, SourceLine at) {
    return call<&Device::upload>(*this, values, at);
}

void Device::upload_into(const Tensor& destination, const HostTensor& values,
                         SourceLine at) {
    return call<&Device::upload_into>(*this, destination, values, at);
}

HostTensor Device::download(const Tensor& source, SourceLine at) {
    return call<&Device::download>(*this, source, at);
}

HostTensor Device::peek(const Tensor& source, SourceLine at) {
    return call<&Device::peek>(*this, source, at);
}

void Device::fill(const Tensor& destination, double value, SourceLine at) {
    return call<&Device::fill>(*this, destination, value, at);
}

void Device::copy(const Tensor& destination, const Tensor& source, SourceLine at) {
    return call<&Device::copy>(*this, destination, source, at);
}

void Device::copy_columns(const Tensor& destination, std::int64_t to,
                          const Tensor& source, std::int64_t from, std::int64_t count,
                          SourceLine at) {
    return call<&Device::copy_columns>(*this, destination, to, source, from, count, at);
}

void Device::add(const Tensor& destination, const Tensor& source, double factor,
                 SourceLine at) {
    return call<&Device::add>(*this, destination, source, factor, at);
}

void Device::scale(const Tensor& destination, double factor, SourceLine at) {
    return call<&Device::scale>(*this, destination, factor, at);
}

void Device::multiply(const Tensor& destination, const Tensor& source, SourceLine at) {
    return call<&Device::multiply>(*this, destination, source, at);
}

void Device::combine(const Tensor& destination, const Tensor& source, Reduction reduction,
                     SourceLine at) {
    return call<&Device::combine>(*this, destination, source, reduction, at);
}

void Device::sum(const Tensor& destination, const Tensor& source, bool accumulate,
                 SourceLine at) {
    return call<&Device::sum>(*this, destination, source, accumulate, at);
}

Tensor Device::matmul(const Tensor& a, const Tensor& b, MatmulOptions options,
                      SourceLine at) {
    return call<&Device::matmul>(*this, a, b, options, at);
}

void Device::matmul_into(const Tensor& destination, const Tensor& a, const Tensor& b,
                         MatmulOptions options, SourceLine at) {
    return call<&Device::matmul_into>(*this, destination, a, b, options, at);
}

void Device::add_bias(const Tensor& y, const Tensor& bias, SourceLine at) {
    return call<&Device::add_bias>(*this, y, bias, at);
}

void Device::accumulate_rows(const Tensor& destination, const Tensor& x, SourceLine at) {
    return call<&Device::accumulate_rows>(*this, destination, x, at);
}

Tensor Device::tanh(const Tensor& x, SourceLine at) {
    return call<&Device::tanh>(*this, x, at);
}

Tensor Device::tanh_backward(const Tensor& y, const Tensor& dy, SourceLine at) {
    return call<&Device::tanh_backward>(*this, y, dy, at);
}

Tensor Device::gelu(const Tensor& x, SourceLine at) {
    return call<&Device::gelu>(*this, x, at);
}

Tensor Device::gelu_backward(const Tensor& x, const Tensor& dy, SourceLine at) {
    return call<&Device::gelu_backward>(*this, x, dy, at);
}

Tensor Device::swiglu(const Tensor& x, SourceLine at) {
    return call<&Device::swiglu>(*this, x, at);
}

Tensor Device::swiglu_backward(const Tensor& x, const Tensor& dy, SourceLine at) {
    return call<&Device::swiglu_backward>(*this, x, dy, at);
}

Device::Normalized Device::layer_norm(const Tensor& x, const Tensor& weight,
                                      const Tensor& bias, double epsilon, SourceLine at) {
    return call<&Device::layer_norm>(*this, x, weight, bias, epsilon, at);
}

Tensor Device::layer_norm_backward_input(const Tensor& dy, const Tensor& x,
                                         const Tensor& weight, const Normalized& saved,
                                         SourceLine at) {
    return call<&Device::layer_norm_backward_input>(*this, dy, x, weight, saved, at);
}

void Device::layer_norm_backward_weight(const Tensor& d_weight, const Tensor& d_bias,
                                        const Tensor& dy, const Tensor& x,
                                        const Normalized& saved, SourceLine at) {
    return call<&Device::layer_norm_backward_weight>(*this, d_weight, d_bias, dy, x,
                                                     saved, at);
}

Device::Normalized Device::rms_norm(const Tensor& x, const Tensor& weight, double epsilon,
                                    SourceLine at) {
    return call<&Device::rms_norm>(*this, x, weight, epsilon, at);
}

Tensor Device::rms_norm_backward_input(const Tensor& dy, const Tensor& x,
                                       const Tensor& weight, const Tensor& rstd,
                                       SourceLine at) {
    return call<&Device::rms_norm_backward_input>(*this, dy, x, weight, rstd, at);
}

void Device::rms_norm_backward_weight(const Tensor& d_weight, const Tensor& dy,
                                      const Tensor& x, const Tensor& rstd,
                                      SourceLine at) {
    return call<&Device::rms_norm_backward_weight>(*this, d_weight, dy, x, rstd, at);
}

Tensor Device::head_products(const Heads& x, const Heads& y, double factor,
                             SourceLine at) {
    return call<&Device::head_products>(*this, x, y, factor, at);
}

Tensor Device::head_sums(const Tensor& weights, const Heads& y, SourceLine at) {
    return call<&Device::head_sums>(*this, weights, y, at);
}

void Device::add_head_sums(const Heads& destination, const Tensor& weights,
                           const Heads& y, HeadSumOptions options, SourceLine at) {
    return call<&Device::add_head_sums>(*this, destination, weights, y, options, at);
}

OnlineAttention Device::begin_attention(const Heads& queries, SourceLine at) {
    return call<&Device::begin_attention>(*this, queries, at);
}

void Device::attend(const OnlineAttention& state, const AttentionHeads& heads,
                    const AttentionOptions& options, SourceLine at) {
    return call<&Device::attend>(*this, state, heads, options, at);
}

Tensor Device::finish_attention(const OnlineAttention& state, SourceLine at) {
    return call<&Device::finish_attention>(*this, state, at);
}

Tensor Device::head_row_products(const Heads& x, const Heads& y, SourceLine at) {
    return call<&Device::head_row_products>(*this, x, y, at);
}

void Device::attend_backward(const AttentionHeads& gradients, const AttentionHeads& heads,
                             const AttentionBackward& backward,
                             const AttentionOptions& options, SourceLine at) {
    return call<&Device::attend_backward>(*this, gradients, heads, backward, options, at);
}

Tensor Device::softmax(const Tensor& x, SoftmaxOptions options, SourceLine at) {
    return call<&Device::softmax>(*this, x, options, at);
}

Tensor Device::softmax_backward(const Tensor& y, const Tensor& dy, SourceLine at) {
    return call<&Device::softmax_backward>(*this, y, dy, at);
}

Tensor Device::cross_entropy(const Tensor& logits, const Tensor& targets, SourceLine at) {
    return call<&Device::cross_entropy>(*this, logits, targets, at);
}

Tensor Device::cross_entropy_backward(const Tensor& logits, const Tensor& targets,
                                      double factor, SourceLine at) {
    return call<&Device::cross_entropy_backward>(*this, logits, targets, factor, at);
}

Tensor Device::row_maximum(const Tensor& logits, VocabularyShard shard, SourceLine at) {
    return call<&Device::row_maximum>(*this, logits, shard, at);
}

Tensor Device::cross_entropy_parts(const Tensor& logits, const Tensor& targets,
                                   const Tensor& maximum, VocabularyShard shard,
                                   SourceLine at) {
    return call<&Device::cross_entropy_parts>(*this, logits, targets, maximum, shard, at);
}

Tensor Device::cross_entropy_of_parts(const Tensor& maximum, const Tensor& parts,
                                      SourceLine at) {
    return call<&Device::cross_entropy_of_parts>(*this, maximum, parts, at);
}

Tensor Device::cross_entropy_backward_of_parts(const Tensor& logits,
                                               const Tensor& targets,
                                               const Tensor& maximum, const Tensor& parts,
                                               double factor, VocabularyShard shard,
                                               SourceLine at) {
    return call<&Device::cross_entropy_backward_of_parts>(*this, logits, targets, maximum,
                                                          parts, factor, shard, at);
}

Tensor Device::squared_error(const Tensor& prediction, const Tensor& target,
                             SourceLine at) {
    return call<&Device::squared_error>(*this, prediction, target, at);
}

Tensor Device::squared_error_backward(const Tensor& prediction, const Tensor& target,
                                      double factor, SourceLine at) {
    return call<&Device::squared_error_backward>(*this, prediction, target, factor, at);
}

Tensor Device::embedding(const Tensor& table, const Tensor& ids, VocabularyShard shard,
                         SourceLine at) {
    return call<&Device::embedding>(*this, table, ids, shard, at);
}

void Device::embedding_backward(const Tensor& d_table, const Tensor& ids,
                                const Tensor& dy, VocabularyShard shard, SourceLine at) {
    return call<&Device::embedding_backward>(*this, d_table, ids, dy, shard, at);
}

void Device::sgd(const Tensor& parameter, const Tensor& gradient, const Tensor& velocity,
                 const SgdOptions& options, SourceLine at) {
    return call<&Device::sgd>(*this, parameter, gradient, velocity, options, at);
}

void Device::adamw(const Tensor& parameter, const Tensor& gradient,
                   const Tensor& first_moment, const Tensor& second_moment,
                   std::int64_t step, const AdamWOptions& options, SourceLine at) {
    return call<&Device::adamw>(*this, parameter, gradient, first_moment, second_moment,
                                step, options, at);
}

void Device::random_uniform(const Tensor& destination, RandomStream stream, double low,
                            double high, RandomPart part, SourceLine at) {
    return call<&Device::random_uniform>(*this, destination, stream, low, high, part, at);
}

void Device::random_normal(const Tensor& destination, RandomStream stream, double mean,
                           double deviation, RandomPart part, SourceLine at) {
    return call<&Device::random_normal>(*this, destination, stream, mean, deviation, part,
                                        at);
}

}  // namespace lockstep
