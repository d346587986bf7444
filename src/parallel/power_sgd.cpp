#include "src/parallel/power_sgd.hpp"

#include <optional>

#include "src/comm/expect.hpp"
#include "src/core/require.hpp"
#include "src/parallel/flat_buffer.hpp"
#include "src/parallel/placement.hpp"

namespace lockstep {

namespace {

/// Returns whether r (n + m) < n m, without overflow for a large r.
bool is_worth_factors(const Shape& shape, std::int64_t r) {
    return shape.elements() > 0 &&
           r <= (shape.elements() - 1) / (shape.matrix_rows() + shape.columns());
}

std::string name_of_q(const Parameter& parameter) {
    return "q/" + parameter.name();
}

}  // namespace

PowerSgd::PowerSgd(Device& device, Communicator& replicas,
                   std::vector<Parameter*> parameters, PowerSgdOptions options)
    : GradientSync(std::move(parameters)),
      device_(device),
      replicas_(replicas),
      options_(options) {
    require_partial("PowerSgd", replicas, this->parameters());
    require(options.r > 0, "PowerSgd: r is {}; 1 or more is expected", options.r);
    std::vector<Parameter*> whole;
    for (Parameter* parameter : this->parameters()) {
        const Parameter& first = *this->parameters().front();
        require(parameter->dtype() == first.dtype(),
                "PowerSgd: {} is {}, but {} is {}; parameters of one type are expected",
                parameter->name(), name_of(parameter->dtype()), first.name(),
                name_of(first.dtype()));
        if (is_worth_factors(parameter->shape(), options.r))
            matrices_.push_back({parameter});
        else
            whole.push_back(parameter);
    }
    if (!whole.empty()) whole_ = make_flat(device, whole, &Parameter::gradient);
    if (!matrices_.empty()) make_factors();
}

void PowerSgd::make_factors() {
    const std::int64_t r = options_.r;
    const DType dtype = computed_in(matrices_.front().parameter->dtype());
    std::int64_t rows = 0, columns = 0;
    for (const Matrix& matrix : matrices_) {
        rows += matrix.parameter->shape().matrix_rows();
        columns += matrix.parameter->shape().columns();
    }
    {
        const MemoryScope scope(device_, MemoryCategory::communication);
        p_ = device_.empty({rows * r}, dtype);
        own_q_ = device_.empty({columns * r}, dtype);
    }
    const MemoryScope scope(device_, MemoryCategory::optimizer);
    q_ = device_.empty({columns * r}, dtype);
    std::int64_t row = 0, column = 0;
    for (Matrix& matrix : matrices_) {
        const Parameter& parameter = *matrix.parameter;
        const std::int64_t n = parameter.shape().matrix_rows(),
                           m = parameter.shape().columns();
        matrix.error = device_.zeros({n, m}, dtype);
        matrix.error.set_label("error/" + parameter.name());
        matrix.p = p_.slice(row * r, n * r).reshaped({n, r});
        matrix.q = q_.slice(column * r, m * r).reshaped({m, r});
        matrix.own_q = own_q_.slice(column * r, m * r).reshaped({m, r});
        device_.random_normal(matrix.q, {options_.seed, name_of_q(parameter)}, 0, 1);
        row += n;
        column += m;
    }
}

// lesson: power-sgd
void PowerSgd::finish() {
    std::optional<Work> whole;
    if (whole_) whole = replicas_.all_reduce(whole_);
    if (!matrices_.empty()) exchange_factors();
    if (whole) whole->wait();
    complete_gradients(parameters(), &replicas_);
    for (Parameter* parameter : parameters())
        parameter->complete = true;
}

void PowerSgd::exchange_factors() {
    const MemoryScope scope(device_, MemoryCategory::workspace);
    // M = gradient + error, stored in the error; P = M Q.
    for (const Matrix& matrix : matrices_) {
        revive(matrix);
        declare_same(replicas_, matrix.q, name_of_q(*matrix.parameter));
        device_.add(matrix.error, gradient_of(matrix));
        device_.matmul_into(matrix.p, matrix.error, matrix.q);
    }
    replicas_.all_reduce(p_).wait();

    // Q = M^T P.
    for (const Matrix& matrix : matrices_) {
        device_.orthonormalize(matrix.p);
        device_.matmul_into(matrix.own_q, matrix.error, matrix.p, {.transpose_a = true});
    }
    Work sum_of_q = replicas_.all_reduce(q_, own_q_, Reduction::sum);

    // Meanwhile, error = M - P (own Q)^T.
    for (const Matrix& matrix : matrices_)
        device_.add(matrix.error, product(matrix, matrix.own_q), -1);
    sum_of_q.wait();

    // gradient = P Q^T.
    for (const Matrix& matrix : matrices_) {
        const Tensor& gradient = matrix.parameter->gradient;
        const Tensor whole = product(matrix, matrix.q);
        if (whole.dtype() != gradient.dtype()) device_.cast(gradient, whole);
    }
}
// lesson: end

/// A zero column of P makes the same column of Q zero, and both would stay zero for ever.
/// So revive() adds to Q random numbers that are too small to change any other number.
/// Their size does not matter, because P's columns get length 1.
void PowerSgd::revive(const Matrix& matrix) {
    constexpr double kTooSmallToSee = 1e-20;
    device_.random_normal(matrix.own_q, {options_.seed, name_of_q(*matrix.parameter)}, 0,
                          kTooSmallToSee);
    device_.add(matrix.q, matrix.own_q);
}

/// Returns the gradient in the type of the computation.
Tensor PowerSgd::gradient_of(const Matrix& matrix) {
    const Tensor& gradient = matrix.parameter->gradient;
    if (gradient.dtype() == matrix.error.dtype()) return gradient;
    Tensor wide = device_.empty(gradient.shape(), matrix.error.dtype());
    device_.cast(wide, gradient);
    return wide;
}

/// Returns P q^T in the type of the computation; uses the gradient's memory if possible.
Tensor PowerSgd::product(const Matrix& matrix, const Tensor& q) {
    const Tensor& gradient = matrix.parameter->gradient;
    if (gradient.dtype() != matrix.error.dtype())
        return device_.matmul(matrix.p, q, {.transpose_b = true});
    device_.matmul_into(gradient, matrix.p, q, {.transpose_b = true});
    return gradient;
}

}  // namespace lockstep
