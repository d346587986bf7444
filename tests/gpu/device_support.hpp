#pragma once

#include <functional>

#include "gpu/device.hpp"
#include "tests/device/support.hpp"

namespace lockstep::test {

/// Uploads `values` so that its data begins `shift` elements into its storage.
inline Tensor uploaded(Bench& bench, const HostTensor& values, std::int64_t shift = 0) {
    const Tensor room = bench->empty({shift + values.elements()}, values.dtype());
    const Tensor tensor = room.rows(shift, values.elements()).reshaped(values.shape());
    bench->upload_into(tensor, values);
    return tensor;
}

/// An operation of two tensors of one shape and a row of columns; its result.
struct NamedOperation {
    const char* name;
    std::function<HostTensor(Bench&, const Tensor& a, const Tensor& b, const Tensor& row)>
        run;
};

/// The first half of the rows of a matrix beside the second, in one twice as wide; and
/// a matrix of the shape that its gates give.
inline Tensor gated(const Tensor& a) {
    const std::int64_t rows = a.shape().rows() / 2;
    return a.rows(0, 2 * rows).reshaped({rows, 2 * a.shape().columns()});
}
inline Tensor like_gates(const Tensor& b) {
    return b.rows(0, b.shape().rows() / 2);
}

/// A matrix as logits, of which the last column is padding.
struct PaddedLogits {
    PaddedLogits(Bench& bench, const Tensor& a)
        : shard{3, 3 + a.shape().columns() - 1},
          targets(bench->empty({a.shape().rows()}, DType::i32)),
          maximum(bench->row_maximum(a, shard)) {
        bench->fill(targets, 4);
        parts = bench->cross_entropy_parts(a, targets, maximum, shard);
    }
    VocabularyShard shard;
    Tensor targets, maximum, parts;
};

/// Every operation whose sums could be taken in one order or another, and whose operands
/// could be loaded in one way or another.
inline std::vector<NamedOperation> operations_to_repeat() {
    using B = Bench;
    using T = const Tensor;
    const auto result_of = [](auto&& operation) {
        return [operation](B& bench, T& a, T& b, T& row) {
            return bench->download(operation(bench, a, b, row));
        };
    };
    return {
        {"gelu", result_of([](B& x, T& a, T&, T&) { return x->gelu(a); })},
        {"softmax", result_of([](B& x, T& a, T&, T&) { return x->softmax(a); })},
        {"softmax_backward",
         result_of([](B& x, T& a, T& b, T&) { return x->softmax_backward(a, b); })},
        {"causal_softmax",
         result_of([](B& x, T& a, T&, T&) { return x->softmax(a, {true}); })},
        {"causal_softmax_by_tokens", result_of([](B& x, T& a, T&, T&) {
             const auto all_of = [](std::int64_t tokens) {
                 return TokenRows{TokenOrder::striped, 1, tokens, 0};
             };
             return x->softmax(
                 a, {true, all_of(a.shape().rows()), all_of(a.shape().columns())});
         })},
        {"swiglu", result_of([](B& x, T& a, T&, T&) { return x->swiglu(gated(a)); })},
        {"swiglu_backward", result_of([](B& x, T& a, T& b, T&) {
             return x->swiglu_backward(gated(a), like_gates(b));
         })},
        {"cross_entropy_of_parts", result_of([](B& x, T& a, T&, T&) {
             const PaddedLogits of(x, a);
             return x->cross_entropy_of_parts(of.maximum, of.parts);
         })},
        {"cross_entropy_backward_of_parts", result_of([](B& x, T& a, T&, T&) {
             const PaddedLogits of(x, a);
             return x->cross_entropy_backward_of_parts(a, of.targets, of.maximum,
                                                       of.parts, 0.3, of.shard);
         })},
        {"squared_error",
         result_of([](B& x, T& a, T& b, T&) { return x->squared_error(a, b); })},
        {"sum", result_of([](B& x, T& a, T&, T&) {
             const Tensor sum = x->empty({1}, a.dtype());
             x->sum(sum, a);
             return sum;
         })},
        {"add", result_of([](B& x, T& a, T& b, T&) {
             x->add(a, b, 0.3);
             return a;
         })},
        {"add_bias", result_of([](B& x, T& a, T&, T& row) {
             x->add_bias(a, row);
             return a;
         })},
        {"accumulate_rows", result_of([](B& x, T& a, T&, T& row) {
             x->accumulate_rows(row, a);
             return row;
         })},
        {"layer_norm",
         result_of([](B& x, T& a, T&, T& row) { return x->layer_norm(a, row, row).y; })},
        {"layer_norm_backward_input", result_of([](B& x, T& a, T& b, T& row) {
             return x->layer_norm_backward_input(b, a, row, x->layer_norm(a, row, row));
         })},
        {"layer_norm_backward_weight", result_of([](B& x, T& a, T& b, T& row) {
             const Tensor d_bias = x->zeros(row.shape(), row.dtype());
             const Device::Normalized saved = x->layer_norm(a, row, row);
             x->layer_norm_backward_weight(row, d_bias, b, a, saved);
             x->add(row, d_bias);
             return row;
         })},
        {"rms_norm",
         result_of([](B& x, T& a, T&, T& row) { return x->rms_norm(a, row).y; })},
        {"rms_norm_backward_input", result_of([](B& x, T& a, T& b, T& row) {
             return x->rms_norm_backward_input(b, a, row, x->rms_norm(a, row).rstd);
         })},
        {"rms_norm_backward_weight", result_of([](B& x, T& a, T& b, T& row) {
             x->rms_norm_backward_weight(row, b, a, x->rms_norm(a, row).rstd);
             return row;
         })},
    };
}

}  // namespace lockstep::test
