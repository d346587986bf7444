// Compares the memory, copies and time of offloaded activations with formulas. Also
// checks which values they must not touch.

#include "src/nn/offloaded_activations.hpp"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "src/cost/virtual_time.hpp"
#include "src/nn/activation.hpp"
#include "src/nn/linear.hpp"
#include "tests/nn/fixture.hpp"
#include "tests/nn/one_rank.hpp"

namespace lockstep::nn_test {

namespace {

constexpr std::int64_t kRows = 500, kWidth = 1000;
constexpr std::int64_t kTensor = kRows * kWidth * 4;  // bytes of f32

/// Products and copies take time; everything else is free.
ClusterSpec products_and_copies(double link_bytes_per_second = 10e9) {
    ClusterSpec spec = load_cluster("classroom");
    spec.launch_seconds = spec.memory_bytes_per_second = 0;
    spec.host_copy = {1e-6, link_bytes_per_second};
    return spec;
}

/// Linear layers of one size. Each saves one tensor, which is its input.
struct Chain {
    std::int64_t layers = 8;
    int micro_batches = 1;
    bool in_flight = false;  ///< first all forwards, then all backwards
    bool backward = true;
};

RankReport pass(const Chain& chain, const OffloadOptions* options,
                const ClusterSpec& spec = products_and_copies()) {
    return figures_of(
        [&](Rank& rank) {
            Device& device = rank.device();
            const ParameterInit init{device, DType::f32, 1, "layer"};
            Sequential model;
            for (std::int64_t i = 0; i < chain.layers; ++i)
                model.add<Linear>(init, kWidth, kWidth, /*bias=*/false);
            std::unique_ptr<OffloadedActivations> offloaded;
            if (options)
                offloaded = std::make_unique<OffloadedActivations>(
                    device, model, 0, model.size(), *options);
            std::deque<std::pair<Saved, Tensor>> flights;
            for (int i = 0; i < chain.micro_batches; ++i) {
                auto& [saved, y] = flights.emplace_back();
                y = model.forward(device.empty({kRows, kWidth}, DType::f32), saved);
                while (!flights.empty() &&
                       (!chain.in_flight || i + 1 == chain.micro_batches)) {
                    auto& [first, dy] = flights.front();
                    if (chain.backward) model.backward(dy, first);
                    flights.pop_front();
                }
            }
        },
        spec);
}

/// Returns a step's time by the formulas in the header.
Picoseconds time_by_formula(std::int64_t layers, int prefetch, Picoseconds forward,
                            Picoseconds backward, Picoseconds copy) {
    const std::int64_t copies = layers - 1 - prefetch;
    // Without prefetching, each module waits for its copy.
    if (prefetch == 0) return layers * (forward + backward) + 2 * copies * copy;
    // The first copy begins when the first module has ended. The copies follow one after
    // another. The last module needs the memory that the last copy frees. Backward is the
    // same.
    const auto pass = [&](Picoseconds compute) {
        return compute + std::max((layers - 1) * compute, compute + copies * copy);
    };
    return pass(forward) + pass(backward);
}

}  // namespace

TEST_CASE("Offloading is free if copies end within a module; else the link is the limit",
          "[nn][sim][activations]") {
    for (const double link : {10e9, 1.25e9, 0.5e9}) {
        const ClusterSpec spec = products_and_copies(link);
        const Picoseconds forward =
            picoseconds(2.0 * kRows * kWidth * kWidth / spec.flops_f32);
        const Picoseconds copy = message_time(spec.host_copy, kTensor);
        for (const std::int64_t layers : {5, 8}) {
            CHECK(pass({layers}, nullptr, spec).time.end == 3 * layers * forward);
            for (const int prefetch : {0, 1, 2}) {
                CAPTURE(link, layers, prefetch);
                const OffloadOptions options{.prefetch = prefetch};
                const Picoseconds time = pass({layers}, &options, spec).time.end;
                CHECK(time ==
                      time_by_formula(layers, prefetch, forward, 2 * forward, copy));
                // The fastest link hides all copies.
                if (link == 10e9 && prefetch > 0)
                    CHECK(time == 3 * layers * forward);
                else
                    CHECK(time > 3 * layers * forward);
            }
        }
    }
}

TEST_CASE("The device holds what 1 + prefetch modules saved, the host the rest",
          "[nn][sim][activations]") {
    // The device also holds the caller's gradient, and a layer's dy and dx.
    constexpr std::int64_t kBeside = 3;
    CHECK(peak_of(pass({8}, nullptr).memory) == (8 - 1 + kBeside) * kTensor);
    for (const std::int64_t layers : {6, 8, 12})
        for (const int prefetch : {0, 1, 2})
            for (const int micro_batches : {1, 3})
                for (const bool last_stay : {true, false}) {
                    CAPTURE(layers, prefetch, micro_batches, last_stay);
                    const OffloadOptions options{.prefetch = prefetch,
                                                 .last_stay = last_stay};
                    const RankReport rank = pass({layers, micro_batches}, &options);
                    const std::int64_t gone = layers - (last_stay ? 1 + prefetch : 0);
                    CHECK(peak_of(rank.memory) == (1 + prefetch + kBeside) * kTensor);
                    CHECK(rank.host.memory.peak == gone * kTensor);
                    CHECK(rank.host.bytes_to_host == micro_batches * gone * kTensor);
                    CHECK(rank.host.bytes_to_device == micro_batches * gone * kTensor);
                    CHECK(rank.host.memory.current == decltype(MemoryReport::current){});
                }
}

TEST_CASE("With micro-batches in flight the last modules' activations stay, if they may",
          "[nn][sim][activations]") {
    for (const int prefetch : {0, 1, 2})
        for (const int micro_batches : {1, 2, 5})
            for (const bool last_stay : {true, false}) {
                CAPTURE(prefetch, micro_batches, last_stay);
                const OffloadOptions options{.prefetch = prefetch,
                                             .last_stay = last_stay};
                const RankReport rank = pass({8, micro_batches, true}, &options);
                const std::int64_t window = 1 + prefetch;
                const std::int64_t others = micro_batches - 1;
                // The device also holds one micro-batch's dy, dx and output gradient, and
                // the other micro-batches' outputs.
                CHECK(peak_of(rank.memory) ==
                      (window + 3 + others * (1 + (last_stay ? window : 0))) * kTensor);
                CHECK(rank.host.memory.peak ==
                      micro_batches * (8 - (last_stay ? window : 0)) * kTensor);
            }
}

TEST_CASE("A forward without backward leaves nothing on the host",
          "[nn][sim][activations]") {
    const OffloadOptions options;
    const RankReport rank = pass({6, 2, false, /*backward=*/false}, &options);
    CHECK(rank.host.memory.current == decltype(MemoryReport::current){});
    CHECK(rank.host.bytes_to_device == 0);
}

namespace {

/// Saves its input under several names and shapes, a part of the input, its parameter's
/// value, indices, a small tensor, and a plain value. Backward requires that nothing has
/// changed.
class Hoarder : public Module {
  public:
    explicit Hoarder(Device& device)
        : device_(device),
          weight_({device, DType::f32, 1, "hoarder"}, "weight", Shape{64, 8}) {
        device.fill(weight_.value, 3);
    }

