#include <fmt/format.h>

#include "src/device/check_heads.hpp"
#include "src/device/flops.hpp"

namespace lockstep {

Tensor Device::softmax(const Tensor& x, SoftmaxOptions options, SourceLine at) {
    const Check check(*this, "softmax", at);
    check.real("x", x);
    check.that(!options.causal || x.shape().dimensions() >= 2, [&] {
        return fmt::format(
            "x has shape {}; (…, queries, keys) is expected where it is "
            "causal",
            x.shape().text());
    });
    if (options.causal) {
        check_tokens(check, "queries", options.queries,
                     x.shape()[x.shape().dimensions() - 2]);
        check_tokens(check, "keys", options.keys, x.shape().columns());
    }
    Tensor y = empty(x.shape(), x.dtype(), at);
    run({"softmax", at, flops::kSoftmax * x.elements()}, {&x}, {&y},
        [&] { do_softmax(y, x, options); });
    return y;
}

Tensor Device::softmax_backward(const Tensor& y, const Tensor& dy, SourceLine at) {
    const Check check(*this, "softmax_backward", at);
    check.real("y", y);
    check.like("dy", dy, "y", y);
    Tensor dx = empty(y.shape(), y.dtype(), at);
    run({"softmax_backward", at, flops::kSoftmaxBackward * y.elements(),
         Charge::kOperands, Derivation::linear_in(1)},
        {&y, &dy}, {&dx}, [&] { do_softmax_backward(dx, y, dy); });
    return dx;
}

Tensor Device::cross_entropy(const Tensor& logits, const Tensor& targets, SourceLine at) {
    const Check check(*this, "cross_entropy", at);
    const Shape& shape = logits.shape();
    check.real("logits", logits);
    check.count("targets", targets, shape.rows(), DType::i32);
    Tensor losses = empty({shape.rows()}, logits.dtype(), at);
    run_indexed(
        {"cross_entropy", at, flops::kCrossEntropy * logits.elements()}, shape.columns(),
        {&logits, &targets}, {&losses},
        [&] { do_cross_entropy(losses, logits, targets); },
        [&] { refuse_any_index(targets); });
    return losses;
}

Tensor Device::cross_entropy_backward(const Tensor& logits, const Tensor& targets,
                                      double factor, SourceLine at) {
    const Check check(*this, "cross_entropy_backward", at);
    const Shape& shape = logits.shape();
    check.real("logits", logits);
    check.count("targets", targets, shape.rows(), DType::i32);
    Tensor d_logits = empty(shape, logits.dtype(), at);
    run_indexed(
        {"cross_entropy_backward", at, flops::kCrossEntropyBackward * logits.elements(),
         Charge::kOperands, Derivation::loss_gradient(factor)},
        shape.columns(), {&logits, &targets}, {&d_logits},
        [&] { do_cross_entropy_backward(d_logits, logits, targets, factor); },
        [&] { refuse_any_index(targets); });
    return d_logits;
}

Tensor Device::squared_error(const Tensor& prediction, const Tensor& target,
                             SourceLine at) {
    const Check check(*this, "squared_error", at);
    check.real("prediction", prediction);
    check.like("target", target, "prediction", prediction);
    Tensor loss = empty({1}, prediction.dtype(), at);
    run(
        {"squared_error", at, flops::kSquaredError * prediction.elements()},
        {&prediction, &target}, {&loss},
        [&] { do_squared_error(loss, prediction, target); }, [&] { do_fill(loss, 0); });
    return loss;
}

Tensor Device::squared_error_backward(const Tensor& prediction, const Tensor& target,
                                      double factor, SourceLine at) {
    const Check check(*this, "squared_error_backward", at);
    check.real("prediction", prediction);
    check.like("target", target, "prediction", prediction);
    Tensor d_prediction = empty(prediction.shape(), prediction.dtype(), at);
    run({"squared_error_backward", at,
         flops::kSquaredErrorBackward * prediction.elements(), Charge::kOperands,
         Derivation::loss_gradient(factor)},
        {&prediction, &target}, {&d_prediction},
        [&] { do_squared_error_backward(d_prediction, prediction, target, factor); });
    return d_prediction;
}

}  // namespace lockstep
