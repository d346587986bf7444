#include <algorithm>

#include "gpu/device.hpp"
#include "src/device/dispatch.hpp"

namespace lockstep::gpu {

namespace {

// The heads of a batch lie side by side in each row, so one call of cuBLAS multiplies
// them all, `width` elements apart; each batch is a call. Where one operand has fewer
// heads, g of a, head h of the many meets head h / (a/g) of the few: then each of the
// a/g members of such a group is a call, of g products.

/// Where the products of one call find an operand's heads.
template <typename T>
struct Stepped {
    T* data;
    std::int64_t step;
};

/// `member`-th of each of `groups` groups of heads; the only one of each, where there are
/// as many heads as groups.
template <typename T>
Stepped<T> stepped(const Heads& heads, std::int64_t groups, std::int64_t batch,
                   std::int64_t member) {
    const std::int64_t group = heads.heads / groups;
    return {heads.tensor.data<T>() + heads.offset(batch, group == 1 ? 0 : member),
            group * heads.width};
}

/// call(batch, member) for every product of groups.
template <typename Call>
void each_call(std::int64_t batches, std::int64_t group, Call&& call) {
    for (std::int64_t batch = 0; batch < batches; ++batch)
        for (std::int64_t member = 0; member < group; ++member)
            call(batch, member);
}

}  // namespace

void Device::do_head_products(const Tensor& products, const Heads& x, const Heads& y,
                              double factor) {
    const std::int64_t m = x.rows();
    const std::int64_t n = y.rows();
    const std::int64_t group = x.heads / y.heads;
    with_real(products.dtype(), [&]<typename T>(T) {
        each_call(x.batches(), group, [&](std::int64_t batch, std::int64_t member) {
            const auto a = stepped<const T>(x, y.heads, batch, member);
            const auto b = stepped<const T>(y, y.heads, batch, 0);
            blas().multiply(Blas::Products<T>{
                .count = y.heads,
                .m = m,
                .n = n,
                .k = x.width,
                .c = products.data<T>() + (batch * x.heads + member) * m * n,
                .c_pitch = n,
                .c_step = group * m * n,
                .a = {a.data, x.pitch(), false},
                .a_step = a.step,
                .b = {b.data, y.pitch(), true},
                .b_step = b.step,
                .factor = factor,
                .accumulate = false,
            });
        });
    });
}

void Device::do_head_sums(const Heads& destination, const Tensor& weights, const Heads& y,
                          const HeadSumOptions& options, bool accumulate) {
    const std::int64_t m = destination.rows();
    const std::int64_t n = y.rows();
    const std::int64_t heads = std::max(destination.heads, y.heads);
    const std::int64_t groups = std::min(destination.heads, y.heads);
    const std::int64_t group = heads / groups;
    const bool shared = destination.heads < heads;
    with_real(weights.dtype(), [&]<typename T>(T) {
        each_call(y.batches(), group, [&](std::int64_t batch, std::int64_t member) {
            const auto c = stepped<T>(destination, groups, batch, member);
            const auto b = stepped<const T>(y, groups, batch, member);
            blas().multiply(Blas::Products<T>{
                .count = groups,
                .m = m,
                .n = y.width,
                .k = n,
                .c = c.data,
                .c_pitch = destination.pitch(),
                .c_step = c.step,
                .a = {weights.data<T>() + (batch * heads + member) * m * n,
                      options.transpose ? m : n, options.transpose},
                .a_step = group * m * n,
                .b = {b.data, y.pitch(), false},
                .b_step = b.step,
                .factor = options.factor,
                // A group's members add to the head that they share.
                .accumulate = accumulate || (shared && member > 0),
            });
        });
    });
}

}  // namespace lockstep::gpu