  private:
    std::vector<Parameter*> own_parameters() override { return {&weight_}; }

    Tensor do_forward(const Tensor& x, Saved& saved) override {
        saved.keep("x", x);
        saved.keep("flat", x.flat());
        saved.keep("first rows", x.rows(0, 16));
        saved.keep("weight", weight_.value);
        saved.keep("ids", device_.zeros({500}, DType::i32));
        saved.keep("small", device_.zeros({4}, DType::f32));
        saved.keep("none", {});
        saved.keep_value("rows", x.shape()[0]);
        if (device_.has_numbers()) before_ = device_.peek(x);
        Tensor y = device_.empty(x.shape(), x.dtype());
        device_.copy(y, x);
        return y;
    }

    Tensor do_backward_input(const Tensor& dy, Saved& saved) override {
        for (const char* name : {"x", "flat", "first rows", "weight", "ids", "small"}) {
            CAPTURE(name);
            CHECK(saved.at(name).device() == &device_);
        }
        const Tensor& x = saved.at("x");
        CHECK(device_.peek(x) == before_);
        CHECK(saved.at("flat").shape() == x.flat().shape());
        CHECK(saved.at("flat").storage() == x.storage());
        CHECK(device_.peek(saved.at("first rows")) == before_.rows(0, 16));
        CHECK(saved.at("weight").storage() == weight_.value.storage());
        CHECK(saved.value<std::int64_t>("rows") == x.shape()[0]);
        Tensor dx = device_.empty(dy.shape(), dy.dtype());
        device_.copy(dx, dy);
        return dx;
    }

