// These tests are public. The grader tests more: other meshes, and costs.

#include <algorithm>

#include <fmt/format.h>

#include "adapters.hpp"
#include "sim/cluster.hpp"
#include "src/core/philox.hpp"
#include "src/course/public_test.hpp"
#include "src/nn/flash_attention.hpp"
#include "src/nn/gpt.hpp"
#include "src/nn/losses.hpp"
#include "src/parallel/tensor_parallel_kit.hpp"

using namespace lockstep;

namespace {

constexpr int kSteps = 2;
constexpr double kMostNorm = 0.3;

GptSizes small_gpt(bool tied) {
    GptSizes sizes;
    sizes.vocabulary = 10;
    sizes.context = 8;
    sizes.layers = 2;
    sizes.block.hidden = 16;
    sizes.block.heads = 4;
    sizes.block.kv_heads = tied ? 2 : 0;
    sizes.tied = tied;
    return sizes;
}

Job job_of(int sequences, bool tied, double most_norm) {
    Job job;
    job.sizes = small_gpt(tied);
    job.kit.core = [](Device& device, const AttentionSizes& sizes) {
        return std::make_unique<FlashAttention>(device, sizes);
    };
    job.dtype = DType::f64;
    job.seed = 7;
    job.most_norm = most_norm;
    job.optimizer = [](std::vector<Parameter*> parameters) {
        return std::make_unique<AdamW>(
            std::move(parameters),
            AdamWOptions{.learning_rate = 0.02, .epsilon = 0.01, .weight_decay = 0.1});
    };
    const RandomStream stream(1, "tokens");
    std::uint64_t next = 0;
    const auto token = [&] { return static_cast<double>(stream.bits(next++) % 10); };
    for (int step = 0; step < kSteps; ++step) {
        std::vector<Sequence>& batch = job.batches.emplace_back();
        for (int i = 0; i < sequences; ++i) {
            Sequence sequence{HostTensor({8, 1}, DType::i32),
                              HostTensor({8, 1}, DType::i32)};
            for (std::int64_t at = 0; at < 8; ++at) {
                sequence.tokens.set(at, token());
                sequence.next.set(at, token());
            }
            batch.push_back(sequence);
        }
    }
    return job;
}

/// Trains on one device that has all sequences.
RunReport run_alone(const Job& job) {
    return sim::make_cluster(1)->run([&](Rank& rank) {
        Device& device = rank.device();
        const auto gpt = make_gpt({device, job.dtype, job.seed, ""}, job.sizes, job.kit);
        const std::vector<Parameter*> parameters = gpt->parameters();
        const auto optimizer = job.optimizer(parameters);
        for (const std::vector<Sequence>& batch : job.batches) {
            const auto count = static_cast<int>(batch.size());
            zero_gradients(*gpt, count);
            const Tensor loss = device.zeros({1}, DType::f64);
            for (const Sequence& sequence : batch) {
                Saved saved;
                const LossResult result = cross_entropy_loss(
                    device, gpt->forward(device.upload(sequence.tokens), saved),
                    device.upload(sequence.next), 1.0 / count);
                gpt->backward(result.gradient, saved);
                device.add(loss, result.loss);
            }
            rank.keep_value("loss", device.peek(loss).at(0));
            if (job.most_norm > 0) {
                const Tensor squares = device.zeros({1}, DType::f64);
                for (const Parameter* parameter : parameters)
                    device.sum_of_squares(squares, parameter->gradient);
                rank.keep_value("squares", device.peek(squares).at(0));
                device.clip_factor(squares, squares, job.most_norm);
                for (const Parameter* parameter : parameters)
                    device.scale(parameter->gradient, squares);
            }
            optimizer->step();
        }
        for (const Parameter* parameter : parameters)
            rank.keep(parameter->name(), parameter->value);
    });
}

/// Runs your program.
RunReport run_on_mesh(const Job& job, const Axes& axes) {
    return sim::make_cluster(MeshShape(axes).ranks())->run([&](Rank& rank) {
        Device& device = rank.device();
        const Trained trained = adapters::train(rank, job, axes);
        for (const Tensor& loss : trained.losses)
            rank.keep_value("loss", device.peek(loss).at(0));
        for (const Tensor& squares : trained.squares)
            rank.keep_value("squares", device.peek(squares).at(0));
        // The kit decides which part of each parameter a rank has.
        const Mesh mesh(rank.world(), axes);
        TensorParallel tensor(device, mesh["tp"]);
        const auto gpt = make_gpt({device, job.dtype, 0, "", false}, job.sizes,
                                  tensor_parallel(job.kit, tensor));
        for (const Parameter* parameter : gpt->parameters()) {
            const std::string& name = parameter->name();
            expect(trained.weights.contains(name),
                   fmt::format("rank {} returned no {}", rank.index(), name));
            rank.keep(name, trained.weights.at(name), parameter->part());
        }
    });
}

void expect_series(const RunReport& mesh, const RunReport& alone,
                   const std::string& name) {
    const std::vector<double>& expected = alone.ranks[0].series.at(name);
    for (std::size_t rank = 0; rank < mesh.ranks.size(); ++rank) {
        const auto& series = mesh.ranks[rank].series;
        const auto found = series.find(name);
        expect_equal(found == series.end() ? 0 : std::ssize(found->second),
                     std::ssize(expected),
                     fmt::format("numbers of {} on rank {}", name, rank));
        expect_close(HostTensor::of({std::ssize(expected)}, found->second),
                     HostTensor::of({std::ssize(expected)}, expected),
                     fmt::format("{} of each step on rank {}", name, rank));
    }
}

void test_mesh(const Axes& axes, int sequences, bool tied, double most_norm) {
    const Job job = job_of(sequences, tied, most_norm);
    const RunReport alone = run_alone(job), mesh = run_on_mesh(job, axes);
    expect_series(mesh, alone, "loss");
    if (most_norm > 0) expect_series(mesh, alone, "squares");
    for (const auto& [name, expected] : alone.ranks[0].kept)
        expect_close(mesh.whole(name), expected, name + ", all parts together,");
}

/// Tests a model that does not fit into one device, on two nodes of two devices.
void test_choice() {
    constexpr std::int64_t kGB = 1'000'000'000;
    Setting setting;
    setting.sizes = {32'000, 2048, 8, {.hidden = 2048, .heads = 16}};
    setting.sequences = setting.devices = 4;
    setting.cluster = load_cluster("a100-data-sheet");
    setting.cluster.devices_per_node = 2;
    setting.cluster.memory_bytes = 3 * kGB;
    const Axes axes = adapters::choose(setting);
    const MeshShape shape(axes);
    for (const char* name : {"dp", "cp", "tp"})
        expect(shape.has(name), fmt::format("choose() gave no axis {}", name));
    expect_equal(shape.ranks(), setting.devices, "devices of the mesh");

    Job job = job_of(setting.sequences, false, 0);
    const HostTensor tokens({setting.sizes.context, 1}, DType::i32);
    job.sizes = setting.sizes;
    job.dtype = DType::bf16;
    job.batches = {std::vector<Sequence>(4, {tokens, tokens})};
    job.optimizer = [](std::vector<Parameter*> parameters) {
        return make_optimizer<AdamW>(std::move(parameters), AdamWOptions{});
    };
    sim::ClusterOptions options;
    options.ranks = setting.devices;
    options.spec = setting.cluster;
    options.spec.memory_bytes = 0;
    options.numbers = false;
    const RunReport report = sim::make_cluster(options)->run(
        [&](Rank& rank) { adapters::train(rank, job, axes); });
    expect(report.most_held() <= setting.cluster.memory_bytes,
           fmt::format("on {} a device needs {} bytes, but has {}", shape.text(),
                       report.most_held(), setting.cluster.memory_bytes));
}

}  // namespace

int main() {
    PublicTest test;
    const auto check = [&](const std::string& name, const Axes& axes, int sequences,
                           bool tied, double most_norm) {
        test.check("a11.1 " + name, [=] { test_mesh(axes, sequences, tied, most_norm); });
    };
    check("one rank", {{"dp", 1}, {"cp", 1}, {"tp", 1}}, 2, false, 0);
    check("tp 2", {{"dp", 1}, {"cp", 1}, {"tp", 2}}, 2, false, 0);
    check("dp 2, 3 sequences", {{"dp", 2}, {"cp", 1}, {"tp", 1}}, 3, false, 0);
    check("cp 2", {{"dp", 1}, {"cp", 2}, {"tp", 1}}, 1, false, 0);
    check("tp 2 x dp 2, tied, heads share keys", {{"tp", 2}, {"cp", 1}, {"dp", 2}}, 3,
          true, 0);
    check("tp 2, clipped", {{"dp", 1}, {"cp", 1}, {"tp", 2}}, 2, false, kMostNorm);
    check("dp 2 x cp 2 x tp 2, clipped, tied", {{"dp", 2}, {"cp", 2}, {"tp", 2}}, 3, true,
          kMostNorm);
    test.check("a11.2 a model that does not fit four devices as it is", test_choice);
    return test.finish();
}
