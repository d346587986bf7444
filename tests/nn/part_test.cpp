#include "src/nn/part.hpp"

#include <cmath>

#include "src/nn/linear.hpp"
#include "tests/nn/fixture.hpp"

namespace lockstep::nn_test {

TEST_CASE("A shard's initial values are the slice of the whole", "[nn][sim]") {
    OneDevice one;
    Linear whole(one.init("layer"), 6, 8);
    const double bound = 1 / std::sqrt(6.0);
    const auto check = [&](const Part& part) {
        const Parameter shard(one.init("layer"), "weight", part);
        draw_uniform(shard, 7, bound);
        CHECK(one.device.download(shard.value) ==
              shard_of(one.device.download(whole.weight().value), part));
    };
    check(row_part({8, 6}, 0, 8));
    check(row_part({8, 6}, 2, 3));
    check(column_part({8, 6}, 4, 2));
    check(stacked_part({8, 6}, {4, 4}, 2, 1));
    check(stacked_part({8, 6}, {4, 4}, 3, 1));     // padded
    check(stacked_part({8, 6}, {4, 2, 2}, 2, 1));  // of layers with unequal rows

    const Parameter bias(one.init("layer"), "bias", row_part({8}, 4, 3));
    draw_uniform(bias, 7, bound);
    CHECK(one.device.download(bias.value) ==
          one.device.download(whole.bias()->value.slice(4, 3)));
}

TEST_CASE("Rows beyond the whole are padding, and start as zeros", "[nn][sim]") {
    OneDevice one;
    const Part part = row_part({7, 2}, 6, 3);
    const Parameter shard(one.init("table"), "weight", part);
    draw_normal(shard, 7);
    const HostTensor values = one.device.download(shard.value);
    CHECK(values.at(0) != 0);
    CHECK(values.rows(1, 2) == HostTensor({2, 2}, DType::f64));

    const Part nothing = row_part({7, 2}, 9, 3);
    const Parameter padding(one.init("table"), "weight", nothing);
    draw_normal(padding, 7);
    CHECK(one.device.download(padding.value) == HostTensor({3, 2}, DType::f64));
}

}  // namespace lockstep::nn_test
