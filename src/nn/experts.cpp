#include "src/nn/experts.hpp"

#include <cmath>

#include "src/core/require.hpp"
#include "src/nn/part.hpp"

namespace lockstep {

namespace {

using Share = ExpertExchange::Share;

std::int64_t own_inner(const ParameterInit& init, const Experts::Sizes& sizes,
                       const Share& share) {
    require(sizes.hidden > 0 && sizes.inner > 0 && sizes.experts > 0,
            "{}: {} experts from {} to {} columns; all must be positive", init.name,
            sizes.experts, sizes.hidden, sizes.inner);
    require(sizes.inner % share.column_ranks == 0,
            "{}: {} columns of an expert cannot be sharded over {} ranks; a multiple of "
            "{} is expected",
            init.name, sizes.inner, share.column_ranks, share.column_ranks);
    return sizes.inner / share.column_ranks;
}

/// Returns this rank's rows of the first weight: c_fc, or the gate and up layers.
Part wide_part(const ParameterInit& init, const Experts::Sizes& sizes,
               const Share& share) {
    const std::int64_t layers = sizes.gated ? 2 : 1;
    const std::int64_t own = own_inner(init, sizes, share);
    Part part;
    part.whole = {sizes.experts * layers * sizes.inner, sizes.hidden};
    part.shape = {share.count * layers * own, sizes.hidden};
    for (std::int64_t layer = 0; layer < share.count * layers; ++layer)
        part.rows.push_back(
            {layer * own,
             (share.first * layers + layer) * sizes.inner + share.column_rank * own,
             own});
    if (share.column_ranks == 1)  // all rows are adjacent in the whole weight, too
        part.rows = {{0, share.first * layers * sizes.inner, part.shape[0]}};
    return part;
}

/// Returns this rank's columns of the second weight, for each of its experts.
Part narrow_part(const ParameterInit& init, const Experts::Sizes& sizes,
                 const Share& share) {
    const std::int64_t own = own_inner(init, sizes, share);
    Part part;
    part.whole = {sizes.experts * sizes.hidden, sizes.inner};
    part.shape = {share.count * sizes.hidden, own};
    part.rows = {{0, share.first * sizes.hidden, part.shape[0]}};
    part.column = share.column_rank * own;
    return part;
}

double bound_of(std::int64_t in) {
    return 1 / std::sqrt(static_cast<double>(in));
}

}  // namespace

Experts::Experts(const ParameterInit& init, const Sizes& sizes, const Share& share,
                 int times)
    : device_(init.device),
      sizes_(sizes),
      wide_(init.child(sizes.gated ? "gate_up_proj" : "c_fc"), "weight",
            wide_part(init, sizes, share)),
      narrow_(init.child(sizes.gated ? "down_proj" : "c_proj"), "weight",
              narrow_part(init, sizes, share)) {
    start_uniform(wide_, init.seed, bound_of(sizes.hidden));
    start_uniform(narrow_, init.seed, bound_of(sizes.inner));
    wide_.uses = narrow_.uses = times;
}

void Experts::multiply(const Tensor& destination, const Tensor& a, const Tensor& b,
                       const std::vector<std::int64_t>& rows,
                       const MatmulOptions& options) const {
    if (rows.empty()) return;
    if (sizes_.grouped) return device_.grouped_matmul(destination, a, b, rows, options);
    ops::GroupedMatmul{destination, a, b, rows, options}.each_group(
        [&](const ops::Matmul& product) {
            device_.matmul_into(product.destination, product.a, product.b, options);
        });
}

// lesson: experts
// y_e (m_e, h) = act(x_e (m_e, h) W_e^T (h, inner)) V_e^T (inner, h), for each expert e
Tensor Experts::do_forward(const Tensor& x, Saved& saved) {
    const auto& rows = saved.value<std::vector<std::int64_t>>("rows");
    const std::int64_t all = x.shape().matrix_rows();
    const std::int64_t own = static_cast<std::int64_t>(rows.size());
    const Tensor wide =
        device_.empty({all, own > 0 ? wide_.shape()[0] / own : 0}, x.dtype());
    multiply(wide, x, wide_.value, rows, {.transpose_b = true});
    const Tensor inner =
        sizes_.gated ? device_.swiglu(wide) : device_.gelu(wide, sizes_.gelu);
    Tensor y = device_.empty({all, sizes_.hidden}, x.dtype());
    multiply(y, inner, narrow_.value, rows, {.transpose_b = true});
    saved.keep("x", x);
    saved.keep("wide", wide);
    saved.keep("inner", inner);
    return y;
}

// d_inner_e = dy_e V_e,  dx_e = d_wide_e W_e
Tensor Experts::do_backward_input(const Tensor& dy, Saved& saved) {
    const auto& rows = saved.value<std::vector<std::int64_t>>("rows");
    const Tensor& wide = saved.at("wide");
    const Tensor d_inner = device_.empty(saved.at("inner").shape(), dy.dtype());
    multiply(d_inner, dy, narrow_.value, rows, {});
    const Tensor d_wide = sizes_.gated
                              ? device_.swiglu_backward(wide, d_inner)
                              : device_.gelu_backward(wide, d_inner, sizes_.gelu);
    saved.drop("wide");
    saved.keep("dy", dy);
    saved.keep("d_wide", d_wide);
    if (!input_gradient()) return {};
    Tensor dx = device_.empty({dy.shape().matrix_rows(), sizes_.hidden}, dy.dtype());
    multiply(dx, d_wide, wide_.value, rows, {});
    return dx;
}

// dW_e += d_wide_e^T x_e,  dV_e += dy_e^T inner_e
void Experts::do_backward_weight(Saved& saved) {
    const auto& rows = saved.value<std::vector<std::int64_t>>("rows");
    constexpr MatmulOptions kAdds{.transpose_a = true, .accumulate = true};
    multiply(narrow_.gradient, saved.at("dy"), saved.at("inner"), rows, kAdds);
    narrow_.accumulated();
    multiply(wide_.gradient, saved.at("d_wide"), saved.at("x"), rows, kAdds);
    wide_.accumulated();
}
// lesson: end

}  // namespace lockstep
