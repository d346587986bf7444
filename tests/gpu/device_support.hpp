#pragma once

#include <functional>

#include "gpu/device.hpp"
#include "tests/device/support.hpp"

namespace lockstep::test {

/// Uploads `values` to a tensor that begins `shift` elements into its storage.
inline Tensor uploaded(Bench& bench, const HostTensor& values, std::int64_t shift = 0) {
    const Tensor room = bench->empty({shift + values.elements()}, values.dtype());
    Tensor tensor = room.rows(shift, values.elements()).reshaped(values.shape());
    bench->upload_into(tensor, values);
    return tensor;
}

/// An operation on two tensors of one shape and on one row; `run` returns its result.
struct NamedOperation {
    const char* name;
    std::function<HostTensor(Bench&, const Tensor& a, const Tensor& b, const Tensor& row)>
        run;
};

/// gated() returns half as many rows of twice the width: gates, then gated columns.
/// like_gates() returns a matrix with the shape of a gated result.
inline Tensor gated(const Tensor& a) {
    const std::int64_t rows = a.shape().matrix_rows() / 2;
    return a.rows(0, 2 * rows).reshaped({rows, 2 * a.shape().columns()});
}
inline Tensor like_gates(const Tensor& b) {
    return b.rows(0, b.shape().matrix_rows() / 2);
}

/// Returns the first elements of a matrix as a matrix of two columns.
inline Tensor tall(const Tensor& a) {
    const std::int64_t rows = a.elements() / 2;
    return a.flat().slice(0, 2 * rows).reshaped({rows, 2});
}

/// Uses a matrix as logits. The last column is padding.
struct PaddedLogits {
    PaddedLogits(Bench& bench, const Tensor& a)
        : shard{3, 3 + a.shape().columns() - 1},
          targets(bench->empty({a.shape().matrix_rows()}, DType::i32)),
          maximum(bench->row_maximum(a, shard)) {
        bench->fill(targets, 4);
        parts = bench->cross_entropy_parts(a, targets, maximum, shard);
    }
    VocabularyShard shard;
    Tensor targets, maximum, parts;
};

/// Returns an operation with a name. Its result is downloaded to the host.
template <typename Operation>
NamedOperation named(const char* name, Operation operation) {
    return {name, [operation](Bench& bench, const Tensor& a, const Tensor& b,
                              const Tensor& row) {
                return bench->download(operation(bench, a, b, row));
            }};
}

/// Activations, gates and norms.
inline std::vector<NamedOperation> repeated_by_row() {
    using B = Bench;
    using T = const Tensor;
    return {
        named("gelu", [](B& x, T& a, T&, T&) { return x->gelu(a); }),
        named("gelu_by_tanh",
              [](B& x, T& a, T&, T&) { return x->gelu(a, GeluForm::tanh); }),
        named(
            "gelu_by_tanh_backward",
            [](B& x, T& a, T& b, T&) { return x->gelu_backward(a, b, GeluForm::tanh); }),
        named("top_k",
              [](B& x, T& a, T&, T&) {
                  Tensor values = x->empty({a.shape().matrix_rows(), 3}, a.dtype());
                  x->top_k(values, x->empty(values.shape(), DType::i32), a, 3);
                  return values;
              }),
        named("sort_ids",
              [](B& x, T& a, T&, T&) {
                  const Tensor ids = x->empty({a.shape().matrix_rows(), 3}, DType::i32);
                  x->top_k(x->empty(ids.shape(), a.dtype()), ids, a, 3);
                  Tensor order = x->empty({ids.elements()}, DType::i32);
                  x->sort_ids(order, x->empty(order.shape(), DType::i32),
                              x->empty({a.shape().columns()}, DType::i32), ids);
                  return order;
              }),
        named("sigmoid", [](B& x, T& a, T&, T&) { return x->sigmoid(a); }),
        named("sigmoid_backward",
              [](B& x, T& a, T& b, T&) { return x->sigmoid_backward(a, b); }),
        named("log_sum_exp", [](B& x, T& a, T&, T&) { return x->log_sum_exp(a); }),
        named("normalize_rows", [](B& x, T& a, T&, T&) { return x->normalize_rows(a); }),
        named("normalize_rows_backward",
              [](B& x, T& a, T& b, T&) { return x->normalize_rows_backward(a, b); }),
        named("take_columns",
              [](B& x, T& a, T&, T&) {
                  Tensor list = x->empty({a.shape().matrix_rows(), 3}, a.dtype());
                  const Tensor which = x->empty(list.shape(), DType::i32);
                  x->top_k(x->empty(list.shape(), a.dtype()), which, a, 3);
                  x->take_columns(list, a, which);
                  x->add_columns(a, list, which);
                  return a;
              }),
    };
}

/// Softmax, rotations and gated activations.
inline std::vector<NamedOperation> repeated_in_attention() {
    using B = Bench;
    using T = const Tensor;
    return {
        named("softmax", [](B& x, T& a, T&, T&) { return x->softmax(a); }),
        named("softmax_backward",
              [](B& x, T& a, T& b, T&) { return x->softmax_backward(a, b); }),
        named("causal_softmax", [](B& x, T& a, T&, T&) { return x->softmax(a, {true}); }),
        named("causal_softmax_by_tokens",
              [](B& x, T& a, T&, T&) {
                  const auto all_of = [](std::int64_t tokens) {
                      return TokenRows{TokenOrder::striped, 1, tokens, 0};
                  };
                  return x->softmax(a, {true, all_of(a.shape().matrix_rows()),
                                        all_of(a.shape().columns())});
              }),
        named("rotate",
              [](B& x, T& a, T&, T&) {
                  const Shape& shape = a.shape();
                  const Heads heads{a.reshaped({shape.matrix_rows(), 1, shape.columns()}),
                                    1, shape.columns() / 2 * 2};
                  x->rotate(heads, heads);
                  return a;
              }),
        named("swiglu", [](B& x, T& a, T&, T&) { return x->swiglu(gated(a)); }),
        named("swiglu_backward",
              [](B& x, T& a, T& b, T&) {
                  return x->swiglu_backward(gated(a), like_gates(b));
              }),
    };
}

/// Losses, sums and operations that add.
inline std::vector<NamedOperation> repeated_losses() {
    using B = Bench;
    using T = const Tensor;
    return {
        named("cross_entropy_of_parts",
              [](B& x, T& a, T&, T&) {
                  const PaddedLogits logits(x, a);
                  return x->cross_entropy_of_parts(logits.maximum, logits.parts);
              }),
        named("cross_entropy_backward_of_parts",
              [](B& x, T& a, T&, T&) {
                  const PaddedLogits logits(x, a);
                  return x->cross_entropy_backward_of_parts(
                      a, logits.targets, logits.maximum, logits.parts, 0.3, logits.shard);
              }),
        named("squared_error",
              [](B& x, T& a, T& b, T&) { return x->squared_error(a, b); }),
    };
}

inline std::vector<NamedOperation> repeated_sums() {
    using B = Bench;
    using T = const Tensor;
    return {
        named("sum",
              [](B& x, T& a, T&, T&) {
                  Tensor sum = x->empty({1}, computed_in(a.dtype()));
                  x->sum(sum, a);
                  return sum;
              }),
        named("add",
              [](B& x, T& a, T& b, T&) {
                  x->add(a, b, 0.3);
                  return a;
              }),
        named("scale_by_tensor",
              [](B& x, T& a, T&, T& row) {
                  const Tensor factor = x->empty({1}, computed_in(a.dtype()));
                  x->cast(factor, row.slice(0, 1));
                  x->scale(a, factor);
                  return a;
              }),
        named("add_bias",
              [](B& x, T& a, T&, T& row) {
                  x->add_bias(a, row);
                  return a;
              }),
        named("scale_rows",
              [](B& x, T& a, T& b, T&) {
                  x->scale_rows(a, b.flat().slice(0, a.shape().matrix_rows()));
                  return a;
              }),
        named("row_products",
              [](B& x, T& a, T& b, T&) {
                  Tensor products = x->empty({a.shape().matrix_rows()}, a.dtype());
                  x->row_products(products, a, b);
                  return products;
              }),
        named("accumulate_rows",
              [](B& x, T& a, T&, T& row) {
                  x->accumulate_rows(row, a);
                  return row;
              }),
        named("orthonormalize",
              [](B& x, T& a, T&, T&) {
                  x->orthonormalize(tall(a));
                  return a;
              }),
    };
}

/// Norms.
inline std::vector<NamedOperation> repeated_norms() {
    using B = Bench;
    using T = const Tensor;
    return {
        named("layer_norm",
              [](B& x, T& a, T&, T& row) { return x->layer_norm(a, row, row).y; }),
        named("layer_norm_backward_input",
              [](B& x, T& a, T& b, T& row) {
                  return x->layer_norm_backward_input(b, a, row,
                                                      x->layer_norm(a, row, row));
              }),
        named("layer_norm_backward_weight",
              [](B& x, T& a, T& b, T& row) {
                  const std::int64_t columns = row.elements();
                  Tensor both = x->zeros({2, columns}, row.dtype());
                  const Device::Normalized saved = x->layer_norm(a, row, row);
                  const Tensor of_both = both.flat();
                  x->layer_norm_backward_weight(of_both.slice(0, columns),
                                                of_both.slice(columns, columns), b, a,
                                                saved);
                  return both;
              }),
        named("rms_norm", [](B& x, T& a, T&, T& row) { return x->rms_norm(a, row).y; }),
        named("rms_norm_backward_input",
              [](B& x, T& a, T& b, T& row) {
                  return x->rms_norm_backward_input(b, a, row, x->rms_norm(a, row).rstd);
              }),
        named("rms_norm_backward_weight",
              [](B& x, T& a, T& b, T& row) {
                  x->rms_norm_backward_weight(row, b, a, x->rms_norm(a, row).rstd);
                  return row;
              }),
    };
}

/// Batch norm, which sums over the rows.
inline std::vector<NamedOperation> repeated_batch_norm() {
    using B = Bench;
    using T = const Tensor;
    const auto moments_of = [](B& x, T& a) {
        const Tensor sums = x->batch_sums(a);
        return x->batch_moments(sums, x->batch_squares(a, sums));
    };
    return {
        named("batch_sums", [](B& x, T& a, T&, T&) { return x->batch_sums(a); }),
        named("batch_squares",
              [](B& x, T& a, T&, T&) { return x->batch_squares(a, x->batch_sums(a)); }),
        named("batch_norm",
              [=](B& x, T& a, T&, T& row) {
                  return x->batch_norm(a, moments_of(x, a), row, row);
              }),
        named("batch_norm_backward_sums",
              [=](B& x, T& a, T& b, T&) {
                  return x->batch_norm_backward_sums(b, a, moments_of(x, a));
              }),
        named("batch_norm_backward_input",
              [=](B& x, T& a, T& b, T& row) {
                  const Normalized moments = moments_of(x, a);
                  const Tensor count = x->batch_sums(a).slice(row.elements(), 1);
                  return x->batch_norm_backward_input(
                      b, a, row, moments, x->batch_norm_backward_sums(b, a, moments),
                      count);
              }),
        named("dropout",
              [](B& x, T& a, T&, T&) {
                  return x->dropout(a, 0.4, RandomStream(3, "dropout"), {5, 10000});
              }),
    };
}

/// Returns the operations that could add up in different orders, or load operands in
/// different ways. Each result is rounded once.
inline std::vector<NamedOperation> operations_to_repeat() {
    std::vector<NamedOperation> all = repeated_by_row();
    for (const auto& more : {repeated_in_attention(), repeated_losses(), repeated_sums(),
                             repeated_norms(), repeated_batch_norm()})
        all.insert(all.end(), more.begin(), more.end());
    return all;
}

}  // namespace lockstep::test
