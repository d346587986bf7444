// The exact bytes that modules keep. A run's ledger shows no other bytes.
#include <cstdint>

#include "src/nn/activation.hpp"
#include "src/nn/char_model.hpp"
#include "src/nn/embedding.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/losses.hpp"
#include "src/nn/norm.hpp"
#include "src/nn/optimizer.hpp"
#include "tests/nn/fixture.hpp"

namespace lockstep::nn_test {

namespace {

std::int64_t held(const OneDevice& one, MemoryCategory category) {
    const auto& categories = one.monitor.bytes_of_category;
    const auto found = categories.find(category);
    return found == categories.end() ? 0 : found->second;
}

/// Returns the bytes of a tensor in f64.
std::int64_t bytes(const Shape& shape) {
    return shape.elements() * 8;
}

std::int64_t activations(const OneDevice& one) {
    return held(one, MemoryCategory::activations);
}

/// The bytes kept after forward, and between the halves of backward. The caller releases
/// x, y and dy.
struct Kept {
    std::int64_t after_forward;
    std::int64_t between_halves;
};

Kept kept_by(OneDevice& one, Module& module, const HostTensor& x) {
    const std::int64_t before = activations(one);
    Saved saved;
    Kept kept{};
    Shape shape = module.forward(one.device.upload(x), saved).shape();
    kept.after_forward = activations(one) - before;
    module.backward_input(one.device.zeros(shape, DType::f64), saved);
    kept.between_halves = activations(one) - before;
    module.backward_weight(saved);
    CHECK(activations(one) == before);

    shape = module.forward(one.device.upload(x), saved).shape();
    module.backward(one.device.zeros(shape, DType::f64), saved);
    CHECK(activations(one) == before);
    return kept;
}

}  // namespace

TEST_CASE("Each layer keeps exactly what its backward needs", "[nn][sim]") {
    OneDevice one;
    const std::int64_t x = bytes({5, 4});
    const HostTensor values = normal_values({5, 4}, "x");

    Linear linear(one.init("linear"), 4, 3);
    const Kept by_linear = kept_by(one, linear, values);
    CHECK(by_linear.after_forward == x);
    CHECK(by_linear.between_halves == x + bytes({5, 3}));  // dy

    LayerNorm norm(one.init("norm"), 4);
    const Kept by_norm = kept_by(one, norm, values);
    CHECK(by_norm.after_forward == x + 2 * bytes({5}));  // mean, rstd
    CHECK(by_norm.between_halves == x + 2 * bytes({5}) + x);

    Tanh tanh(one.device);
    CHECK(kept_by(one, tanh, values).after_forward == x);  // y
    CHECK(kept_by(one, tanh, values).between_halves == 0);
    Gelu gelu(one.device);
    CHECK(kept_by(one, gelu, values).after_forward == x);
    CHECK(kept_by(one, gelu, values).between_halves == 0);
    Flatten flatten;
    CHECK(kept_by(one, flatten, values).after_forward == 0);

    Embedding embedding(one.init("table"), 6, 4);
    const std::int64_t ids = bytes({5}) / 2;  // i32
    const Kept by_embedding = kept_by(one, embedding, ids_below({5}, 6, "ids"));
    CHECK(by_embedding.after_forward == ids);
    CHECK(by_embedding.between_halves == ids + bytes({5, 4}));
}

TEST_CASE("An activation without a gradient keeps nothing", "[nn][sim]") {
    OneDevice one;
    Tanh tanh(one.device);
    tanh.set_input_gradient(false);
    CHECK(kept_by(one, tanh, normal_values({5, 4}, "x")).after_forward == 0);
    Gelu gelu(one.device);
    gelu.set_input_gradient(false);
    CHECK(kept_by(one, gelu, normal_values({5, 4}, "x")).after_forward == 0);
}

TEST_CASE("Layers that keep the same tensor hold it only once", "[nn][sim]") {
    OneDevice one;
    constexpr std::int64_t kBatch = 7, kContext = 3, kWidth = 2, kHidden = 4;
    const auto model = make_char_model(one.init(""), {5, kContext, kWidth, kHidden});
    const Kept kept = kept_by(one, *model, ids_below({kBatch, kContext}, 5, "ids"));
    const std::int64_t ids = bytes({kBatch, kContext}) / 2;           // i32
    const std::int64_t embedded = bytes({kBatch, kContext, kWidth});  // flat or not
    const std::int64_t hidden = bytes({kBatch, kHidden});  // tanh's y, output's x
    const std::int64_t logits = bytes({kBatch, 5});
    CHECK(kept.after_forward == ids + embedded + hidden);
    // Between the halves, the dy of embedding, hidden and output layer are kept, too.
    CHECK(kept.between_halves == ids + embedded + hidden + embedded + hidden + logits);
}

TEST_CASE("Backward frees each layer's memory before the next layer's turn",
          "[nn][sim]") {
    OneDevice one;
    constexpr std::int64_t kLayers = 6;
    const std::int64_t tensor = bytes({5, 4});
    Sequential chain;
    for (std::int64_t i = 0; i < kLayers; ++i)
        chain.add<Linear>(one.init("layer" + std::to_string(i)), 4, 4);
    Saved saved;
    chain.forward(one.device.upload(normal_values({5, 4}, "x")), saved);
    CHECK(activations(one) == kLayers * tensor);
    const Tensor dy = one.device.zeros({5, 4}, DType::f64);

    // The peak has the saved tensors, the caller's dy, and dx of the last layer. After
    // that, each layer frees one saved tensor and so makes room for its dx.
    const std::int64_t parameters = one.monitor.held_bytes - activations(one);
    one.monitor.capacity = parameters + (kLayers + 2) * tensor;
    const Tensor dx = chain.backward(dy, saved);
    CHECK(activations(one) == 2 * tensor);  // dx and dy

    Saved again;
    one.monitor.capacity = INT64_MAX;
    chain.forward(dx, again);
    one.monitor.capacity = one.monitor.held_bytes;
    CHECK_THROWS_AS(chain.backward(dy, again), test::PlainMonitor::OutOfMemory);
}

TEST_CASE("Parameters, gradients and optimizer state count in their own categories",
          "[nn][sim]") {
    OneDevice one;
    Linear linear(one.init("layer"), 4, 3);
    const std::int64_t all = bytes({3, 4}) + bytes({3});
    CHECK(held(one, MemoryCategory::parameters) == all);
    CHECK(held(one, MemoryCategory::gradients) == all);
    {
        const Sgd plain(linear.parameters());
        CHECK(held(one, MemoryCategory::optimizer) == 0);
        const Sgd heavy(linear.parameters(), {.momentum = 0.9});
        CHECK(held(one, MemoryCategory::optimizer) == all);
    }
    AdamW adamw(linear.parameters());
    CHECK(held(one, MemoryCategory::optimizer) == 2 * all);
    adamw.step();
    CHECK(held(one, MemoryCategory::optimizer) == 2 * all);
    CHECK(activations(one) == 0);
}

}  // namespace lockstep::nn_test
