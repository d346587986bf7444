#include "lessons/08_zero/ways.hpp"

#include "src/device/ledger.hpp"
#include "src/nn/gpt.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/offloaded_activations.hpp"
#include "src/nn/recompute.hpp"
#include "src/nn/sequential.hpp"
#include "src/parallel/flat_buffer.hpp"
#include "src/parallel/placement.hpp"
#include "src/parallel/zero_2.hpp"

namespace lockstep::lessons {

namespace {

template <typename Stage, typename... Options>
MakeStrategy stage(const Options&... options) {
    return [=](Rank& rank, Module& model) {
        declare_replicas_of(rank.world(), model);
        return std::make_unique<Stage>(rank.device(), rank.world(), model.parameters(),
                                       options...);
    };
}

std::unique_ptr<Optimizer> mixed_adamw(std::vector<Parameter*> parameters) {
    return make_optimizer<AdamW>(std::move(parameters), AdamWOptions{});
}

ParameterInit without_memory(Device& device, const std::string& name) {
    return {device, DType::bf16, 0, name, false};
}

}  // namespace

MakeStrategy replicas(const BucketSizes& sizes) {
    return [=](Rank& rank, Module& model) {
        make_flat(rank.device(), model.parameters(), &Parameter::value);
        BucketOptions options;
        options.sizes = sizes;
        options.broadcast = options.rebuild = false;
        return in_buckets(options)(rank, model);
    };
}

MakeStrategy zero_1(const ZeroOptions& options) {
    return stage<Zero1>(options);
}

MakeStrategy zero_2(const ZeroOptions& options) {
    return stage<Zero2>(options);
}

MakeStrategy zero_offload(const ZeroOptions& options, bool delayed) {
    return stage<ZeroOffload>(options, delayed);
}

MakeStrategy fully_sharded(const FullyShardedOptions& options) {
    return [=](Rank& rank, Module& model) {
        declare_replicas_of(rank.world(), model);
        return std::make_unique<FullySharded>(rank.device(), rank.world(),
                                              dynamic_cast<Sequential&>(model), options);
    };
}

MeasuredStep Stack::step() const {
    const Stack stack = *this;
    return {[stack](Device& device) {
                auto model = std::make_unique<Sequential>();
                for (int layer = 0; layer < stack.layers; ++layer)
                    model->add<Linear>(without_memory(device, std::to_string(layer)),
                                       stack.width, stack.width, false);
                return model;
            },
            [stack](Device& device) {
                const Shape shape{stack.rows, stack.width};
                return MicroBatch{device.empty(shape, DType::bf16),
                                  device.empty(shape, DType::bf16)};
            },
            mean_squared_error, micro_batches, mixed_adamw};
}

namespace {

constexpr std::int64_t kTokens = 1024;

GptSizes sizes_of(int layers) {
    constexpr std::int64_t kWidth = 256;
    return {50257, kTokens, layers, {layers * kWidth, std::int64_t{2} * layers}};
}

}  // namespace

std::int64_t FamilyGpt::parameters() const {
    return sizes_of(layers).parameters();
}

MeasuredStep FamilyGpt::step() const {
    const GptSizes sizes = sizes_of(layers);
    MeasuredStep step{[sizes, keeps = keeps](Device& device) {
                          const GptKit kit = keeps == Keeps::all_but_attention
                                                 ? selective_recompute(GptKit{})
                                                 : GptKit{};
                          auto model = make_gpt(without_memory(device, ""), sizes, kit);
                          if (keeps == Keeps::input || keeps == Keeps::input_on_host)
                              recompute_blocks(*model, sizes);
                          return model;
                      },
                      [](Device& device) {
                          return MicroBatch{device.empty({kTokens, 1}, DType::i32),
                                            device.empty({kTokens, 1}, DType::i32)};
                      },
                      cross_entropy_loss, 1, mixed_adamw};
    if (keeps == Keeps::all_on_host || keeps == Keeps::input_on_host)
        step.around = [sizes](Device& device, Module& model) {
            const auto first = static_cast<std::size_t>(sizes.first_block());
            return std::make_shared<OffloadedActivations>(
                device, dynamic_cast<Sequential&>(model), first,
                first + static_cast<std::size_t>(sizes.layers));
        };
    return step;
}

std::int64_t state_of(const RankReport& rank) {
    return rank.memory.peak_of(MemoryCategory::parameters) +
           rank.memory.peak_of(MemoryCategory::gradients) +
           rank.memory.peak_of(MemoryCategory::optimizer);
}

// lesson: largest-that-fits
int largest_that_fits(int devices, const ClusterSpec& spec, const MakeStrategy& strategy,
                      int fitting) {
    const auto fits = [&](int layers) {
        try {
            measure(FamilyGpt{layers, FamilyGpt::Keeps::input}.step(), devices, spec,
                    strategy);
            return true;
        } catch (const OutOfMemoryError&) {
            return false;
        }
    };
    int stride = 1;
    while (fits(fitting + stride))
        fitting += std::exchange(stride, 2 * stride);
    int failing = fitting + stride;
    while (failing - fitting > 1) {
        const int middle = (fitting + failing) / 2;
        (fits(middle) ? fitting : failing) = middle;
    }
    return fitting;
}
// lesson: end

}  // namespace lockstep::lessons
