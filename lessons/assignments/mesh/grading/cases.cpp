#include "lessons/assignments/mesh/grading/cases.hpp"

#include <algorithm>

#include "lessons/assignments/cost_of.hpp"
#include "sim/cluster.hpp"
#include "src/core/require.hpp"
#include "src/nn/gpt.hpp"
#include "src/parallel/context_parallel.hpp"
#include "src/parallel/placement.hpp"
#include "src/parallel/tensor_parallel_kit.hpp"
#include "src/parallel/train_step.hpp"
#include "src/pipeline/gpt_on_mesh.hpp"

namespace lockstep::lessons::mesh {

std::string text_of(const Axes& axes) {
    std::string text;
    for (const Mesh::Axis& axis : axes)
        if (axis.size > 1)
            text +=
                fmt::format("{}{} {}", text.empty() ? "" : " x ", axis.name, axis.size);
    return text.empty() ? "one rank" : text;
}

std::string MeshCase::name() const {
    std::string text = fmt::format("{}, {} sequences", text_of(axes), job.sequences);
    if (job.sizes.tied) text += ", tied";
    if (job.sizes.block.kv_heads > 0)
        text += fmt::format(", {} heads of keys", job.sizes.block.kv_heads);
    return text;
}

Numbers given_numbers(const MeshCase& of) {
    Numbers numbers = numbers_of(of.job);
    add_axes(numbers, of.axes);
    return numbers;
}

namespace {

Tensor loss_of_sequence(Device& device, Module& gpt, const Sequence& sequence) {
    const Tensor logits = gpt.infer(device.upload(sequence.tokens));
    return cross_entropy_loss(device, logits, device.upload(sequence.next)).loss;
}

MicroBatch micro_batch(Device& device, const Sequence& sequence, const TokenDeal& tokens,
                       double weight) {
    return {device.upload(dealt_rows(sequence.tokens, tokens)),
            device.upload(dealt_rows(sequence.next, tokens)), weight};
}

std::vector<MicroBatch> micro_batches(Device& device, const std::vector<Sequence>& all) {
    std::vector<MicroBatch> batches;
    batches.reserve(all.size());
    for (const Sequence& each : all)
        batches.push_back(
            micro_batch(device, each, {}, 1.0 / static_cast<double>(all.size())));
    return batches;
}

std::map<std::string, HostTensor> values_of(Device& device,
                                            const std::vector<Parameter*>& parameters,
                                            Tensor Parameter::*member) {
    std::map<std::string, HostTensor> values;
    for (const Parameter* parameter : parameters)
        values.emplace(parameter->name(), device.peek(parameter->*member));
    return values;
}

OneDevice train_alone(const GivenJob& given) {
    OneDevice alone;
    const Job job = job_of(given);
    sim::ClusterOptions options;
    options.workers = 1;
    options.check = sim::CheckLevel::cheap;
    sim::make_cluster(options)->run([&](Rank& rank) {
        Device& device = rank.device();
        const auto gpt =
            make_gpt({device, job.dtype, job.seed, ""}, job.sizes, given_kit());
        const std::vector<Parameter*> all = gpt->parameters();
        const auto number = [&](const Tensor& tensor) {
            return device.peek(tensor).at(0);
        };
        alone.before = values_of(device, all, &Parameter::value);
        for (const Sequence& sequence : job.batches.front())
            alone.of_sequences.push_back(
                number(loss_of_sequence(device, *gpt, sequence)));
        const auto optimizer = job.optimizer(all);
        for (const std::vector<Sequence>& batch : job.batches) {
            alone.losses.push_back(number(accumulate_gradients(
                device, *gpt, cross_entropy_loss, micro_batches(device, batch))));
            if (alone.gradients.empty())
                alone.gradients = values_of(device, all, &Parameter::gradient);
            if (job.most_norm > 0)
                alone.squares.push_back(
                    number(clip_gradients(device, rank.world(), all, job.most_norm)));
            optimizer->step();
        }
        alone.weights = values_of(device, all, &Parameter::value);
    });
    return alone;
}

}  // namespace

const OneDevice& alone_of(const GivenJob& job) {
    static std::map<Numbers, OneDevice> known;
    const Numbers numbers = numbers_of(job);
    const auto found = known.find(numbers);
    if (found != known.end()) return found->second;
    return known.emplace(numbers, train_alone(job)).first->second;
}

Layout layout_of(const MeshCase& of) {
    Layout layout;
    layout.parts.resize(static_cast<std::size_t>(of.ranks()));
    sim::ClusterOptions options;
    options.ranks = of.ranks();
    options.workers = 1;
    options.numbers = false;
    sim::make_cluster(options)->run([&](Rank& rank) {
        const Mesh mesh(rank.world(), of.axes);
        TensorParallel tensor(rank.device(), mesh["tp"]);
        const auto gpt = make_gpt({rank.device(), of.job.dtype, 0, "", false},
                                  of.job.sizes, tensor_parallel(given_kit(), tensor));
        for (const Parameter* parameter : gpt->parameters())
            layout.parts[static_cast<std::size_t>(rank.index())].emplace(
                parameter->name(), parameter->part());
    });
    return layout;
}

int dealt_to(Dealing dealing, int sequence, int sequences, int ranks) {
    return dealing == Dealing::in_turn ? sequence % ranks : sequence * ranks / sequences;
}

Parts terms_of(const MeshCase& of, Dealing dealing) {
    const Job job = job_of(of.job);
    Parts terms(static_cast<std::size_t>(of.ranks()));
    sim::ClusterOptions options;
    options.ranks = of.ranks();
    options.workers = 1;
    options.check = sim::CheckLevel::cheap;
    sim::make_cluster(options)->run([&](Rank& rank) {
        Device& device = rank.device();
        const Mesh mesh(rank.world(), of.axes);
        TensorParallel tensor(device, mesh["tp"]);
        const GptKit kit =
            context_parallel(tensor_parallel(given_kit(), tensor), mesh["cp"],
                             ContextMethod::ring_attention, TokenOrder::zigzag);
        const auto gpt = make_gpt({device, job.dtype, job.seed, ""}, job.sizes, kit);
        const std::vector<Sequence>& batch = job.batches.front();
        std::vector<MicroBatch> own;
        for (int i = 0; i < of.job.sequences; ++i)
            if (dealt_to(dealing, i, of.job.sequences, of.size("dp")) ==
                mesh.coordinate("dp"))
                own.push_back(micro_batch(device, batch.at(i), kit.tokens,
                                          1.0 / (of.job.sequences * of.size("cp"))));
        accumulate_gradients(device, *gpt, kit.loss(job.sizes), own);
        terms.at(rank.index()) =
            values_of(device, gpt->parameters(), &Parameter::gradient);
    });
    return terms;
}

RunReport run_library(const MeshCase& of, const ClusterSpec& cluster) {
    const int replicas = of.size("dp");
    require(of.job.sequences % replicas == 0,
            "{} sequences are not dealt equally to {} replicas", of.job.sequences,
            replicas);
    MeshOptions spread;
    spread.axes = of.axes;
    spread.micro_batches = of.job.sequences / replicas;
    spread.zero = 1;
    spread.kit = given_kit();
    const MeshPlan plan(of.job.sizes, spread);
    const HostTensor tokens({of.job.sizes.context, 1}, DType::i32);

    const auto program = [&](Rank& rank) {
        GptOnMesh gpt(rank, plan, of.job.dtype, 0);
        const auto optimizer = given_optimizer(of.job.by_sgd, gpt.sync().shards());
        std::vector<MicroBatch> own;
        for (int i = 0; i < spread.micro_batches; ++i) {
            const Tensor ids = rank.device().upload(dealt_rows(tokens, gpt.tokens()));
            own.push_back({ids, ids, plan.weight()});
        }
        gpt.step(own, *optimizer);
    };
    return cost_of(of.ranks(), program, cluster);
}

}  // namespace lockstep::lessons::mesh