    Device& device_;
    Parameter weight_;
    HostTensor before_;
};

}  // namespace

TEST_CASE(
    "Each range of memory is offloaded once; parameters, indices and small tensors stay",
    "[nn][sim][activations]") {
    const RunReport report = run_one(
        [](Rank& rank) {
            Device& device = rank.device();
            Sequential model;
            model.add<Hoarder>(device);
            model.add<Hoarder>(device);
            OffloadedActivations offloaded(device, model, 0, 2, {.last_stay = false});
            Saved saved;
            const Tensor x = device.upload(normal_values({32, 16}, "x", DType::f32));
            model.backward(model.forward(x, saved), saved);
        },
        /*numbers=*/true);
    constexpr std::int64_t kBytes = std::int64_t{32} * 16 * 4;
    const HostReport& host = report.ranks[0].host;
    CHECK(host.bytes_to_host == 2 * (kBytes + kBytes / 2));
    CHECK(host.bytes_to_device == host.bytes_to_host);
}

TEST_CASE("A tensor that two neighbours saved is copied once each way",
          "[nn][sim][activations]") {
    const HostReport host =
        figures_of([](Rank& rank) {
            Device& device = rank.device();
            const ParameterInit init{device, DType::f32, 1, "layer"};
            Sequential model;
            model.add<Linear>(init, kWidth, kWidth);
            model.add<Tanh>(device);                  // saves its output,
            model.add<Linear>(init, kWidth, kWidth);  // which is this layer's input
            OffloadedActivations offloaded(device, model, 0, 3, {.last_stay = false});
            Saved saved;
            const Tensor x = device.empty({kRows, kWidth}, DType::f32);
            model.backward(model.forward(x, saved), saved);
        }).host;
    CHECK(host.bytes_to_host == 2 * kTensor);
    CHECK(host.bytes_to_device == 2 * kTensor);
}

TEST_CASE("Offloading refuses missing modules and wrong options",
          "[nn][errors][activations]") {
    figures_of([](Rank& rank) {
        Device& device = rank.device();
        Sequential model;
        model.add<Tanh>(device);
        const auto offload = [&](std::size_t first, std::size_t last,
                                 const OffloadOptions& options) {
            return refusal(
                [&] { OffloadedActivations(device, model, first, last, options); });
        };
        CHECK_THAT(offload(0, 2, {}), says("modules 0 to 2 of a Sequential of 1"));
        CHECK_THAT(offload(1, 0, {}), says("modules 1 to 0 of a Sequential of 1"));
        CHECK_THAT(offload(0, 1, {.prefetch = -1}),
                   says("prefetch is -1 and least_bytes is"));
    });
    OneDevice one;
    Sequential model;
    model.add<Tanh>(one.device);
    CHECK_THAT(refusal([&] { OffloadedActivations(one.device, model, 0, 1); }),
               says("made without a host"));
}

}  // namespace lockstep::nn_test
